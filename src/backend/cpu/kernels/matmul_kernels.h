// The matrix kernels: y = x . weight^T for weights read packed, compiled once per instruction set.
//
// One order of additions for every number of tokens, per instruction set and weight format: a lane
// of one accumulator per output takes its columns of every block of 32 by fma, blocks ascending,
// then a fixed horizontal sum (matmul.inc.h, matmul_rows.inc.h; with the BF16 dot product:
// matmul_bf16_dot.inc.h; with tile registers: matmul_tiles.inc.h). Only the outputs are divided
// among threads, so results depend neither on the number of threads nor on which tokens are
// computed together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/number_formats.h"

// base/cpu_info.h, which kernel objects must not include: it brings weak symbols.
namespace cachalot {
enum class Isa;
}

namespace cachalot::cpu {

// Tokens that pack() lays side by side.
inline constexpr int64_t kPackTokens = 16;
// Prepared rows have room for a multiple of so many columns.
inline constexpr int64_t kPreparedColumns = 256;

// A packed weight: E4M3 or E2M1 codes or BF16 values, any alignment.
struct PackedWeight {
  enum class Format { bf16, fp8, fp4 };
  Format format = Format::bf16;
  int64_t rows = 0;
  int64_t columns = 0;                  // a multiple of 32
  const uint8_t* data = nullptr;        // [rows, row_bytes()]
  const float* tile_scales = nullptr;   // fp8: [rows / 32, columns / 32], rounded up
  const uint8_t* row_scales = nullptr;  // fp4: [rows, columns / 32] E8M0

  int64_t row_bytes() const {
    return format == Format::bf16 ? columns * 2 : format == Format::fp8 ? columns : columns / 2;
  }
};

// Memory that will be read soon.
struct Upcoming {
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
};

// Outputs first_row .. last_row - 1, at most many_rows, of every token. y[t * y_stride + row -
// y_first_row]; exactly one of y (BF16, rounded to nearest even) and y_f32 is given.
struct Product {
  PackedWeight weight;
  int64_t first_row = 0;
  int64_t last_row = 0;
  const void* const* x = nullptr;  // [tokens] prepared activations of `columns` values each
  const void* packed = nullptr;    // what pack() made of them, where the kernels have it
  int64_t tokens = 0;
  bf16* y = nullptr;
  float* y_f32 = nullptr;
  int64_t y_stride = 0;
  int64_t y_first_row = 0;
  // Codes and scales of the product the same thread computes next: with few tokens, a core waits
  // for memory unless the next product's weights come while it computes this one.
  Upcoming next_codes, next_scales;
};

struct MatmulKernels {
  // Prepared activations, what multiply() reads: values of this many bytes.
  int64_t activation_size;
  // Columns first .. first + count - 1 of a prepared row, both multiples of 32, from the values of
  // x, quantized to E4M3 with a power of two per 32 (spec: model, 2.2), for an fp8 or fp4 weight.
  void (*quantize)(const bf16* x, int64_t first, int64_t count, PackedWeight::Format format,
                   void* row);
  // As they are, for a weight of that format.
  void (*keep)(const bf16* x, int64_t first, int64_t count, PackedWeight::Format format, void* row);

  // Kernels that want the tokens side by side: pack() copies some columns, groups of 32, of the
  // prepared rows kPackTokens * tile .. (at most kPackTokens of them) of `tokens` to their place
  // among packed_bytes(), aligned to 64. Null where multiply() follows Product::x.
  int64_t (*packed_bytes)(int64_t tokens, int64_t columns);
  void (*pack)(const void* const* rows, int64_t tokens, int64_t columns,
               PackedWeight::Format format, int64_t tile, int64_t first_column,
               int64_t column_count, void* packed);

  // Outputs one call of multiply() should compute for up to 2 * kPackTokens tokens and for more, so
  // that decoded weights and activations stay in the nearer caches; 32 divides both or they divide
  // it (the rows of a scale tile).
  int64_t few_rows;
  int64_t many_rows;
  // Up to tile_tokens tokens are computed while the weights stream by, tile_rows outputs at a time:
  // a call may have as few of them at no loss.
  int64_t tile_rows;
  int64_t tile_tokens;

  // Bytes of scratch (aligned to 64) one call of multiply() needs for any number of tokens.
  int64_t scratch_bytes;
  void (*multiply)(const Product& product, void* scratch);

  // h[i] = RNE_BF16(weight * silu(g) * u) after the clamps (contract: moe_experts).
  void (*gated)(const bf16* g, const bf16* u, int64_t n, float limit, float weight, bf16* h);
  // out[i] = RNE_BF16((sum of y[rows[r]][i], r ascending, FP32) + shared[i]), i < n; rows of y lie
  // dim apart.
  void (*sum_experts)(const bf16* y, int64_t dim, const int32_t* rows, int64_t count,
                      const bf16* shared, int64_t n, bf16* out);
};

const MatmulKernels& matmul_kernels_for(Isa isa);
// For FP4 weights and activations as int8 (ops/expert_input.h): quantize() and multiply() alone.
// The byte dot product of AVX-512 where the CPU has it.
const MatmulKernels& int8_kernels_for(Isa isa);

// One per file of this directory.
extern const MatmulKernels kGenericMatmulKernels;
extern const MatmulKernels kAvx2MatmulKernels;
extern const MatmulKernels kAvx512MatmulKernels;
extern const MatmulKernels kAvx512Bf16MatmulKernels;
extern const MatmulKernels kAmxMatmulKernels;
extern const MatmulKernels kGenericInt8Kernels;
extern const MatmulKernels kAvx2Int8Kernels;
extern const MatmulKernels kVnniInt8Kernels;

}  // namespace cachalot::cpu
