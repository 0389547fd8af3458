// Attention on matrix registers (docs/kernels/sparse_attention.md): a row's scores by keys, its
// softmax by heads, its values by channels. With many rows a thread does all of a row, with few the
// threads share each.
#include "backend/cpu/tile_attention.h"

#include "backend/cpu/attended_keys.h"
#include "backend/cpu/kernels/attention_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

// Where a row's keys, scores and divisors are.
struct RowPlace {
  const uint8_t** keys;  // [most keys]
  float* scores;         // [heads, rounded up to a tile, stride]
  float* factors;        // [heads] what the weighted values are multiplied by
};

// What a thread keeps: a row's queries as the kernels want them, the kernels' scratch.
struct OwnPlace {
  std::byte* queries;
  std::byte* kernels;
};

class TileAttention {
 public:
  TileAttention(Queue& queue, const AttentionKernels& kernels, const SparseAttentionArgs& args)
      : rows_(queue.rows()),
        kernels_(kernels),
        args_(args),
        heads_(args.q.extent(1)),
        head_dim_(args.q.extent(2)),
        most_keys_(most_keys(args)),
        stride_(score_stride(divide_up(most_keys_, kAttentionKeys) * kAttentionKeys)) {}

  int64_t pieces() const { return divide_up(most_keys_, kAttentionTile); }
  int64_t heads() const { return heads_; }
  int64_t slices() const { return head_dim_ / kAttentionChannels; }

  // Adds a row's place to a layout; place() finds it again.
  struct RowOffsets {
    size_t keys, scores, factors;
  };
  RowOffsets add_rows(ScratchLayout& layout, int64_t rows) const {
    return {layout.add(rows * most_keys_, sizeof(const uint8_t*)),
            layout.add(rows * score_rows() * stride_, sizeof(float)),
            layout.add(rows * heads_, sizeof(float))};
  }
  RowPlace place(std::byte* base, const RowOffsets& at, int64_t row) const {
    return {reinterpret_cast<const uint8_t**>(base + at.keys) + row * most_keys_,
            reinterpret_cast<float*>(base + at.scores) + row * score_rows() * stride_,
            reinterpret_cast<float*>(base + at.factors) + row * heads_};
  }
  struct OwnOffsets {
    size_t queries, kernels;
  };
  OwnOffsets add_own(ScratchLayout& layout) const {
    return {layout.add(kernels_.query_bytes(heads_, head_dim_), 1),
            layout.add(kernels_.scratch_bytes(most_keys_, head_dim_), 1)};
  }
  static OwnPlace own(std::byte* base, const OwnOffsets& at) {
    return {base + at.queries, base + at.kernels};
  }

  void pack_queries(int64_t t, const OwnPlace& own) const {
    kernels_.pack_queries(args_.q.row(t), heads_, head_dim_, own.queries);
  }

  // Scores of some keys, which start at a multiple of kAttentionTile.
  void score(int64_t t, Range which, const RowPlace& row, const OwnPlace& own) const {
    const Keys keys = keys_of(args_, t, row.keys);
    which.count = std::min(which.count, keys.count - which.first);
    if (which.count <= 0) return;
    find_keys(args_, t, which, keys);
    kernels_.score_keys(own.queries, heads_, attended(keys), which.first, which.count, row.scores,
                        stride_, own.kernels);
  }

  void weigh(int64_t t, int64_t head, const RowPlace& row) const {
    row.factors[head] =
        1 / kernels_.weigh(row.scores + head * stride_, keys_of(args_, t, row.keys).count,
                           args_.scale, args_.sink.data[head]);
  }

  // Outputs of the channels of slice `slice`; `turn` is the row's rotation or, where its channels
  // are not rotated, has its number of pairs.
  void add_values(int64_t t, int64_t slice, const Rotation& turn, const RowPlace& row,
                  const OwnPlace& own) const {
    const Range channels{slice * kAttentionChannels, kAttentionChannels};
    bf16* o = args_.o.row(t);
    kernels_.weigh_values(row.scores, stride_, heads_, attended(keys_of(args_, t, row.keys)),
                          channels.first, row.factors, o, head_dim_, own.kernels);
    if (!rotates(slice)) return;
    for (int64_t h = 0; h < heads_; ++h) {
      rotate_channels(rows_, channels, head_dim_, turn, o + h * head_dim_);
    }
  }

  bool rotates(int64_t slice) const {
    return (slice + 1) * kAttentionChannels > head_dim_ - 2 * args_.frequencies.elements();
  }
  void fill_turn(int64_t t, Rotation& turn) const {
    fill_rotation(args_.frequencies, args_.rows.positions.data[t], true, turn);
  }

 private:
  int64_t score_rows() const { return divide_up(heads_, kAttentionTile) * kAttentionTile; }
  AttendedRows attended(const Keys& keys) const {
    return {keys.rows, keys.window, keys.count, head_dim_};
  }

  const RowKernels& rows_;
  const AttentionKernels& kernels_;
  const SparseAttentionArgs& args_;
  const int64_t heads_, head_dim_, most_keys_, stride_;
};

// A thread, a row.
void attend_rows(Queue& queue, const TileAttention& attention, int64_t tokens, int64_t work) {
  ScratchLayout layout;
  const auto row_at = attention.add_rows(layout, 1);
  const auto own_at = attention.add_own(layout);
  queue.scratch().reserve_per_thread(layout.bytes());
  WorkShare share(tokens, queue.team().size());
  queue.run(work, [&](const TeamMember& member) {
    std::byte* scratch = queue.scratch().of_thread(member.index());
    const RowPlace row = attention.place(scratch, row_at, 0);
    const OwnPlace own = TileAttention::own(scratch, own_at);
    Rotation turn;
    share.each([&](int64_t t) {
      attention.pack_queries(t, own);
      attention.score(t, {0, attention.pieces() * kAttentionTile}, row, own);
      for (int64_t h = 0; h < attention.heads(); ++h) attention.weigh(t, h, row);
      attention.fill_turn(t, turn);
      for (int64_t s = 0; s < attention.slices(); ++s) attention.add_values(t, s, turn, row, own);
    });
  });
}

// Threads divide every row's keys, then its heads, then its channels among them.
void share_rows(Queue& queue, const TileAttention& attention, int64_t tokens, int64_t pairs,
                int64_t work) {
  ScratchLayout shared, layout;
  const auto rows_at = attention.add_rows(shared, tokens);
  const auto own_at = attention.add_own(layout);
  std::byte* base = queue.scratch().reserve_shared(shared.bytes());
  queue.scratch().reserve_per_thread(layout.bytes());
  const int threads = queue.team().size();
  const int64_t pieces = attention.pieces(), heads = attention.heads(), slices = attention.slices();
  WorkShare score(tokens * pieces, threads), weigh(tokens * heads, threads),
      values(tokens * slices, threads);
  queue.run(work, [&](const TeamMember& member) {
    const OwnPlace own = TileAttention::own(queue.scratch().of_thread(member.index()), own_at);
    const auto place = [&](int64_t t) { return attention.place(base, rows_at, t); };
    int64_t packed = -1;
    score.each([&](int64_t i) {
      const int64_t t = i / pieces;
      if (t != packed) attention.pack_queries(t, own);
      packed = t;
      attention.score(t, {i % pieces * kAttentionTile, kAttentionTile}, place(t), own);
    });
    member.barrier();
    weigh.each([&](int64_t i) { attention.weigh(i / heads, i % heads, place(i / heads)); });
    member.barrier();
    Rotation turn;
    turn.pairs = pairs;
    int64_t turned = -1;
    values.each([&](int64_t i) {
      const int64_t t = i / slices, slice = i % slices;
      if (attention.rotates(slice) && turned != t) {
        attention.fill_turn(t, turn);
        turned = t;
      }
      attention.add_values(t, slice, turn, place(t), own);
    });
  });
}

}  // namespace

void tile_attention(Queue& queue, const AttentionKernels& kernels,
                    const SparseAttentionArgs& args) {
  const TileAttention attention(queue, kernels, args);
  const int64_t tokens = args.rows.tokens();
  const int64_t work = 2 * tokens * args.q.extent(1) * args.q.extent(2) *
                       std::min<int64_t>(most_keys(args), args.window);
  if (tokens < int64_t{2} * queue.team().size()) {
    share_rows(queue, attention, tokens, args.frequencies.elements(), work);
  } else {
    attend_rows(queue, attention, tokens, work);
  }
}

}  // namespace cachalot::cpu
