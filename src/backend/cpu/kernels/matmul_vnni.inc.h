// The experts' products with int8 activations (ops/expert_input.h) on the byte dot
// product of AVX-512 (vpdpbusd).
//
// Lanes are 16 weight rows. Their codes are transposed, four bytes a lane, so that one instruction
// takes four columns of every row; weights are made unsigned by adding 12, and a block's integer
// sum starts with what that adds too much. Each block of 32 columns then joins by fma(sum, weight
// scale * activation scale, acc), blocks ascending: one accumulator per output, so nothing is added
// across lanes, and the order is the same for every number of tokens.
#pragma once

#include "backend/cpu/kernels/matmul_int8_common.inc.h"
#include "backend/cpu/kernels/transpose.inc.h"

namespace cachalot::cpu {
namespace {

using Int = __m512i;

constexpr int kVectorRows = 16;
constexpr int kSpan = 4;  // blocks whose codes are a cache line of every row

// Column i of a block: the even columns of 8, then the odd ones, four times.
constexpr int column_at(int i) { return i / 8 * 8 + i % 4 * 2 + i / 4 % 2; }

// Four bytes of two codes a lane -> twice their values + 12: the low nibbles' and the high ones'.
CACHALOT_INLINE void decode(Int codes, Int* even, Int* odd) {
  const Int table = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const Int nibble = _mm512_set1_epi8(0x0F);
  *even = _mm512_shuffle_epi8(table, _mm512_and_si512(codes, nibble));
  *odd = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
}

// A span of 16 rows: rows past the end repeat the last one.
struct Span {
  Int codes[16];    // transposed: codes[4 b + d] holds columns 8 d .. 8 d + 7 of block b
  Int scale_codes;  // byte b of lane r: block b's scale of row r

  CACHALOT_INLINE_MEMBER Span(const PackedWeight& w, int64_t first, int64_t end, int64_t block,
                              int64_t blocks) {
    const int64_t all = w.columns / kBlock;
    const auto mask = static_cast<__mmask16>((1u << (4 * blocks)) - 1);
    alignas(64) uint32_t scales[kVectorRows] = {};
    F32 lines[kVectorRows];
#pragma GCC unroll 16
    for (int r = 0; r < kVectorRows; ++r) {
      const int64_t row = clamped(first + r, end);
      const uint8_t* at = w.data + row * w.row_bytes() + block * 16;
      lines[r] = (F32)_mm512_maskz_loadu_epi32(mask, at);
      const uint8_t* scale = w.row_scales + row * all + block;
      if (blocks == kSpan) {
        __builtin_memcpy(&scales[r], scale, 4);
      } else {
        for (int64_t b = 0; b < blocks; ++b) scales[r] |= uint32_t{scale[b]} << (8 * b);
      }
    }
    transpose(lines);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) codes[i] = (Int)lines[i];
    scale_codes = _mm512_load_si512(scales);
  }

  // 2^(code - 127); code 0 is the denormal 2^-127.
  CACHALOT_INLINE_MEMBER F32 scale(int b) const {
    const Int code = _mm512_and_si512(_mm512_srlv_epi32(scale_codes, _mm512_set1_epi32(8 * b)),
                                      _mm512_set1_epi32(0xFF));
    return (F32)_mm512_max_epi32(_mm512_slli_epi32(code, 23), _mm512_set1_epi32(0x00400000));
  }
};

CACHALOT_INLINE Int dot(Int sums, Int weights, const Int8Block& x, int dword) {
  int32_t four;
  __builtin_memcpy(&four, x.q + 4 * dword, 4);
  return _mm512_dpbusd_epi32(sums, weights, _mm512_set1_epi32(four));
}

CACHALOT_INLINE F32 join(F32 acc, Int sums, F32 weight_scale, const Int8Block& x) {
  return fma(_mm512_cvtepi32_ps(sums), weight_scale * splat(x.half_scale), acc);
}

CACHALOT_INLINE void put_rows(const Product& p, int64_t token, int64_t first, F32 sums) {
  float values[kVectorRows];
  store(values, sums);
  for (int r = 0; r < kVectorRows && first + r < p.last_row; ++r) {
    put(p, token, first + r, values[r]);
  }
}

// ------------------------------------------------------------------------------------ few tokens

constexpr int kFewTokens = 4;

template <int kTokens>
void multiply_few(const Product& p) {
  const Int8Block* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const Int8Block*>(p.x[t]);
  const int64_t blocks = p.weight.columns / kBlock;
  Fetcher(p.next_scales).step(p.next_scales.bytes);
  Fetcher next(p.next_codes);
  for (int64_t first = p.first_row; first < p.last_row; first += kVectorRows) {
    F32 acc[kTokens];
    for (int t = 0; t < kTokens; ++t) acc[t] = splat(0.0f);
    for (int64_t b = 0; b < blocks; b += kSpan) {
      const int64_t now = blocks - b < kSpan ? blocks - b : kSpan;
      next.step(now * kVectorRows * kBlock / 2);
      const Span span(p.weight, first, p.last_row, b, now);
#pragma GCC unroll 4
      for (int i = 0; i < kSpan; ++i) {
        if (i == now) break;
        Int sums[kTokens];
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) sums[t] = _mm512_set1_epi32(x[t][b + i].offset);
#pragma GCC unroll 4
        for (int d = 0; d < 4; ++d) {
          Int even, odd;
          decode(span.codes[4 * i + d], &even, &odd);
#pragma GCC unroll 4
          for (int t = 0; t < kTokens; ++t) {
            sums[t] = dot(sums[t], even, x[t][b + i], 2 * d);
            sums[t] = dot(sums[t], odd, x[t][b + i], 2 * d + 1);
          }
        }
        const F32 scale = span.scale(i);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) acc[t] = join(acc[t], sums[t], scale, x[t][b + i]);
      }
    }
    for (int t = 0; t < kTokens; ++t) put_rows(p, t, first, acc[t]);
  }
}

// ----------------------------------------------------------------------------------- many tokens

// Two vectors of rows, so that an activation is loaded once for both; 2 x 6 sums and accumulators.
constexpr int kPanelVectors = 2, kTileTokens = 6;
constexpr int64_t kPanelBlocks = 16;

// A block of 16 rows, decoded.
struct alignas(64) PanelBlock {
  Int weights[8];  // dwords of an activation block
  F32 scale;
};
struct Panel {
  PanelBlock at[kPanelBlocks][kPanelVectors];
};

void decode_panel(const Product& p, int64_t first, int64_t block, int64_t blocks, Panel* panel) {
  for (int v = 0; v < kPanelVectors; ++v) {
    const int64_t row = clamped(first + v * kVectorRows, p.last_row);
    for (int64_t b = 0; b < blocks; b += kSpan) {
      const int64_t now = blocks - b < kSpan ? blocks - b : kSpan;
      for (int64_t r = row; r < row + kVectorRows; ++r) {
        const uint8_t* below = p.weight.data + (r + kVectorRows) * p.weight.row_bytes();
        __builtin_prefetch(below + (block + b) * (kBlock / 2));
      }
      const Span span(p.weight, row, p.last_row, block + b, now);
#pragma GCC unroll 4
      for (int i = 0; i < kSpan; ++i) {
        if (i == now) break;
        PanelBlock& out = panel->at[b + i][v];
#pragma GCC unroll 4
        for (int d = 0; d < 4; ++d) {
          decode(span.codes[4 * i + d], &out.weights[2 * d], &out.weights[2 * d + 1]);
        }
        out.scale = span.scale(i);
      }
    }
  }
}

template <int kTokens>
void multiply_tile(const Panel& panel, int64_t blocks, const Int8Block* const* x, F32* sums) {
  F32 acc[kPanelVectors][kTokens];
#pragma GCC unroll 12
  for (int i = 0; i < kPanelVectors * kTokens; ++i) {
    acc[i / kTokens][i % kTokens] = sums[i % kTokens * kPanelVectors + i / kTokens];
  }
  for (int64_t b = 0; b < blocks; ++b) {
    Int dots[kPanelVectors][kTokens];
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) dots[0][t] = dots[1][t] = _mm512_set1_epi32(x[t][b].offset);
#pragma GCC unroll 8
    for (int d = 0; d < 8; ++d) {
      const Int w0 = panel.at[b][0].weights[d], w1 = panel.at[b][1].weights[d];
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) {
        dots[0][t] = dot(dots[0][t], w0, x[t][b], d);
        dots[1][t] = dot(dots[1][t], w1, x[t][b], d);
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < kPanelVectors; ++v) {
      const F32 scale = panel.at[b][v].scale;
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) acc[v][t] = join(acc[v][t], dots[v][t], scale, x[t][b]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kPanelVectors * kTokens; ++i) {
    sums[i % kTokens * kPanelVectors + i / kTokens] = acc[i / kTokens][i % kTokens];
  }
}

constexpr int64_t kTokenBlock = 192;

struct Int8Scratch {
  Panel panel;
  F32 sums[kTokenBlock][kPanelVectors];
};

void multiply_many(const Product& p, int64_t token, int64_t tokens, Int8Scratch* scratch) {
  const int64_t blocks = p.weight.columns / kBlock;
  for (int64_t first = p.first_row; first < p.last_row; first += kPanelVectors * kVectorRows) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int v = 0; v < kPanelVectors; ++v) scratch->sums[t][v] = splat(0.0f);
    }
    for (int64_t b = 0; b < blocks; b += kPanelBlocks) {
      const int64_t count = blocks - b < kPanelBlocks ? blocks - b : kPanelBlocks;
      decode_panel(p, first, b, count, &scratch->panel);
      for (int64_t t = 0; t < tokens; t += kTileTokens) {
        const int64_t now = tokens - t < kTileTokens ? tokens - t : kTileTokens;
        with_tokens<kTileTokens>(now, [&]<int kTokens>() {
          const Int8Block* x[kTokens];
          for (int i = 0; i < kTokens; ++i) {
            x[i] = static_cast<const Int8Block*>(p.x[token + t + i]) + b;
          }
          multiply_tile<kTokens>(scratch->panel, count, x, scratch->sums[t]);
        });
      }
    }
    for (int64_t t = 0; t < tokens; ++t) {
      for (int v = 0; v < kPanelVectors; ++v) {
        put_rows(p, token + t, first + v * kVectorRows, scratch->sums[t][v]);
      }
    }
  }
}

void multiply_int8(const Product& p, void* scratch) {
  if (p.tokens <= kFewTokens) {
    with_tokens<kFewTokens>(p.tokens, [&]<int kTokens>() { multiply_few<kTokens>(p); });
    return;
  }
  for (int64_t t = 0; t < p.tokens; t += kTokenBlock) {
    const int64_t tokens = p.tokens - t < kTokenBlock ? p.tokens - t : kTokenBlock;
    multiply_many(p, t, tokens, static_cast<Int8Scratch*>(scratch));
  }
}

void quantize_int8(const bf16* x, int64_t first, int64_t count, Format, void* row) {
  quantize_blocks(x, count, column_at, static_cast<Int8Block*>(row) + first / kBlock);
}

constexpr MatmulKernels kInt8Table = int8_table(quantize_int8, multiply_int8, sizeof(Int8Scratch));

}  // namespace
}  // namespace cachalot::cpu
