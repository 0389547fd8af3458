// docs/kernels/sparse_attention.md
#include <algorithm>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/rotary.h"
#include "backend/cpu/row_tasks.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {

void prepare_query(Queue& queue, const PrepareQueryArgs& args) {
  check_shapes(args);
  const RowKernels& rows = queue.rows();
  const int64_t tokens = args.rows.tokens(), head_dim = args.kv.extent(1);
  const int64_t heads = args.q.present() ? args.q.extent(1) : 0;
  queue.scratch().reserve_per_thread(static_cast<size_t>(head_dim) * sizeof(bf16));
  WorkShare tasks(tokens, queue.team().size());
  queue.run(
      tokens * (heads * args.frequencies.elements() + 4 * head_dim), [&](const TeamMember& member) {
        bf16* kv = reinterpret_cast<bf16*>(queue.scratch().of_thread(member.index()));
        Rotation turn;
        tasks.each([&](int64_t t) {
          fill_rotation(args.frequencies, args.rows.positions.data[t], false, turn);
          for (int64_t h = 0; h < heads; ++h) {
            rows.rotate(args.q.row(t) + h * head_dim, head_dim, turn.cosine, turn.sine, turn.pairs);
          }
          std::copy_n(args.kv.row(t), head_dim, kv);
          rows.rotate(kv, head_dim, turn.cosine, turn.sine, turn.pairs);
          rows.pack_window(kv, head_dim, args.window_rows.row(t));
        });
      });
}

namespace {

// Keys decoded at a time: 64 of 2 KB stay in a core's second-level cache with the heads' operands.
constexpr int64_t kKeyTile = 64;
// Most heads that share a decoded tile.
constexpr int64_t kMostHeads = 32;

// What one thread needs for one group of heads.
struct AttentionScratch {
  AttentionScratch(int64_t heads, int64_t head_dim, int64_t most_keys)
      : key_stride(head_dim + 16),  // rows of 2 KB would share two sets of the first-level cache
        score_stride(divide_up(most_keys, 16) * 16 + 16),
        keys(layout.add(most_keys, sizeof(const uint8_t*))),
        q(layout.add(heads * head_dim, sizeof(float))),
        tile(layout.add(kKeyTile * key_stride, sizeof(float))),
        scores(layout.add(heads * score_stride, sizeof(float))),
        sums(layout.add(heads, sizeof(float))),
        o(layout.add(heads * head_dim, sizeof(float))) {}

  ScratchLayout layout;
  int64_t key_stride, score_stride;
  size_t keys, q, tile, scores, sums, o;
};

struct Keys {
  const uint8_t** rows;
  int64_t window = 0;  // the first ones are window rows, the others latents
  int64_t count = 0;
};

// The packed rows that row t attends to, in order.
void collect_keys(const SparseAttentionArgs& args, int64_t t, Keys& keys) {
  const int64_t position = args.rows.positions.data[t], start = args.rows.start_of(t);
  const int64_t first_row = args.rows.first_rows.data[t], ring_rows = args.ring.extent(1);
  const int32_t slot = args.rows.slots.data[t];
  const int64_t end = args.block > 0 ? start + args.block : position + 1;
  const int64_t reach = args.block > 0 ? start - args.window : end - args.window;
  const int64_t held = args.window_starts.present() ? args.window_starts.data[t] : 0;
  keys.count = 0;
  for (int64_t p = std::max({int64_t{0}, reach, held}); p < end; ++p) {
    keys.rows[keys.count++] = p >= start
                                  ? args.window_rows.row(first_row + p - start)
                                  : args.ring.row(slot) + p % ring_rows * args.ring.extent(2);
  }
  keys.window = keys.count;
  if (args.chosen.absent()) return;
  const int32_t* chosen = args.chosen.row(t);
  for (int64_t i = 0; i < args.chosen.extent(1) && chosen[i] >= 0; ++i) {
    keys.rows[keys.count++] = args.latents.row(slot, chosen[i]);
  }
}

void decode_tile(const RowKernels& rows, const Keys& keys, int64_t first, int64_t count,
                 int64_t head_dim, float* tile, int64_t stride) {
  for (int64_t k = 0; k < count; ++k) {
    if (first + k < keys.window) {
      rows.unpack_window(keys.rows[first + k], head_dim, tile + k * stride);
    } else {
      rows.unpack_latent(keys.rows[first + k], head_dim, tile + k * stride);
    }
  }
}

// Heads first_head .. first_head + heads - 1 of row t.
void attend(const RowKernels& rows, const SparseAttentionArgs& args, int64_t t, int64_t first_head,
            int64_t heads, const AttentionScratch& place, std::byte* scratch) {
  const int64_t head_dim = args.q.extent(2);
  Keys keys{reinterpret_cast<const uint8_t**>(scratch + place.keys)};
  collect_keys(args, t, keys);
  float* q = reinterpret_cast<float*>(scratch + place.q);
  float* tile = reinterpret_cast<float*>(scratch + place.tile);
  float* scores = reinterpret_cast<float*>(scratch + place.scores);
  float* sums = reinterpret_cast<float*>(scratch + place.sums);
  float* o = reinterpret_cast<float*>(scratch + place.o);
  rows.widen(args.q.row(t) + first_head * head_dim, heads * head_dim, q);
  for (int64_t at = 0; at < keys.count; at += kKeyTile) {
    const int64_t count = std::min(kKeyTile, keys.count - at);
    decode_tile(rows, keys, at, count, head_dim, tile, place.key_stride);
    rows.dots_f32(q, head_dim, heads, tile, place.key_stride, count, head_dim, scores + at,
                  place.score_stride);
  }
  for (int64_t h = 0; h < heads; ++h) {
    sums[h] = rows.softmax(scores + h * place.score_stride, keys.count, args.scale,
                           args.sink.data[first_head + h]);
  }
  std::fill_n(o, heads * head_dim, 0.0f);
  for (int64_t at = 0; at < keys.count; at += kKeyTile) {
    const int64_t count = std::min(kKeyTile, keys.count - at);
    // A single tile is still decoded.
    if (keys.count > kKeyTile) decode_tile(rows, keys, at, count, head_dim, tile, place.key_stride);
    rows.add_values(scores + at, place.score_stride, heads, tile, place.key_stride, count, head_dim,
                    o, head_dim);
  }
  Rotation turn;
  fill_rotation(args.frequencies, args.rows.positions.data[t], true, turn);
  for (int64_t h = 0; h < heads; ++h) {
    bf16* out = args.o.row(t) + (first_head + h) * head_dim;
    rows.divide(o + h * head_dim, head_dim, sums[h], out);
    rows.rotate(out, head_dim, turn.cosine, turn.sine, turn.pairs);
  }
}

}  // namespace

void sparse_attention(Queue& queue, const SparseAttentionArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.rows.tokens(), heads = args.q.extent(1), head_dim = args.q.extent(2);
  const int64_t most_keys =
      args.window + args.block + (args.chosen.present() ? args.chosen.extent(1) : 0);
  // Few rows: smaller groups, so that there are at least two tasks a thread. Every head is computed
  // alone, so the grouping does not show in the result.
  const int64_t wanted = divide_up(tokens * heads, 2 * queue.team().size());
  const int64_t group = std::min({heads, kMostHeads, divide_up(wanted, 4) * 4});
  const int64_t groups = divide_up(heads, group);
  const AttentionScratch place(group, head_dim, most_keys);
  queue.scratch().reserve_per_thread(place.layout.bytes());
  WorkShare tasks(tokens * groups, queue.team().size());
  queue.run(2 * tokens * heads * head_dim * std::min<int64_t>(most_keys, args.window),
            [&](const TeamMember& member) {
              std::byte* scratch = queue.scratch().of_thread(member.index());
              tasks.each([&](int64_t task) {
                const int64_t first_head = task % groups * group;
                attend(queue.rows(), args, task / groups, first_head,
                       std::min(group, heads - first_head), place, scratch);
              });
            });
}

void write_window(Queue& queue, const WriteWindowArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.rows.tokens(), ring_rows = args.ring.extent(1);
  const int64_t row_bytes = args.ring.extent(2);
  const int32_t* first_rows = args.rows.first_rows.data;
  WorkShare tasks(tokens, queue.team().size());
  queue.run(tokens * row_bytes / 8, [&](const TeamMember&) {
    tasks.each([&](int64_t t) {
      // A later row of the same sequence takes the same place.
      if (t + ring_rows < tokens && first_rows[t + ring_rows] == first_rows[t]) return;
      std::copy_n(args.window_rows.row(t), row_bytes,
                  args.ring.row(args.rows.slots.data[t]) +
                      args.rows.positions.data[t] % ring_rows * row_bytes);
    });
  });
}

}  // namespace cachalot::cpu
