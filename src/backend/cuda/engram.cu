#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda/launch.h"
#include "backend/cuda/row_units.h"

namespace cachalot::cuda {
namespace {

struct Hash {
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* first_rows;
  const int32_t* ids;
  const int32_t* image_index;
  const int32_t* token_map;
  const int64_t* multipliers;
  const int64_t* primes;
  const int64_t* offsets;
  int32_t* classes;
  const int32_t* page_table;
  int64_t* table_rows;
  int64_t rows_per_page, pages_per_slot;
  int64_t work;  // tokens * layers * columns
  int layers, columns, heads, largest;
  int32_t pad_class;

  __device__ int32_t class_of_row(int64_t t) const {
    return image_index[t] >= 0 ? kDeadClass : token_map[ids[t]];
  }
  __device__ int32_t* kept_class(int32_t slot, int64_t position) const {
    const int64_t page = page_table[slot * pages_per_slot + position / rows_per_page];
    return classes + page * rows_per_page + position % rows_per_page;
  }
};

// A thread per row of a table. Classes of this step come from the ids, only those of earlier steps
// from the history: so nothing is read that another thread writes.
__global__ void hash_kernel(const Hash args) {
  let_next_start();
  wait_for_inputs();
  const int64_t index = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (index >= args.work) return;
  const int column = index % args.columns, layer = index / args.columns % args.layers;
  const int64_t t = index / args.columns / args.layers;
  const int64_t position = args.positions[t], computed = t - args.first_rows[t];
  const int32_t slot = args.slots[t];
  if (layer == 0 && column == 0) *args.kept_class(slot, position) = args.class_of_row(t);

  const int64_t* multipliers = args.multipliers + layer * args.largest;
  const int size = 2 + column / args.heads;
  int64_t hash = 0;
  bool blocked = false;
  for (int s = 0; s < size; ++s) {
    int32_t found = kDeadClass;
    if (!blocked && position >= s)
      found = s <= computed ? args.class_of_row(t - s) : *args.kept_class(slot, position - s);
    blocked = found == kDeadClass;
    hash ^= (blocked ? args.pad_class : found) * multipliers[s];
  }
  const int64_t entry = int64_t{layer} * args.columns + column;
  args.table_rows[index] = hash % args.primes[entry] + args.offsets[entry];
}

struct Gather {
  const int64_t* table_rows;  // of the first token's layer
  int64_t stride;             // from one token's to the next one's
  const uint8_t* codes;
  const uint8_t* scales;
  bf16* values;
  int64_t work;  // tokens * columns * units of a row
  int columns, width;
};

// 2^(code - 127); 0 is the denormal 2^-127, 255 is NaN.
__device__ float scale_of(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : code == 255 ? 0x7FC00000u : uint32_t{code} << 23;
  return __uint_as_float(bits);
}

// A thread per 16 codes: all rows of all tokens are asked for at once, since each costs a trip to
// the table, which may lie at the end of the bus.
constexpr int kCodes = 16;
__global__ void gather_kernel(const Gather args) {
  let_next_start();
  wait_for_inputs();
  const int64_t index = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (index >= args.work) return;
  const int units = args.width / kCodes, at = index % units * kCodes;
  const int64_t t = index / units / args.columns, column = index / units % args.columns;
  const int64_t row = args.table_rows[t * args.stride + column];
  const uint4 codes = *reinterpret_cast<const uint4*>(args.codes + row * args.width + at);
  const float scale = scale_of(args.scales[row * (args.width / 32) + at / 32]);
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  uint32_t out[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const auto two = static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> (i % 2 * 16));
    const float2 pair = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)));
    out[i] = pack_values(pair.x * scale, pair.y * scale);
  }
  bf16* to = args.values + index * kCodes;
  store_unit(to, 0, {out[0], out[1], out[2], out[3]});
  store_unit(to, 1, {out[4], out[5], out[6], out[7]});
}

struct Mix {
  const bf16* kv;
  const bf16* q_weight;
  const bf16* k_weight;
  const int32_t* image_index;
  bf16* stream;
  int64_t dim;
  int units, copies;
  float norm_eps;
  float dim_scale;  // dim^-0.5
};

// Three sums over the row: the copy's square, the key's square, their weighted product.
__device__ void add_products(const Unit& h, const Unit& key, uint4 q_words, uint4 k_words,
                             float (&sums)[3]) {
  const Unit q = widen(q_words), k = widen(k_words);
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    sums[0] = fmaf(h.value[i], h.value[i], sums[0]);
    sums[1] = fmaf(key.value[i], key.value[i], sums[1]);
    sums[2] = fmaf(h.value[i] * (q.value[i] * k.value[i]), key.value[i], sums[2]);
  }
}

__device__ float gate_of(const float (&sums)[3], const Mix& args) {
  const float dim = static_cast<float>(args.dim);
  const float norm = sqrtf(sums[0] / dim + args.norm_eps) * sqrtf(sums[1] / dim + args.norm_eps);
  const float match = sums[2] / norm * args.dim_scale;
  const float root = copysignf(sqrtf(fmaxf(fabsf(match), 1e-6f)), match);
  return 1.0f / (1.0f + expf(-root));
}

__device__ uint4 mixed(const Unit& h, float gate, uint4 value_words) {
  const Unit value = widen(value_words);
  Unit out;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) out.value[i] = fmaf(gate, value.value[i], h.value[i]);
  return narrow(out);
}

// A block per token and copy, one copy after the other: blocks at work share the copy's weights in
// L1. (With a token's copies side by side its value is read from memory once, but 8192 tokens took
// 1.5 times as long.) A thread keeps the first unit of its own in registers; wider rows are read
// again.
__global__ void __launch_bounds__(1024) mix_kernel(const Mix args) {
  __shared__ float of_warp[3 * 32];
  const int64_t t = blockIdx.x, c = blockIdx.y;
  const bf16* q_weight = args.q_weight + c * args.dim;
  const bf16* k_weight = args.k_weight + c * args.dim;
  const int first = threadIdx.x, threads = blockDim.x;
  const bool any = first < args.units;
  const uint4 zero{};
  const uint4 q = any ? load_unit(q_weight, first) : zero;
  const uint4 k = any ? load_unit(k_weight, first) : zero;
  let_next_start();
  wait_for_inputs();
  bf16* stream = args.stream + (t * args.copies + c) * args.dim;
  const bf16* keys = args.kv + t * (args.copies + 1) * args.dim + c * args.dim;
  const bf16* values = args.kv + (t + 1) * (args.copies + 1) * args.dim - args.dim;
  const Unit h = widen(any ? load_unit(stream, first) : zero);
  const Unit key = widen(any ? load_unit(keys, first) : zero);
  const uint4 value = any ? load_unit(values, first) : zero;
  const bool text = args.image_index[t] < 0;

  float sums[3] = {};
  add_products(h, key, q, k, sums);
  for (int i = first + threads; i < args.units; i += threads)
    add_products(widen(load_unit(stream, i)), widen(load_unit(keys, i)), load_unit(q_weight, i),
                 load_unit(k_weight, i), sums);
  block_sums(sums, of_warp);
  const float gate = text ? gate_of(sums, args) : 0.0f;
  if (any) store_unit(stream, first, mixed(h, gate, value));
  for (int i = first + threads; i < args.units; i += threads)
    store_unit(stream, i, mixed(widen(load_unit(stream, i)), gate, load_unit(values, i)));
}

unsigned blocks_of_256(int64_t work) { return static_cast<unsigned>((work + 255) / 256); }

}  // namespace

void engram_hash(Queue& queue, const EngramHashArgs& args) {
  check_shapes(args);
  const int64_t layers = args.primes.extent(0), columns = args.primes.extent(1);
  const int64_t largest = args.multipliers.extent(1);
  const int64_t work = args.rows.tokens() * layers * columns;
  launch(queue, "engram_hash", hash_kernel, {.blocks = blocks_of_256(work), .threads = 256},
         Hash{.positions = args.rows.positions.data,
              .slots = args.rows.slots.data,
              .first_rows = args.rows.first_rows.data,
              .ids = args.ids.data,
              .image_index = args.image_index.data,
              .token_map = args.token_map.data,
              .multipliers = args.multipliers.data,
              .primes = args.primes.data,
              .offsets = args.offsets.data,
              .classes = args.classes.rows.data,
              .page_table = args.classes.table.data,
              .table_rows = args.table_rows.data,
              .rows_per_page = args.classes.rows.extent(1),
              .pages_per_slot = args.classes.table.extent(1),
              .work = work,
              .layers = static_cast<int>(layers),
              .columns = static_cast<int>(columns),
              .heads = static_cast<int>(columns / (largest - 1)),
              .largest = static_cast<int>(largest),
              .pad_class = args.pad_class});
}

void engram_gather(Queue& queue, const EngramGatherArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.table_rows.extent(0), columns = args.table_rows.extent(2);
  const int64_t width = args.codes.extent(1), work = tokens * columns * (width / kCodes);
  launch(queue, "engram_gather", gather_kernel, {.blocks = blocks_of_256(work), .threads = 256},
         Gather{.table_rows = args.table_rows.data + args.layer * columns,
                .stride = args.table_rows.extent(1) * columns,
                .codes = args.codes.data,
                .scales = args.scales.data,
                .values = args.values.data,
                .work = work,
                .columns = static_cast<int>(columns),
                .width = static_cast<int>(width)});
}

void engram_mix(Queue& queue, const EngramMixArgs& args) {
  check_shapes(args);
  const int64_t tokens = args.stream.extent(0), copies = args.stream.extent(1);
  const int64_t dim = args.stream.extent(2), units = dim / kUnit;
  CACHALOT_CHECK(dim % kUnit == 0, "engram_mix: rows of {}", dim);
  const int64_t threads = std::min<int64_t>((units + 31) / 32 * 32, 1024);
  launch(queue, "engram_mix", mix_kernel,
         {.blocks = {static_cast<unsigned>(tokens), static_cast<unsigned>(copies)},
          .threads = static_cast<unsigned>(threads)},
         Mix{.kv = args.kv.data,
             .q_weight = args.q_weight.data,
             .k_weight = args.k_weight.data,
             .image_index = args.image_index.data,
             .stream = args.stream.data,
             .dim = dim,
             .units = static_cast<int>(units),
             .copies = static_cast<int>(copies),
             .norm_eps = args.norm_eps,
             .dim_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)))});
}

}  // namespace cachalot::cuda
