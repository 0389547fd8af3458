#include <algorithm>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/rotary.h"
#include "backend/cpu/row_tasks.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

constexpr int64_t kMostRatio = 64;

bool ends_group(const StepRows& rows, int64_t t, int64_t ratio) {
  return (rows.positions.data[t] + int64_t{1}) % ratio == 0;
}

// kv and gate of the group that row t ends, by position: this step's rows or the kept ones.
void collect_group(const CompressKvArgs& args, int64_t t, const float** kv, const float** gate) {
  const int64_t head_dim = args.kv.extent(1), start = args.rows.start_of(t);
  const int64_t first = args.rows.positions.data[t] - args.ratio + 1;
  for (int64_t g = 0; g < args.ratio; ++g) {
    const int64_t position = first + g;
    if (position >= start) {
      const int64_t row = args.rows.first_rows.data[t] + position - start;
      kv[g] = args.kv.row(row);
      gate[g] = args.gate.row(row);
    } else {
      kv[g] = args.open_rows.row(args.rows.slots.data[t]) +
              position % args.open_rows.extent(1) * 2 * head_dim;
      gate[g] = kv[g] + head_dim;
    }
  }
}

void compress_group(const RowKernels& rows, const CompressKvArgs& args, int64_t t, bf16* rotated) {
  const int64_t head_dim = args.kv.extent(1), entry = args.rows.positions.data[t] / args.ratio;
  bf16* latent = args.latent.row(t);
  if (args.ratio == 1) {
    rows.divide(args.kv.row(t), head_dim, 1.0f, latent);
  } else {
    const float* kv[kMostRatio];
    const float* gate[kMostRatio];
    collect_group(args, t, kv, gate);
    rows.pool(kv, gate, args.ratio, head_dim, latent);
  }
  rows.rms_norm(latent, head_dim, args.norm.data, args.norm_eps);
  Rotation turn;
  fill_rotation(args.frequencies, entry * args.ratio, false, turn);
  std::copy_n(latent, head_dim, rotated);
  rows.rotate(rotated, head_dim, turn.cosine, turn.sine, turn.pairs);
  rows.pack_latent(rotated, head_dim, args.latents.row(args.rows.slots.data[t], entry));
}

void keep_open_row(const CompressKvArgs& args, int64_t t) {
  const int64_t head_dim = args.kv.extent(1), open = args.open_rows.extent(1);
  const int64_t tokens = args.rows.tokens();
  const int32_t* first_rows = args.rows.first_rows.data;
  // A later row of the same sequence takes the same place.
  if (t + open < tokens && first_rows[t + open] == first_rows[t]) return;
  float* to = args.open_rows.row(args.rows.slots.data[t]) +
              args.rows.positions.data[t] % open * 2 * head_dim;
  std::copy_n(args.kv.row(t), head_dim, to);
  std::copy_n(args.gate.row(t), head_dim, to + head_dim);
}

}  // namespace

void compress_kv(Queue& queue, const CompressKvArgs& args) {
  check_shapes(args);
  CACHALOT_CHECK(args.ratio <= kMostRatio, "compress_kv: ratio {}", args.ratio);
  const int64_t tokens = args.rows.tokens(), head_dim = args.kv.extent(1);
  queue.scratch().reserve_per_thread(static_cast<size_t>(head_dim) * sizeof(bf16));
  WorkShare group_tasks(tokens, queue.team().size());
  WorkShare keep_tasks(args.ratio == 1 ? 0 : tokens, queue.team().size());
  queue.run(tokens * head_dim * 16, [&](const TeamMember& member) {
    bf16* rotated = reinterpret_cast<bf16*>(queue.scratch().of_thread(member.index()));
    group_tasks.each([&](int64_t t) {
      if (ends_group(args.rows, t, args.ratio)) compress_group(queue.rows(), args, t, rotated);
    });
    member.barrier();  // every kept row is read before any is replaced
    keep_tasks.each([&](int64_t t) { keep_open_row(args, t); });
  });
}

namespace {

// Output rows of wk in one task; a fixed cut, every output is one dot product.
constexpr int64_t kKeyOutputs = 32;
constexpr int64_t kKeyRows = 16;

// Rows of the step that end a group, one after another, so that tiles of them are dense.
int64_t collect_ends(const IndexKeysArgs& args, int32_t* ends) {
  int64_t count = 0;
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    if (ends_group(args.rows, t, args.ratio)) ends[count++] = static_cast<int32_t>(t);
  }
  return count;
}

void store_key(const RowKernels& rows, const IndexKeysArgs& args, int64_t t, const float* product,
               bf16* key) {
  const int64_t width = args.weight.extent(0), entry = args.rows.positions.data[t] / args.ratio;
  rows.divide(product, width, 1.0f, key);
  rows.rms_norm(key, width, args.norm.data, args.norm_eps);
  Rotation turn;
  fill_rotation(args.frequencies, entry * args.ratio, false, turn);
  rows.rotate(key, width, turn.cosine, turn.sine, turn.pairs);
  rows.pack_index_key(key, width, args.keys.row(args.rows.slots.data[t], entry));
}

}  // namespace

void index_keys(Queue& queue, const IndexKeysArgs& args) {
  check_shapes(args);
  const RowKernels& rows = queue.rows();
  const int64_t tokens = args.rows.tokens();
  const int64_t width = args.weight.extent(0), head_dim = args.weight.extent(1);
  ScratchLayout layout;
  const size_t ends_at = layout.add(tokens, sizeof(int32_t));
  const size_t products_at = layout.add(tokens * width, sizeof(float));
  std::byte* shared = queue.scratch().reserve_shared(layout.bytes());
  queue.scratch().reserve_per_thread(static_cast<size_t>(kKeyRows * head_dim + width) *
                                     sizeof(bf16));
  int32_t* ends = reinterpret_cast<int32_t*>(shared + ends_at);
  float* products = reinterpret_cast<float*>(shared + products_at);
  const int64_t count = collect_ends(args, ends);
  const int64_t blocks = divide_up(width, kKeyOutputs);

  WorkShare product_tasks(divide_up(count, kKeyRows) * blocks, queue.team().size());
  WorkShare store_tasks(count, queue.team().size());
  queue.run(count * width * head_dim, [&](const TeamMember& member) {
    bf16* latents = reinterpret_cast<bf16*>(queue.scratch().of_thread(member.index()));
    product_tasks.each([&](int64_t task) {
      const int64_t first = task / blocks * kKeyRows, at = task % blocks * kKeyOutputs;
      const int64_t tile = std::min(kKeyRows, count - first);
      for (int64_t i = 0; i < tile; ++i) {
        std::copy_n(args.latent.row(ends[first + i]), head_dim, latents + i * head_dim);
      }
      rows.dots(latents, head_dim, tile, args.weight.row(at), head_dim,
                std::min(kKeyOutputs, width - at), head_dim, products + first * width + at, width);
    });
    member.barrier();
    store_tasks.each([&](int64_t i) {
      store_key(rows, args, ends[i], products + i * width, latents + kKeyRows * head_dim);
    });
  });
}

}  // namespace cachalot::cpu
