// sparse_attention (contract: ops/attention.h; docs/kernels/sparse_attention.md): with many rows a
// task is a row and some of its heads, with few all threads work on every row. Instruction sets
// with matrix registers go by tile_attention.cpp.
#include "backend/cpu/attended_keys.h"
#include "backend/cpu/kernels/attention_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/tile_attention.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

// Keys decoded at a time: 64 of 2 KB stay in a core's second-level cache with the heads' operands.
constexpr int64_t kKeyTile = 64;
// Keys whose scores are computed at a time: with four heads they stay in the first-level cache.
constexpr int64_t kScoreTile = 12;
// Most heads that share a decoded tile.
constexpr int64_t kMostHeads = 32;
// Channels of the values a thread computes for all heads where few rows are shared: a block of the
// packed rows.
constexpr int64_t kChannels = 32;

// Distance between decoded keys, a little more than a power of two: such rows would share a few
// sets of the first-level cache.
int64_t key_stride(int64_t channels) { return channels + 16; }

// The channels of the keys, one row of floats a key.
void decode_tile(const RowKernels& rows, const Keys& keys, Range which, int64_t head_dim,
                 Range channels, float* tile) {
  const int64_t stride = key_stride(channels.count);
  for (int64_t k = which.first; k < which.first + which.count; ++k, tile += stride) {
    const auto unpack = k < keys.window ? rows.unpack_window : rows.unpack_latent;
    unpack(keys.rows[k], head_dim, channels.first, channels.count, tile);
  }
}

// scores[h * stride + k] = q[h] . tile[k].
void score_tile(const RowKernels& rows, const float* q, int64_t heads, const float* tile,
                int64_t keys, int64_t head_dim, float* scores, int64_t stride) {
  for (int64_t k = 0; k < keys; k += kScoreTile) {
    rows.dots_f32(q, head_dim, heads, tile + k * key_stride(head_dim), key_stride(head_dim),
                  std::min(kScoreTile, keys - k), head_dim, scores + k, stride);
  }
}

// Divides some channels of a head's sums and rotates those that are.
void finish_channels(const RowKernels& rows, const float* sums, float divisor, Range channels,
                     int64_t head_dim, const Rotation& turn, bf16* o) {
  rows.divide(sums, channels.count, divisor, o + channels.first);
  rotate_channels(rows, channels, head_dim, turn, o);
}

// ------------------------------------------------------------------------------ a task: some heads

struct HeadsScratch {
  HeadsScratch(int64_t heads, int64_t head_dim, int64_t most)
      : keys(layout.add(most, sizeof(const uint8_t*))),
        q(layout.add(heads * head_dim, sizeof(float))),
        tile(layout.add(kKeyTile * key_stride(head_dim), sizeof(float))),
        scores(layout.add(heads * score_stride(most), sizeof(float))),
        sums(layout.add(heads, sizeof(float))),
        o(layout.add(heads * head_dim, sizeof(float))) {}

  ScratchLayout layout;
  size_t keys, q, tile, scores, sums, o;
};

// Some heads of row t.
void attend(const RowKernels& rows, const SparseAttentionArgs& args, int64_t t, Range heads,
            const HeadsScratch& place, std::byte* scratch) {
  const int64_t head_dim = args.q.extent(2), stride = score_stride(most_keys(args));
  const Keys keys = keys_of(args, t, reinterpret_cast<const uint8_t**>(scratch + place.keys));
  find_keys(args, t, {0, keys.count}, keys);
  float* q = reinterpret_cast<float*>(scratch + place.q);
  float* tile = reinterpret_cast<float*>(scratch + place.tile);
  float* scores = reinterpret_cast<float*>(scratch + place.scores);
  float* sums = reinterpret_cast<float*>(scratch + place.sums);
  float* o = reinterpret_cast<float*>(scratch + place.o);
  const Range channels{0, head_dim};
  rows.widen(args.q.row(t) + heads.first * head_dim, heads.count * head_dim, q);
  for (int64_t at = 0; at < keys.count; at += kKeyTile) {
    const int64_t count = std::min(kKeyTile, keys.count - at);
    decode_tile(rows, keys, {at, count}, head_dim, channels, tile);
    score_tile(rows, q, heads.count, tile, count, head_dim, scores + at, stride);
  }
  for (int64_t h = 0; h < heads.count; ++h) {
    sums[h] =
        rows.softmax(scores + h * stride, keys.count, args.scale, args.sink.data[heads.first + h]);
  }
  std::fill_n(o, heads.count * head_dim, 0.0f);
  for (int64_t at = 0; at < keys.count; at += kKeyTile) {
    const int64_t count = std::min(kKeyTile, keys.count - at);
    // A single tile is still decoded.
    if (keys.count > kKeyTile) {
      decode_tile(rows, keys, {at, count}, head_dim, channels, tile);
    }
    rows.add_values(scores + at, stride, heads.count, tile, key_stride(head_dim), count, head_dim,
                    o, head_dim);
  }
  Rotation turn;
  fill_rotation(args.frequencies, args.rows.positions.data[t], true, turn);
  for (int64_t h = 0; h < heads.count; ++h) {
    finish_channels(rows, o + h * head_dim, sums[h], channels, head_dim, turn,
                    args.o.row(t) + (heads.first + h) * head_dim);
  }
}

// ---------------------------------------------------------------------------- few rows, all
// threads

// Threads divide a row's keys among them for the scores, its heads for the softmax, its channels
// for the values, so that a key is decoded twice however many threads there are. Every thread
// widens the queries for itself: that takes as long as to fetch what others have written. Every
// element is the same sum in the same order as where a task takes some heads.
class SharedRows {
 public:
  SharedRows(Queue& queue, const SparseAttentionArgs& args)
      : rows_(queue.rows()),
        scratch_(queue.scratch()),
        args_(args),
        tokens_(args.rows.tokens()),
        heads_(args.q.extent(1)),
        head_dim_(args.q.extent(2)),
        most_keys_(most_keys(args)),
        stride_(score_stride(most_keys_)),
        pieces_(divide_up(most_keys_, kScoreTile)),
        slices_(divide_up(head_dim_, kChannels)),
        score_(tokens_ * pieces_, queue.team().size()),
        softmax_(tokens_ * heads_, queue.team().size()),
        values_(tokens_ * slices_, queue.team().size()) {
    ScratchLayout shared, own;
    const size_t key_rows = shared.add(tokens_ * most_keys_, sizeof(const uint8_t*));
    const size_t scores = shared.add(tokens_ * heads_ * stride_, sizeof(float));
    const size_t sums = shared.add(tokens_ * heads_, sizeof(float));
    std::byte* base = scratch_.reserve_shared(shared.bytes());
    key_rows_ = reinterpret_cast<const uint8_t**>(base + key_rows);
    scores_ = reinterpret_cast<float*>(base + scores);
    sums_ = reinterpret_cast<float*>(base + sums);
    own.add(std::max(kScoreTile * key_stride(head_dim_), kKeyTile * key_stride(kChannels)),
            sizeof(float));
    queries_ = own.add(heads_ * head_dim_, sizeof(float));
    slice_sums_ = own.add(heads_ * kChannels, sizeof(float));
    scratch_.reserve_per_thread(own.bytes());
  }

  void run(const TeamMember& member) {
    std::byte* own = scratch_.of_thread(member.index());
    float* tile = reinterpret_cast<float*>(own);
    float* q = reinterpret_cast<float*>(own + queries_);
    int64_t widened = -1;
    score_.each([&](int64_t i) {
      const int64_t t = i / pieces_;
      if (t != widened) rows_.widen(args_.q.row(t), heads_ * head_dim_, q);
      widened = t;
      score(t, i % pieces_ * kScoreTile, q, tile);
    });
    member.barrier();
    softmax_.each([&](int64_t i) {
      sums_[i] = rows_.softmax(scores_ + i * stride_, keys_at(i / heads_).count, args_.scale,
                               args_.sink.data[i % heads_]);
    });
    member.barrier();
    values_.each([&](int64_t i) {
      add_values(i / slices_, i % slices_ * kChannels, tile,
                 reinterpret_cast<float*>(own + slice_sums_));
    });
  }

 private:
  Keys keys_at(int64_t t) const { return keys_of(args_, t, key_rows_ + t * most_keys_); }

  void score(int64_t t, int64_t first, const float* q, float* tile) {
    const Keys keys = keys_at(t);
    const int64_t count = std::min(kScoreTile, keys.count - first);
    if (count <= 0) return;
    find_keys(args_, t, {first, count}, keys);
    decode_tile(rows_, keys, {first, count}, head_dim_, {0, head_dim_}, tile);
    score_tile(rows_, q, heads_, tile, count, head_dim_, scores_ + t * heads_ * stride_ + first,
               stride_);
  }

  void add_values(int64_t t, int64_t channel, float* tile, float* sums) {
    const Range channels{channel, std::min(kChannels, head_dim_ - channel)};
    const Keys keys = keys_at(t);
    std::fill_n(sums, heads_ * channels.count, 0.0f);
    for (int64_t at = 0; at < keys.count; at += kKeyTile) {
      const int64_t count = std::min(kKeyTile, keys.count - at);
      decode_tile(rows_, keys, {at, count}, head_dim_, channels, tile);
      rows_.add_values(scores_ + t * heads_ * stride_ + at, stride_, heads_, tile,
                       key_stride(channels.count), count, channels.count, sums, channels.count);
    }
    Rotation turn;
    turn.pairs = args_.frequencies.elements();
    if (channels.first + channels.count > head_dim_ - 2 * turn.pairs) {
      fill_rotation(args_.frequencies, args_.rows.positions.data[t], true, turn);
    }
    for (int64_t h = 0; h < heads_; ++h) {
      finish_channels(rows_, sums + h * channels.count, sums_[t * heads_ + h], channels, head_dim_,
                      turn, args_.o.row(t) + h * head_dim_);
    }
  }

  const RowKernels& rows_;
  Scratch& scratch_;
  const SparseAttentionArgs& args_;
  const int64_t tokens_, heads_, head_dim_, most_keys_, stride_, pieces_, slices_;
  const uint8_t** key_rows_;  // [tokens, most_keys]
  float* scores_;             // [tokens, heads, stride]
  float* sums_;               // [tokens, heads]
  size_t queries_;            // in a thread's scratch: [heads, head_dim]
  size_t slice_sums_;         // behind them: [heads, kChannels]
  WorkShare score_, softmax_, values_;
};

}  // namespace

void sparse_attention(Queue& queue, const SparseAttentionArgs& args) {
  check_shapes(args);
  if (const AttentionKernels* kernels = attention_kernels_for(queue.isa())) {
    tile_attention(queue, *kernels, args);
    return;
  }
  const int64_t tokens = args.rows.tokens(), heads = args.q.extent(1), head_dim = args.q.extent(2);
  const int threads = queue.team().size();
  const int64_t groups = divide_up(heads, kMostHeads), tasks = tokens * groups;
  const int64_t work =
      2 * tokens * heads * head_dim * std::min<int64_t>(most_keys(args), args.window);
  if (tasks < int64_t{4} * threads) {
    SharedRows shared(queue, args);
    queue.run(work, [&](const TeamMember& member) { shared.run(member); });
    return;
  }
  const int64_t group = divide_up(heads, groups);
  const HeadsScratch place(group, head_dim, most_keys(args));
  queue.scratch().reserve_per_thread(place.layout.bytes());
  WorkShare share(tasks, threads);
  queue.run(work, [&](const TeamMember& member) {
    std::byte* scratch = queue.scratch().of_thread(member.index());
    share.each([&](int64_t task) {
      const int64_t first = task % groups * group;
      attend(queue.rows(), args, task / groups, {first, std::min(group, heads - first)}, place,
             scratch);
    });
  });
}

}  // namespace cachalot::cpu
