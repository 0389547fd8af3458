// moe_experts for any shape: one warp per sum, everything between in FP32. What small models and
// int8 inputs take.
#include <algorithm>

#include "backend/cuda/experts_formats.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/moe_experts_parts.h"

namespace cachalot::cuda {
namespace {

constexpr int kWarps = 8;

// x / (1 + e^-x)
__device__ float silu(float x) { return x * __fdiv_rn(1.0f, 1.0f + expf(-x)); }

__device__ void round_to_fp8(float (&group)[kScaleBlock], float largest) {
  const Fp8Group fp8(largest);
#pragma unroll
  for (int i = 0; i < kScaleBlock; i += 2) {
    const float2 rounded = fp8.rounded(group[i], group[i + 1]);
    group[i] = rounded.x;
    group[i + 1] = rounded.y;
  }
}

__device__ void round_to_int8(float (&group)[kScaleBlock], float largest) {
  const float scale = __fdiv_rn(largest, 127.0f);
#pragma unroll
  for (int i = 0; i < kScaleBlock; ++i) {
    group[i] = scale > 0 ? rintf(__fdiv_rn(group[i], scale)) * scale : 0;
  }
}

__device__ float value_of(bf16 value) { return float_of(value); }
__device__ float value_of(float value) { return value; }

// A thread per group of 32. Row r of `slots_per_token` holds the shared expert's input last, and
// that is always rounded to FP8.
template <class T>
__global__ void round_inputs(const T* in, float* out, int64_t groups, int64_t row_groups,
                             int rows_per_token, bool int8) {
  wait_for_inputs();
  const int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (at >= groups) return;
  float group[kScaleBlock];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kScaleBlock; ++i) {
    group[i] = value_of(in[at * kScaleBlock + i]);
    largest = fmaxf(largest, fabsf(group[i]));
  }
  const bool shared = (at / row_groups) % rows_per_token == rows_per_token - 1;
  if (int8 && !shared) {
    round_to_int8(group, largest);
  } else {
    round_to_fp8(group, largest);
  }
#pragma unroll
  for (int i = 0; i < kScaleBlock; ++i) out[at * kScaleBlock + i] = group[i];
}

struct Fp4Row {
  const uint8_t* codes;
  const uint8_t* scales;

  __device__ Fp4Row(const uint8_t* all_codes, const void* all_scales, int64_t row, int64_t columns)
      : codes(all_codes + row * (columns / 2)),
        scales(static_cast<const uint8_t*>(all_scales) + row * (columns / kScaleBlock)) {}
  __device__ float operator[](int64_t column) const {
    const uint32_t code = codes[column / 2] >> (column % 2 * 4);
    // Placed as a float's exponent and mantissa the code is the value times 2^-126.
    const float value = __uint_as_float((code & 8) << 28 | (code & 7) << 22) * 0x1p126f;
    const uint32_t scale = scales[column / kScaleBlock];
    return value * __uint_as_float(scale == 0 ? 0x00400000u : scale << 23);
  }
};

struct Fp8Row {
  const uint8_t* codes;
  const float* scales;

  __device__ Fp8Row(const uint8_t* all_codes, const void* all_scales, int64_t row, int64_t columns)
      : codes(all_codes + row * columns),
        scales(static_cast<const float*>(all_scales) +
               row / kScaleBlock * (columns / kScaleBlock)) {}
  __device__ float operator[](int64_t column) const {
    const uint32_t code = codes[column];
    const float value = __uint_as_float((code & 0x80) << 24 | (code & 0x7F) << 20) * 0x1p120f;
    return value * scales[column / kScaleBlock];
  }
};

// The same in all lanes.
template <class Row>
__device__ float dot(const Row& row, const float* x, int64_t columns) {
  float sum = 0;
  for (int64_t i = threadIdx.x % 32; i < columns; i += 32) sum += row[i] * x[i];
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  return sum;
}

struct Plain {
  const ExpertPointers* experts;
  ExpertPointers shared;
  const int32_t* ids;
  const float* weights;
  int64_t dim, width;
  int choices;  // of a token; its slots are these and the shared expert
  float limit;
  const bf16* outputs_elsewhere;  // [tokens, choices, dim], nullptr: none
  const float* x_routed;          // [tokens, dim] rounded
  const float* x_shared;
  float* hidden;  // [tokens, choices + 1, width]
  float* parts;   // [tokens, choices + 1, dim]
  bf16* y;
};

template <class Row>
__device__ float hidden_value(const Plain& plain, const ExpertPointers& expert, int64_t row,
                              const float* x, float weight) {
  const float gate = dot(Row(expert.w1, expert.w1_scales, row, plain.dim), x, plain.dim);
  const float up = dot(Row(expert.w3, expert.w3_scales, row, plain.dim), x, plain.dim);
  float g = rounded_to_bf16(gate), u = rounded_to_bf16(up);
  if (plain.limit > 0) {
    g = fminf(g, plain.limit);
    u = fminf(fmaxf(u, -plain.limit), plain.limit);
  }
  return rounded_to_bf16(weight * (silu(g) * u));
}

// Blocks (slots, rows / kWarps); a warp per slot and row.
__global__ void hidden_rows(Plain plain) {
  wait_for_inputs();
  const int64_t slot = blockIdx.x, row = blockIdx.y * kWarps + threadIdx.x / 32;
  if (row >= plain.width) return;
  const int64_t token = slot / (plain.choices + 1), choice = slot % (plain.choices + 1);
  float value;
  if (choice < plain.choices) {
    const int64_t at = token * plain.choices + choice;
    const ExpertPointers& expert = plain.experts[plain.ids[at]];
    // Zero, for they are rounded in groups.
    value = is_elsewhere(expert)
                ? 0
                : hidden_value<Fp4Row>(plain, expert, row, plain.x_routed + token * plain.dim,
                                       plain.weights[at]);
  } else {
    value =
        hidden_value<Fp8Row>(plain, plain.shared, row, plain.x_shared + token * plain.dim, 1.0f);
  }
  if (threadIdx.x % 32 == 0) plain.hidden[slot * plain.width + row] = value;
}

__global__ void down_rows(Plain plain) {
  wait_for_inputs();
  const int64_t slot = blockIdx.x, row = blockIdx.y * kWarps + threadIdx.x / 32;
  if (row >= plain.dim) return;
  const int64_t token = slot / (plain.choices + 1), choice = slot % (plain.choices + 1);
  const float* hidden = plain.hidden + slot * plain.width;
  float sum;
  if (choice < plain.choices) {
    const int64_t at = token * plain.choices + choice;
    const ExpertPointers& expert = plain.experts[plain.ids[at]];
    if (is_elsewhere(expert)) return;
    sum = dot(Fp4Row(expert.w2, expert.w2_scales, row, plain.width), hidden, plain.width);
  } else {
    sum =
        dot(Fp8Row(plain.shared.w2, plain.shared.w2_scales, row, plain.width), hidden, plain.width);
  }
  if (threadIdx.x % 32 == 0) plain.parts[slot * plain.dim + row] = rounded_to_bf16(sum);
}

// One value of an expert's output.
__device__ float part_of(const Plain& plain, int64_t token, int choice, int64_t column) {
  const int64_t pair = token * plain.choices + choice;
  if (plain.outputs_elsewhere != nullptr && is_elsewhere(plain.experts[plain.ids[pair]]))
    return float_of(plain.outputs_elsewhere[pair * plain.dim + column]);
  return plain.parts[(pair + token) * plain.dim + column];
}

// Blocks (tokens), a thread per column. The experts of a token in ascending order, by looking for
// the next higher one each time.
__global__ void add_parts(Plain plain) {
  wait_for_inputs();
  const int64_t token = blockIdx.x;
  const int32_t* ids = plain.ids + token * plain.choices;
  const float* parts = plain.parts + token * (plain.choices + 1) * plain.dim;
  for (int64_t i = threadIdx.x; i < plain.dim; i += blockDim.x) {
    float sum = 0;
    int32_t last = -1;
    for (int done = 0; done < plain.choices;) {
      int32_t next = INT32_MAX;
      for (int c = 0; c < plain.choices; ++c)
        if (ids[c] > last) next = min(next, ids[c]);
      if (next == INT32_MAX) break;
      for (int c = 0; c < plain.choices; ++c)
        if (ids[c] == next) sum += part_of(plain, token, c, i), ++done;
      last = next;
    }
    sum += parts[plain.choices * plain.dim + i];
    plain.y[token * plain.dim + i] = {__bfloat16_as_ushort(__float2bfloat16_rn(sum))};
  }
}

}  // namespace

void moe_experts_plain(Queue& queue, const MoeExpertsArgs& args,
                       const ExpertsElsewhere* elsewhere) {
  constexpr const char* kName = "moe_experts";
  const int64_t tokens = args.x.extent(0), dim = args.x.extent(1), choices = args.ids.extent(1);
  const int64_t width = args.shared.w1.rows, slots = tokens * (choices + 1);
  for (const ExpertMatrices& expert : args.experts)
    CACHALOT_CHECK(expert.w1.rows == width, "{} rows beside {}", expert.w1.rows, width);
  const bool int8 = args.input == ExpertInput::int8;
  Scratch scratch(queue);
  auto* x_routed = scratch.allocate<float>(tokens * dim);
  auto* x_shared = scratch.allocate<float>(tokens * dim);
  auto* hidden = scratch.allocate<float>(slots * width);
  const Plain plain{.experts = expert_table(queue, args, elsewhere),
                    .shared = shared_pointers(args),
                    .ids = args.ids.data,
                    .weights = args.weights.data,
                    .dim = dim,
                    .width = width,
                    .choices = static_cast<int>(choices),
                    .limit = args.limit,
                    .outputs_elsewhere = elsewhere ? elsewhere->outputs : nullptr,
                    .x_routed = x_routed,
                    .x_shared = x_shared,
                    .hidden = hidden,
                    .parts = scratch.allocate<float>(slots * dim),
                    .y = args.y.data};
  const auto round = [&](auto kernel, auto* in, float* out, int64_t rows, int64_t columns,
                         int64_t rows_per_token, bool to_int8) {
    const int64_t groups = rows * columns / kScaleBlock;
    launch(queue, kName, kernel, {.blocks = dim3(blocks_of(groups)), .threads = 32}, in, out,
           groups, columns / kScaleBlock, rows_per_token, to_int8);
  };
  const auto rows_grid = [&](int64_t rows) {
    return LaunchShape{.blocks = dim3(slots, (rows + kWarps - 1) / kWarps), .threads = 32 * kWarps};
  };
  // Two rows per token of which none is the last: all follow `int8`.
  round(round_inputs<bf16>, args.x.data, x_routed, tokens, dim, INT32_MAX, int8);
  round(round_inputs<bf16>, args.x.data, x_shared, tokens, dim, 1, int8);
  launch(queue, kName, hidden_rows, rows_grid(width), plain);
  round(round_inputs<float>, hidden, hidden, slots, width, choices + 1, int8);
  launch(queue, kName, down_rows, rows_grid(dim), plain);
  if (elsewhere != nullptr) elsewhere->await();
  launch(queue, kName, add_parts, {.blocks = dim3(tokens), .threads = 256}, plain);
}

}  // namespace cachalot::cuda
