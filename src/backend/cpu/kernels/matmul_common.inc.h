// What every matrix kernel shares: where results go, and the elementwise steps of an expert.
#pragma once

#include "backend/cpu/kernels/matmul_kernels.h"
#include "backend/cpu/kernels/simd.h"

namespace cachalot::cpu {
namespace {

using Format = PackedWeight::Format;

// Outputs of a call, of the kernels that decode a panel for the nearest cache.
constexpr int64_t kOutputBlock = 16;

CACHALOT_INLINE void put(const Product& p, int64_t token, int64_t row, float value) {
  const int64_t at = token * p.y_stride + row - p.y_first_row;
  if (p.y) {
    p.y[at].bits = bf16_bits(value);
  } else {
    p.y_f32[at] = value;
  }
}

// Fetches memory into L2, one line after the other: the way its own prefetcher follows, past the
// ends of rows and pages.
class Fetcher {
 public:
  explicit Fetcher(const Upcoming& memory) : at_(memory.data), end_(memory.data + memory.bytes) {}

  // The lines of the next `bytes` of it, and perhaps a few behind its end.
  CACHALOT_INLINE_MEMBER void step(int64_t bytes) {
    if (at_ >= end_) return;
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at_ + i, 0, 2);
    at_ += (bytes + 63) / 64 * 64;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

// Row indices past the end repeat the last row; their sums are dropped.
CACHALOT_INLINE int64_t clamped(int64_t row, int64_t end) { return row < end ? row : end - 1; }

// A row's blocks of kBlockBytes bytes each, what the formats' rows have in common: a pointer that
// goes along the row, and the way to the rows below it.
template <int64_t kBlockBytes>
struct RowCodes {
  static constexpr int64_t kBytes = kBlockBytes;
  const uint8_t* codes;
  int64_t stride;

  RowCodes(const PackedWeight& w, int64_t row)
      : codes(w.data + row * w.row_bytes()), stride(w.row_bytes()) {}
  // The rows below are this one again.
  void repeat() { stride = 0; }
  CACHALOT_INLINE_MEMBER void descend(int64_t rows) { codes += rows * stride; }
  CACHALOT_INLINE_MEMBER void advance(int64_t blocks) { codes += blocks * kBytes; }
  CACHALOT_INLINE_MEMBER const uint8_t* at(int64_t b) const { return codes + b * kBytes; }
};

// With the blocks' E8M0 scales.
struct Fp4Codes : RowCodes<16> {
  const uint8_t* scales;
  int64_t scale_stride;

  Fp4Codes(const PackedWeight& w, int64_t row)
      : RowCodes(w, row),
        scales(w.row_scales + row * (w.columns / kBlock)),
        scale_stride(w.columns / kBlock) {}
  void repeat() { stride = scale_stride = 0; }
  CACHALOT_INLINE_MEMBER void descend(int64_t rows) {
    RowCodes::descend(rows);
    scales += rows * scale_stride;
  }
  CACHALOT_INLINE_MEMBER void advance(int64_t blocks) {
    RowCodes::advance(blocks);
    scales += blocks;
  }
};

// The row `rows` further down.
template <class Row>
CACHALOT_INLINE Row below(Row row, int64_t rows) {
  row.descend(rows);
  return row;
}

// Calls f<n>() with n = `tokens`, at most kMost.
template <int kMost, class F>
CACHALOT_INLINE void with_tokens(int64_t tokens, const F& f) {
  if (tokens == kMost) {
    f.template operator()<kMost>();
  } else if constexpr (kMost > 1) {
    with_tokens<kMost - 1>(tokens, f);
  }
}

// A group of 32 activations, rounded to E4M3 times its power of two (spec: model, 2.2).
CACHALOT_INLINE Block round_group(const bf16* x) {
  Block block;
  F32 largest = splat(0.0f);
  for (int i = 0; i < kBlockVectors; ++i) {
    block.v[i] = load_bf16(x + i * kLanes);
    largest = max(abs(block.v[i]), largest);
  }
  const uint8_t code = fp8_scale_code_of(max_of(largest));
  // Dividing by a power of two is multiplying by its inverse, exact in both directions.
  const F32 inverse = splat(bits_to_float(uint32_t{254u - code} << 23));
  const F32 scale = splat(bits_to_float(uint32_t{code} << 23));
  for (int i = 0; i < kBlockVectors; ++i) {
    block.v[i] = round_e4m3(block.v[i] * inverse) * scale;
  }
  return block;
}

// ---------------------------------------------------------------------------------------- experts

CACHALOT_INLINE F32 gated_vector(F32 g, F32 u, float limit, float weight) {
  if (limit > 0) {
    g = min(splat(limit), g);
    u = min(splat(limit), max(splat(-limit), u));
  }
  return silu(g) * u * weight;
}

void gated(const bf16* g, const bf16* u, int64_t n, float limit, float weight, bf16* h) {
  for (int64_t i = 0; i < n; i += kLanes) {
    store_bf16(h + i, gated_vector(load_bf16(g + i), load_bf16(u + i), limit, weight));
  }
}

void sum_experts(const bf16* y, int64_t dim, const int32_t* rows, int64_t count, const bf16* shared,
                 int64_t n, bf16* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    F32 total = splat(0.0f);
    for (int64_t r = 0; r < count; ++r) total += load_bf16(y + rows[r] * dim + i);
    store_bf16(out + i, total + load_bf16(shared + i));
  }
}

}  // namespace
}  // namespace cachalot::cpu
