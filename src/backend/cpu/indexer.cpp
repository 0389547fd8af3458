// docs/kernels/index_select.md
#include <algorithm>
#include <atomic>
#include <limits>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/rotary.h"
#include "backend/cpu/row_tasks.h"
#include "backend/cpu/shortlist.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

// Entries one task scores, about: 140 KB of keys; fewer where threads share a row, so that none
// waits long for the last.
constexpr int64_t kEntryBlock = 2048;
constexpr int64_t kSharedEntryBlock = 512;
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

// At least as many as row t's pool has, without a look at its candidates.
int64_t most_entries_of(const IndexSelectArgs& args, int64_t t) {
  const int64_t visible = (args.rows.positions.data[t] + int64_t{1}) / args.ratio;
  if (args.candidate_use != CandidateUse::use) return visible;
  return std::min(visible, args.candidates.extent(1) * args.candidate_block);
}

// One chunk of rows: prepared queries, weights and scores in shared scratch.
class Selection {
 public:
  Selection(Queue& queue, const IndexSelectArgs& args)
      : args_(args),
        rows_(queue.rows()),
        threads_(queue.team().size()),
        heads_(args.q.extent(1)),
        width_(args.q.extent(2)),
        row_bytes_(index_key_row_bytes(width_)) {
    const int64_t tokens = args.rows.tokens();
    for (int64_t t = 0; t < tokens; ++t) {
      most_entries_ = std::max(most_entries_, most_entries_of(args, t));
    }
    shared_ = tokens < threads_ && most_entries_ > 2 * kEntryBlock;
    entry_block_ = shared_ ? kSharedEntryBlock : kEntryBlock;
    if (args.candidate_use == CandidateUse::build) {
      entry_block_ = divide_up(entry_block_, args.candidate_block) * args.candidate_block;
      candidate_blocks_ = divide_up(most_entries_, args.candidate_block);
    }
    blocks_ = divide_up(most_entries_, entry_block_);
    chunk_ = std::clamp<int64_t>(kMostScores / std::max<int64_t>(most_entries_, 1), 1,
                                 std::max<int64_t>(tokens, 1));
    const int64_t most_chosen = args.chosen.extent(1);
    if (shared_) {
      // A part is some lanes of a block.
      part_ = std::clamp<int64_t>(Shortlist::part(most_entries_, most_chosen), 1,
                                  entry_block_ / kMostLanes);
      block_maxima_ = entry_block_ / part_ + kMostLanes;
    }
    ScratchLayout shared, own;
    const size_t pools = shared.add(chunk_, sizeof(Pool));
    const size_t queries = shared.add(chunk_ * index_query_bytes(heads_, width_), 1);
    const size_t weights = shared.add(chunk_ * heads_, sizeof(float));
    const size_t scores = shared.add(chunk_ * most_entries_, sizeof(float));
    const size_t best = shared.add(chunk_ * candidate_blocks_, sizeof(float));
    const int64_t shared_rows = shared_ ? chunk_ : 0;
    const size_t maxima = shared.add(shared_rows * blocks_ * block_maxima_, sizeof(float));
    const size_t kept = shared.add(shared_rows * most_entries_, sizeof(int32_t));
    const size_t kept_scores = shared.add(shared_rows * most_entries_, sizeof(float));
    const size_t kept_counts = shared.add(shared_rows * blocks_, sizeof(int64_t));
    std::byte* base = queue.scratch().reserve_shared(shared.bytes());
    pools_ = reinterpret_cast<Pool*>(base + pools);
    queries_ = base + queries;
    weights_ = reinterpret_cast<float*>(base + weights);
    scores_ = reinterpret_cast<float*>(base + scores);
    best_ = reinterpret_cast<float*>(base + best);
    maxima_ = reinterpret_cast<float*>(base + maxima);
    kept_ = reinterpret_cast<int32_t*>(base + kept);
    kept_scores_ = reinterpret_cast<float*>(base + kept_scores);
    kept_counts_ = reinterpret_cast<int64_t*>(base + kept_counts);
    own.add(kHeadGroup * row_bytes_ + width_ * static_cast<int64_t>(sizeof(bf16)), 1);
    const int64_t most_candidates = candidate_blocks_ > 0 ? args.candidates.extent(1) : 0;
    shortlist_at_ = own.add(Shortlist::bytes(std::max(most_chosen, most_candidates)), 1);
    queue.scratch().reserve_per_thread(own.bytes());
  }

  int64_t chunk() const { return chunk_; }
  int64_t most_entries() const { return most_entries_; }

  // Rows first .. first + count - 1.
  void run(const TeamMember& member, int64_t first, int64_t count, std::byte* scratch) {
    const int64_t head_groups = divide_up(heads_, kHeadGroup);
    share_pieces(member, count * head_groups, [&](int64_t piece) {
      prepare(first, piece / head_groups, piece % head_groups * kHeadGroup, scratch);
    });
    // Everybody has left the scores of the chunk before.
    if (member.index() == 0) next_.store(0, std::memory_order_relaxed);
    member.barrier();
    const int64_t pieces = count * blocks_;
    for (int64_t piece; (piece = next_.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
      score(first, piece / blocks_, piece % blocks_);
    }
    member.barrier();
    if (shared_) {
      for (int64_t i = 0; i < count; ++i) keep(member, i);
      member.barrier();
    }
    share_pieces(member, candidate_blocks_ > 0 ? 2 * count : count, [&](int64_t i) {
      if (i < count) {
        select(first, i, scratch);
      } else {
        select_candidates(first, i - count, scratch);
      }
    });
  }

 private:
  // Heads that are prepared together.
  static constexpr int64_t kHeadGroup = 4;

  // Heads `head` and following of iq and w of row first + i, i < chunk(); with the first its pool.
  void prepare(int64_t first, int64_t i, int64_t head, std::byte* scratch) {
    const int64_t t = first + i, count = std::min(kHeadGroup, heads_ - head);
    if (head == 0) pools_[i] = pool_of(args_, t);
    // The head first: packed rows have odd sizes, behind which a bf16 would lie misaligned.
    bf16* values = reinterpret_cast<bf16*>(scratch);
    uint8_t* packed = reinterpret_cast<uint8_t*>(values + width_);
    Rotation turn;
    fill_rotation(args_.frequencies, args_.rows.positions.data[t], false, turn);
    for (int64_t h = 0; h < count; ++h) {
      std::copy_n(args_.q.row(t) + (head + h) * width_, width_, values);
      rows_.rotate(values, width_, turn.cosine, turn.sine, turn.pairs);
      rows_.pack_index_key(values, width_, packed + h * row_bytes_);
      weights_[i * heads_ + head + h] =
          round_to_bf16(to_float(args_.weights.row(t)[head + h]) * args_.weight_scale);
    }
    rows_.prepare_index_query(packed, count, width_, query(i) + index_query_bytes(head, width_));
  }

  // Entries block * entry_block_ and following of row first + i.
  void score(int64_t first, int64_t i, int64_t block) {
    const Range range = range_of(pools_[i], block);
    for (int64_t at = range.first; at < range.last; at += kIndexTile) {
      const int64_t count = std::min(kIndexTile, range.last - at);
      const uint8_t* keys[kIndexTile];
      find_keys(args_.rows.slots.data[first + i], pools_[i], at, count, keys);
      rows_.index_scores(query(i), weights_ + i * heads_, heads_, width_, keys, count,
                         scores_of(i) + at);
    }
    float* maxima = maxima_of(i) + block * block_maxima_;
    int64_t parts = 0;
    if (range.first < range.last) {
      const int64_t entries = range.last - range.first;
      if (candidate_blocks_ > 0) {
        rows_.block_maxima(scores_of(i) + range.first, entries, args_.candidate_block,
                           best_of(i) + range.first / args_.candidate_block);
      }
      if (shared_) parts = rows_.lane_maxima(scores_of(i) + range.first, entries, part_, maxima);
    }
    std::fill(maxima + parts, maxima + block_maxima_, -std::numeric_limits<float>::infinity());
  }

  // Where the keys of a pool's entries `at` and following lie: in runs, of a page and of a
  // candidate block.
  void find_keys(int32_t slot, const Pool& pool, int64_t at, int64_t count,
                 const uint8_t** keys) const {
    const int64_t per_page = args_.keys.rows.extent(1), bytes = args_.keys.rows.extent(2);
    for (int64_t done = 0; done < count;) {
      const int64_t entry = pool.entry(at + done);
      const int64_t in_block =
          pool.blocks ? pool.block_size - (at + done) % pool.block_size : count;
      const int64_t run = std::min({count - done, in_block, per_page - entry % per_page});
      const uint8_t* key = args_.keys.row(slot, entry);
      for (int64_t k = 0; k < run; ++k) keys[done + k] = key + k * bytes;
      done += run;
    }
  }

  // Lists in every block of row first + i what may be among the chosen.
  void keep(const TeamMember& member, int64_t i) {
    // The same bound in every thread.
    const float least =
        bound_of_largest(rows_, maxima_of(i), blocks_ * block_maxima_, args_.chosen.extent(1));
    share_pieces(member, blocks_, [&](int64_t block) {
      const Range range = range_of(pools_[i], block);
      const int64_t entries = std::max<int64_t>(range.last - range.first, 0);
      kept_counts_[i * blocks_ + block] =
          entries > 0 ? rows_.list_at_least(scores_of(i) + range.first, entries, least,
                                            kept_ + i * most_entries_ + range.first, entries)
                      : 0;
    });
  }

  void select(int64_t first, int64_t i, std::byte* scratch) {
    const int64_t t = first + i;
    const Pool& pool = pools_[i];
    int32_t* chosen = args_.chosen.row(t);
    const int64_t most = args_.chosen.extent(1);
    if (!shared_) {
      write_chosen(scores_of(i), pool.count, chosen, most, scratch,
                   [&](int64_t j) { return pool.entry(j); });
      return;
    }
    int32_t* kept = kept_ + i * most_entries_;
    float* kept_scores = kept_scores_ + i * most_entries_;
    int64_t count = 0;
    for (int64_t block = 0; block < blocks_; ++block) {
      const int64_t from = block * entry_block_;
      for (int64_t j = 0; j < kept_counts_[i * blocks_ + block]; ++j, ++count) {
        const int32_t entry = static_cast<int32_t>(from) + kept[from + j];
        kept[count] = entry;
        kept_scores[count] = scores_of(i)[entry];
      }
    }
    write_chosen(kept_scores, count, chosen, most, scratch,
                 [&](int64_t j) { return pool.entry(kept[j]); });
  }

  struct Range {
    int64_t first, last;
  };
  Range range_of(const Pool& pool, int64_t block) const {
    return {block * entry_block_, std::min(pool.count, (block + 1) * entry_block_)};
  }

  std::byte* query(int64_t i) { return queries_ + i * index_query_bytes(heads_, width_); }
  float* scores_of(int64_t i) { return scores_ + i * most_entries_; }
  float* best_of(int64_t i) { return best_ + i * candidate_blocks_; }
  float* maxima_of(int64_t i) { return maxima_ + i * blocks_ * block_maxima_; }

  void select_candidates(int64_t first, int64_t i, std::byte* scratch) {
    const int64_t t = first + i;
    const int64_t blocks = divide_up(pools_[i].count, args_.candidate_block);
    float* best = best_of(i);
    // The newest block, often incomplete, always qualifies.
    if (blocks > 0) best[blocks - 1] = std::numeric_limits<float>::infinity();
    write_chosen(best, blocks, args_.candidates.row(t), args_.candidates.extent(1), scratch,
                 [](int64_t b) { return b; });
  }

  template <class Entry>
  void write_chosen(const float* scores, int64_t n, int32_t* out, int64_t k, std::byte* scratch,
                    Entry entry) const {
    int64_t written = 0;
    Shortlist(scratch + shortlist_at_).choose(rows_, scores, n, k, [&](int64_t i) {
      out[written++] = static_cast<int32_t>(entry(i));
    });
    std::fill(out + written, out + k, -1);
  }

  const IndexSelectArgs& args_;
  const RowKernels& rows_;
  const int threads_;
  const int64_t heads_, width_, row_bytes_;
  int64_t most_entries_ = 0, chunk_ = 1;
  int64_t entry_block_ = kEntryBlock, blocks_ = 0;  // entries of a task, tasks of a row
  int64_t candidate_blocks_ = 0;                    // where candidates are built
  bool shared_ = false;                             // few rows: the threads choose together
  Pool* pools_ = nullptr;
  std::byte* queries_ = nullptr;
  float* weights_ = nullptr;
  float* scores_ = nullptr;
  float* best_ = nullptr;  // of every candidate block
  // Where threads choose together, of every row: the maxima of every block's parts, and what keep()
  // listed of every block.
  int64_t part_ = 0, block_maxima_ = 0;
  float* maxima_ = nullptr;
  int32_t* kept_ = nullptr;
  float* kept_scores_ = nullptr;
  int64_t* kept_counts_ = nullptr;
  size_t shortlist_at_ = 0;       // in a thread's scratch
  std::atomic<int64_t> next_{0};  // the piece of the scores to be taken next
};

}  // namespace

void index_select(Queue& queue, const IndexSelectArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.rows.tokens(), heads = args.q.extent(1), width = args.q.extent(2);
  CACHALOT_CHECK(heads <= kMostHeads && width <= kMostIndexWidth, "index_select: {} heads of {}",
                 heads, width);
  Selection selection(queue, args);
  // 16-bit products: an eighth of a multiply-add each.
  const int64_t work = tokens * heads * width * (1 + selection.most_entries() / 8);
  queue.run(work, [&](const TeamMember& member) {
    std::byte* scratch = queue.scratch().of_thread(member.index());
    for (int64_t first = 0; first < tokens; first += selection.chunk()) {
      if (first > 0) member.barrier();  // the chunk before used the same scratch
      selection.run(member, first, std::min(selection.chunk(), tokens - first), scratch);
    }
  });
}

}  // namespace cachalot::cpu
