// docs/kernels/index_select.md
#include <algorithm>
#include <limits>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/rotary.h"
#include "backend/cpu/row_tasks.h"
#include "backend/cpu/top_entries.h"

namespace cachalot::cpu {
namespace {

// Entries one task scores: 140 KB of keys.
constexpr int64_t kEntryBlock = 2048;
// Scores held at a time; rows of a step go through in chunks that fit.
constexpr int64_t kMostScores = int64_t{1} << 22;
constexpr int64_t kMostHeads = 128;

// The entries row t chooses from, as a dense list: all visible ones, or those of its candidate
// blocks. Blocks ascend, so only the last one can reach past the visible entries.
struct Pool {
  int64_t count = 0;
  const int32_t* blocks = nullptr;
  int64_t block_size = 1;

  int64_t entry(int64_t i) const {
    return blocks ? blocks[i / block_size] * block_size + i % block_size : i;
  }
};

Pool pool_of(const IndexSelectArgs& args, int64_t t) {
  const int64_t visible = (args.rows.positions.data[t] + int64_t{1}) / args.ratio;
  if (args.candidate_use != CandidateUse::use) return {visible};
  const int32_t* blocks = args.candidates.row(t);
  const int64_t most = args.candidates.extent(1), size = args.candidate_block;
  int64_t used = 0;
  while (used < most && blocks[used] >= 0 && blocks[used] * size < visible) ++used;
  if (used == 0) return {};
  const int64_t last = std::min(size, visible - blocks[used - 1] * size);
  return {(used - 1) * size + last, blocks, size};
}

// One chunk of rows: prepared queries, weights and scores in shared scratch.
class Selection {
 public:
  Selection(Queue& queue, const IndexSelectArgs& args)
      : args_(args),
        rows_(queue.rows()),
        heads_(args.q.extent(1)),
        width_(args.q.extent(2)),
        row_bytes_(index_key_row_bytes(width_)) {
    for (int64_t t = 0; t < args.rows.tokens(); ++t) {
      most_entries_ = std::max(most_entries_, pool_of(args, t).count);
    }
    block_scores_ = args.candidate_use == CandidateUse::build
                        ? divide_up(most_entries_, args.candidate_block)
                        : 0;
    chunk_ = std::clamp<int64_t>(kMostScores / std::max<int64_t>(most_entries_, 1), 1,
                                 std::max<int64_t>(args.rows.tokens(), 1));
    ScratchLayout shared;
    const size_t queries = shared.add(chunk_ * index_query_bytes(heads_, width_), 1);
    const size_t weights = shared.add(chunk_ * heads_, sizeof(float));
    const size_t scores = shared.add(chunk_ * most_entries_, sizeof(float));
    std::byte* base = queue.scratch().reserve_shared(shared.bytes());
    queries_ = base + queries;
    weights_ = reinterpret_cast<float*>(base + weights);
    scores_ = reinterpret_cast<float*>(base + scores);
    queue.scratch().reserve_per_thread(static_cast<size_t>(
        std::max(heads_ * row_bytes_ + width_ * static_cast<int64_t>(sizeof(bf16)),
                 block_scores_ * static_cast<int64_t>(sizeof(float)))));
  }

  int64_t chunk() const { return chunk_; }
  int64_t most_entries() const { return most_entries_; }

  // iq and w of row first + i, i < chunk().
  void prepare(int64_t first, int64_t i, std::byte* scratch) {
    const int64_t t = first + i;
    // The head first: packed rows have odd sizes, behind which a bf16 would lie misaligned.
    bf16* head = reinterpret_cast<bf16*>(scratch);
    uint8_t* packed = reinterpret_cast<uint8_t*>(head + width_);
    Rotation turn;
    fill_rotation(args_.frequencies, args_.rows.positions.data[t], false, turn);
    for (int64_t h = 0; h < heads_; ++h) {
      std::copy_n(args_.q.row(t) + h * width_, width_, head);
      rows_.rotate(head, width_, turn.cosine, turn.sine, turn.pairs);
      rows_.pack_index_key(head, width_, packed + h * row_bytes_);
      weights_[i * heads_ + h] =
          round_to_bf16(to_float(args_.weights.row(t)[h]) * args_.weight_scale);
    }
    rows_.prepare_index_query(packed, heads_, width_, query(i));
  }

  // Entries block * kEntryBlock and following of row first + i.
  void score(int64_t first, int64_t i, int64_t block) {
    const Pool pool = pool_of(args_, first + i);
    const int32_t slot = args_.rows.slots.data[first + i];
    const int64_t end = std::min(pool.count, (block + 1) * kEntryBlock);
    for (int64_t at = block * kEntryBlock; at < end; at += kIndexTile) {
      const int64_t count = std::min(kIndexTile, end - at);
      const uint8_t* keys[kIndexTile];
      for (int64_t k = 0; k < count; ++k) keys[k] = args_.keys.row(slot, pool.entry(at + k));
      rows_.index_scores(query(i), weights_ + i * heads_, heads_, width_, keys, count,
                         scores_ + i * most_entries_ + at);
    }
  }

  void select(int64_t first, int64_t i, std::byte* scratch) {
    const int64_t t = first + i;
    const Pool pool = pool_of(args_, t);
    const float* scores = scores_ + i * most_entries_;
    if (args_.candidate_use == CandidateUse::build) {
      build_candidates(t, scores, pool.count, reinterpret_cast<float*>(scratch));
    }
    write_chosen(scores, pool.count, args_.chosen.row(t), args_.chosen.extent(1),
                 [&](int64_t j) { return pool.entry(j); });
  }

 private:
  std::byte* query(int64_t i) { return queries_ + i * index_query_bytes(heads_, width_); }

  void build_candidates(int64_t t, const float* scores, int64_t visible, float* best) {
    const int64_t size = args_.candidate_block, blocks = divide_up(visible, size);
    for (int64_t b = 0; b < blocks; ++b) {
      best[b] = -std::numeric_limits<float>::infinity();
      for (int64_t j = b * size; j < std::min(visible, (b + 1) * size); ++j) {
        best[b] = scores[j] > best[b] ? scores[j] : best[b];
      }
    }
    // The newest block, often incomplete, always qualifies.
    if (blocks > 0) best[blocks - 1] = std::numeric_limits<float>::infinity();
    write_chosen(best, blocks, args_.candidates.row(t), args_.candidates.extent(1),
                 [](int64_t b) { return b; });
  }

  template <class Entry>
  static void write_chosen(const float* scores, int64_t n, int32_t* out, int64_t k, Entry entry) {
    int64_t written = 0;
    TopEntries().choose(scores, n, k,
                        [&](int64_t i) { out[written++] = static_cast<int32_t>(entry(i)); });
    std::fill(out + written, out + k, -1);
  }

  const IndexSelectArgs& args_;
  const RowKernels& rows_;
  const int64_t heads_, width_, row_bytes_;
  int64_t most_entries_ = 0, block_scores_ = 0, chunk_ = 1;
  std::byte* queries_ = nullptr;
  float* weights_ = nullptr;
  float* scores_ = nullptr;
};

}  // namespace

void index_select(Queue& queue, const IndexSelectArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.rows.tokens(), heads = args.q.extent(1), width = args.q.extent(2);
  CACHALOT_CHECK(heads <= kMostHeads, "index_select: {} heads", heads);
  Selection selection(queue, args);
  const int64_t blocks = divide_up(selection.most_entries(), kEntryBlock);
  // 16-bit products: an eighth of a multiply-add each.
  const int64_t work = tokens * heads * width * (1 + selection.most_entries() / 8);
  queue.run(work, [&](const TeamMember& member) {
    std::byte* scratch = queue.scratch().of_thread(member.index());
    for (int64_t first = 0; first < tokens; first += selection.chunk()) {
      const int64_t count = std::min(selection.chunk(), tokens - first);
      share_pieces(member, count, [&](int64_t i) { selection.prepare(first, i, scratch); });
      member.barrier();
      share_pieces(member, count * blocks,
                   [&](int64_t task) { selection.score(first, task / blocks, task % blocks); });
      member.barrier();
      share_pieces(member, count, [&](int64_t i) { selection.select(first, i, scratch); });
      member.barrier();  // the next chunk takes the same scratch
    }
  });
}

}  // namespace cachalot::cpu
