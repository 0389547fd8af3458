// The matrix kernels on the BF16 dot product of AVX-512 (vdpbf16ps), instead of matmul.inc.h.
//
// Every operand is exact in BF16: E4M3 and E2M1 codes, also times a scale within kScaleRange
// (matmul_bf16_decode.inc.h), and activations, quantized or not. One instruction multiplies 32
// columns and adds them to an output's sums: lane l takes the columns at 2 l and 2 l + 1 of a
// block, blocks ascending; then one fixed sum over the lanes. Where one of the scales of a tile's
// 32 FP8 rows cannot be added to exponents, the rows' blocks are summed unscaled from zero and join
// by fma(partial, scale, sum); for FP4 see matmul_bf16_fp4.inc.h. The order is the same for every
// number of tokens. The instruction takes denormals for zeros, which no product with a quantized
// activation is.
//
// Four or eight weight rows are decoded in registers as they stream by, for up to six tokens; more
// tokens take them from L2 again. For more than kFewTokens, some rows at a time are decoded into a
// panel of BF16 values first.
#pragma once

#include "backend/cpu/kernels/matmul_bf16_activations.inc.h"
#include "backend/cpu/kernels/matmul_bf16_fp4.inc.h"
#include "backend/cpu/kernels/matmul_bf16_rows.inc.h"

namespace cachalot::cpu {
namespace {

// 4 x 6 sums, 6 activations and a weight in 32 registers.
constexpr int kTileRows = 4, kTileTokens = 6;
constexpr int kInputTokens = 4;  // up to which the input takes FP8 scales
// Rows whose sums are taken together while they stream by: as many as the registers allow.
constexpr int rows_at_once(int tokens) { return tokens <= 2 ? 8 : 4; }
// So many sums and those that fill up sixteen.
constexpr int sums_held(int count) { return (count + kLanes - 1) / kLanes * kLanes; }
// Up to which no panel is decoded. A panel, the scratch, leaves room in L2 for the input.
constexpr int64_t kFewTokens = 8;
constexpr int64_t kPanelBytes = 128 << 10;
constexpr int64_t kCallRows = 32;

// Scales of the 32-column tiles that `row` lies in.
template <class Row>
CACHALOT_INLINE const float* shared_scales(const PackedWeight& w, int64_t row) {
  return Row::kSharesScales ? w.tile_scales + row / 32 * (w.columns / kBlock) : nullptr;
}

// Where at most `most` rows from `first` end: those that share scales do so wholly.
template <class Row>
CACHALOT_INLINE int64_t end_of_rows(int64_t first, int64_t most, int64_t end) {
  int64_t last = first + most < end ? first + most : end;
  if (Row::kSharesScales && last > (first / 32 + 1) * 32) last = (first / 32 + 1) * 32;
  return last;
}

// --------------------------------------------------------------------------------------- outputs

// The sums over the lanes of sixteen vectors, each as sum() adds them.
CACHALOT_INLINE F32 sums_of(const F32* vectors) {
  F32 eight[8], four[4], two[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const int from = i / 4 * 8 + i % 4;
    const __m512 a = vectors[from], b = vectors[from + 4];
    eight[i] = _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = eight[i], b = eight[i + 4];
    four[i] = _mm512_shuffle_f32x4(a, b, 0x88) + _mm512_shuffle_f32x4(a, b, 0xDD);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512 a = four[2 * i], b = four[2 * i + 1];
    two[i] = _mm512_shuffle_ps(a, b, 0x44) + _mm512_shuffle_ps(a, b, 0xEE);
  }
  const __m512 a = two[0], b = two[1];
  return _mm512_shuffle_ps(a, b, 0x88) + _mm512_shuffle_ps(a, b, 0xDD);
}

// Outputs `row` .. row + count - 1, at most sixteen, of a token.
CACHALOT_INLINE void put_rows(const Product& p, int64_t token, int64_t row, int64_t count,
                              F32 values) {
  const int64_t at = token * p.y_stride + row - p.y_first_row;
  const auto rows = static_cast<__mmask16>((1u << count) - 1);
  if (p.y) {
    const __m256i halves = (__m256i) __builtin_convertvector(bf16_bits(values), U16);
    _mm256_mask_storeu_epi16(p.y + at, rows, halves);
  } else {
    _mm512_mask_storeu_ps(p.y_f32 + at, rows, values);
  }
}

// ------------------------------------------------------------------------------------ few tokens

// Whether scales within kScaleRange can be added to the exponents of all these values: then
// (w s) x = w (s x), and none of the four is a denormal but where x is one, a zero.
CACHALOT_INLINE bool takes_scales(const uint16_t* x, int64_t columns) {
  const __m512i exponent = _mm512_set1_epi16(0x7F80);
  const __m512i least = _mm512_set1_epi16((127 - 60) << 7), range = _mm512_set1_epi16(120 << 7);
  __mmask32 beyond = 0;
  for (int64_t k = 0; k < columns; k += kBlock) {
    const __m512i e = _mm512_and_si512(_mm512_loadu_si512(x + k), exponent);
    beyond |= _mm512_mask_cmpgt_epu16_mask(_mm512_test_epi16_mask(e, e), _mm512_sub_epi16(e, least),
                                           range);
  }
  return beyond == 0;
}

CACHALOT_INLINE Pairs scaled_input(Pairs x, __m512i shift) {
  return (Pairs)shifted((__m512i)x, shift, _mm512_set1_epi16(0x7F80));
}

// Sums of kRows rows from `first` on and kTokens tokens, [kTokens][kRows], lane by lane. A function
// of its own, so that nothing else wants its registers.
template <class Row, int kRows, int kTokens, Scaling kScaling>
__attribute__((noinline)) void dot_rows(const Row& first, const uint16_t* const* tokens,
                                        const float* scales, int64_t blocks, Fetcher& fetcher,
                                        F32* lanes) {
  const uint16_t* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = tokens[t];
  F32 sums[kRows][kTokens];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) sums[r][t] = splat(0.0f);
  }
  // Rows by two pointers and the distance of rows.
  Row row = first, middle = below(first, kRows / 2);
  Fetcher next = fetcher;
  const auto step = [&]<int kBlocks>(int64_t b) __attribute__((always_inline)) {
    next.step(kBlocks * kRows * Row::kBytes);
    const typename Row::template Shared<kBlocks> shared(scales, b);
    Pairs v[kBlocks][kTokens];
#pragma GCC unroll 2
    for (int i = 0; i < kBlocks; ++i) {
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) {
        v[i][t] = load_pairs(x[t] + (b + i) * kBlock);
        if constexpr (kScaling == Scaling::input) v[i][t] = scaled_input(v[i][t], shared.shifts[i]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Row here = r < kRows / 2 ? below(row, r) : below(middle, r - kRows / 2);
      Pairs w[kBlocks];
      here.template decode<kScaling>(shared, w);
#pragma GCC unroll 2
      for (int i = 0; i < kBlocks; ++i) {
#pragma GCC unroll 6
        for (int t = 0; t < kTokens; ++t) {
          if constexpr (kScaling == Scaling::sums) {
            const F32 partial = _mm512_dpbf16_ps(splat(0.0f), w[i], v[i][t]);
            sums[r][t] = fma(partial, splat(here.scale(shared, i)), sums[r][t]);
          } else {
            sums[r][t] = _mm512_dpbf16_ps(sums[r][t], w[i], v[i][t]);
          }
        }
      }
    }
    row.advance(kBlocks);
    middle.advance(kBlocks);
  };
  // Two blocks of FP8 at a time, where the registers suffice.
  constexpr int kStep = Row::kSharesScales && kTokens <= kInputTokens ? 2 : 1;
  int64_t b = 0;
  for (; b + kStep <= blocks; b += kStep) step.template operator()<kStep>(b);
  if (kStep > 1 && b < blocks) step.template operator()<1>(b);
  fetcher = next;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) lanes[t * kRows + r] = sums[r][t];
  }
}

// out[i] is the sum over the lanes of the i-th of kCount.
template <int kCount>
CACHALOT_INLINE void put_sums(F32* lanes, float* out) {
  if constexpr (kCount <= 8) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) out[i] = sum(lanes[i]);
    return;
  }
  // Sixteen together, zeros where there are fewer.
  for (int i = kCount; i < sums_held(kCount); ++i) lanes[i] = splat(0.0f);
  for (int i = 0; i < sums_held(kCount); i += kLanes) store(out + i, sums_of(lanes + i));
}

// The sums of rows of any format. `folds`: the scales can be added to exponents; `moves`: even to
// those of the input, or of the sums (Row::moves(), inputs_move()).
template <int kRows, int kTokens, class Row>
CACHALOT_INLINE void dot(const Row& first, const uint16_t* const* x, const float* scales,
                         int64_t blocks, bool folds, bool moves, Fetcher& next, F32* lanes) {
  const auto run = [&]<Scaling kScaling>() {
    dot_rows<Row, kRows, kTokens, kScaling>(first, x, scales, blocks, next, lanes);
  };
  if constexpr (Row::kScaled) {
    if (!folds) return run.template operator()<Scaling::sums>();
    if constexpr (kTokens <= kInputTokens) {
      if (moves) return run.template operator()<Scaling::input>();
    }
  }
  run.template operator()<Scaling::weights>();
}
template <int kRows, int kTokens>
CACHALOT_INLINE void dot(const Fp4Row& first, const uint16_t* const* x, const float*,
                         int64_t blocks, bool folds, bool moves, Fetcher& next, F32* lanes) {
  const auto run = [&]<Fp4Scaling kScaling>() {
    dot_fp4<kRows, kTokens, kScaling>(first, x, blocks, next, lanes);
  };
  if (!folds) return run.template operator()<Fp4Scaling::partial>();
  if (moves) return run.template operator()<Fp4Scaling::moving>();
  run.template operator()<Fp4Scaling::weights>();
}

template <class Row, int kTokens>
CACHALOT_INLINE bool inputs_move(const uint16_t* const* x, int64_t columns) {
  bool all = Row::kScaled;
  if constexpr (Row::kSharesScales) {
    all = kTokens <= kInputTokens;
    for (int t = 0; t < kTokens; ++t) all = all && takes_scales(x[t], columns);
  } else if constexpr (Row::kScaled) {
    all = columns % kSpanColumns == 0;
    for (int t = 0; t < kTokens; ++t) all = all && in_moving_range(x[t], columns);
  }
  return all;
}

// kTokens tokens from `token` on.
template <class Row, int kTokens>
void multiply_few(const Product& p, int64_t token) {
  constexpr int kRows = rows_at_once(kTokens);
  const uint16_t* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = static_cast<const uint16_t*>(p.x[token + t]);
  const bool inputs = inputs_move<Row, kTokens>(x, p.weight.columns);
  const int64_t blocks = p.weight.columns / kBlock;
  // The first tokens see to it that the next product comes, for all.
  Fetcher next(token == 0 ? p.next_codes : Upcoming());
  if (token == 0) Fetcher(p.next_scales).step(p.next_scales.bytes);
  for (int64_t first = p.first_row, last; first < p.last_row; first = last) {
    last = end_of_rows<Row>(first, kRows, p.last_row);
    bool moves = inputs && Row::moves(p.weight, first, last);
    bool folds = moves || Row::folds(p.weight, first, last);
    Row row(p.weight, first);
    if (last - first < kRows || !folds) {  // row by row
      last = first + 1;
      row.repeat();
      moves = inputs && Row::moves(p.weight, first, last);
      folds = moves || Row::folds(p.weight, first, last);
    }
    const float* scales = shared_scales<Row>(p.weight, first);
    F32 lanes[sums_held(kRows * kTokens)];
    float sums[sums_held(kRows * kTokens) + kLanes];
    dot<kRows, kTokens>(row, x, scales, blocks, folds, moves, next, lanes);
    put_sums<kRows * kTokens>(lanes, sums);
    for (int t = 0; t < kTokens; ++t) {
      put_rows(p, token + t, first, last - first, load(sums + t * kRows));
    }
  }
}

// As few times as possible, and about as many tokens each time.
template <class Row>
void multiply_in_turns(const Product& p) {
  const int64_t times = (p.tokens + kTileTokens - 1) / kTileTokens;
  for (int64_t i = 0; i < times; ++i) {
    const int64_t t = p.tokens * i / times, now = p.tokens * (i + 1) / times - t;
    with_tokens<kTileTokens>(now, [&]<int kTokens>() { multiply_few<Row, kTokens>(p, t); });
  }
}

// ----------------------------------------------------------------------------------- many tokens

// Rows first .. last - 1, of one scale tile, as BF16 values. Fetches as many bytes as it decodes.
void decode_panel(const PackedWeight& w, int64_t first, int64_t last, Fetcher& fetcher,
                  uint16_t* panel) {
  const float* scales = shared_scales<Fp8Row>(w, first);
  const int64_t blocks = w.columns / kBlock;
  Fetcher next = fetcher;
  for (int64_t r = first; r < last; r += kTileRows) {
    const int64_t rows = last - r < kTileRows ? last - r : kTileRows;
    Fp8Row row(w, r);
    uint16_t* out = panel + (r - first) * w.columns;
    const auto step = [&]<int kBlocks>(int64_t b) __attribute__((always_inline)) {
      next.step(kBlocks * rows * Fp8Row::kBytes);
      const Fp8Row::Shared<kBlocks> shared(scales, b);
      for (int64_t i = 0; i < rows; ++i) {
        Pairs values[kBlocks];
        below(row, i).decode<Scaling::weights>(shared, values);
        for (int j = 0; j < kBlocks; ++j) {
          _mm512_storeu_si512(out + i * w.columns + (b + j) * kBlock, (__m512i)values[j]);
        }
      }
      row.advance(kBlocks);
    };
    int64_t b = 0;
    for (; b + 2 <= blocks; b += 2) step.template operator()<2>(b);
    if (b < blocks) step.template operator()<1>(b);
  }
  fetcher = next;
}

// Some rows at a time become a BF16 weight.
template <class Row, class Decode>
void multiply_decoded(const Product& p, int64_t most_rows, uint16_t* panel, const Decode& decode) {
  Fetcher(p.next_scales).step(p.next_scales.bytes);
  Fetcher next(p.next_codes);
  for (int64_t first = p.first_row, last; first < p.last_row; first = last) {
    last = end_of_rows<Row>(first, most_rows, p.last_row);
    decode(p.weight, first, last, next, panel);
    Product part = p;
    part.weight = {.format = Format::bf16,
                   .rows = last - first,
                   .columns = p.weight.columns,
                   .data = reinterpret_cast<const uint8_t*>(panel)};
    part.first_row = 0;
    part.last_row = last - first;
    part.y_first_row = p.y_first_row - first;
    part.next_codes = part.next_scales = {};
    multiply_in_turns<Bf16Row>(part);
  }
}

int64_t panel_rows(const Product& p) {
  return kPanelBytes / (2 * p.weight.columns) / kTileRows * kTileRows;
}

void multiply_fp8(const Product& p, void* scratch) {
  const int64_t rows = panel_rows(p);
  bool folds = true;
  for (int64_t r = p.first_row; r < p.last_row && folds; r = (r / 32 + 1) * 32) {
    folds = Fp8Row::folds(p.weight, r, r + 1);
  }
  if (p.tokens <= kFewTokens || rows == 0 || !folds) return multiply_in_turns<Fp8Row>(p);
  multiply_decoded<Fp8Row>(p, rows, static_cast<uint16_t*>(scratch), decode_panel);
}

void multiply_fp4(const Product& p, void* scratch) {
  const int64_t rows = panel_rows(p);
  if (p.tokens <= kFewTokens || rows == 0 || p.weight.columns % kSpanColumns != 0 ||
      !Fp4Row::folds(p.weight, p.first_row, p.last_row)) {
    return multiply_in_turns<Fp4Row>(p);
  }
  multiply_decoded<Fp4Row>(p, rows, static_cast<uint16_t*>(scratch), decode_spans);
}

void multiply(const Product& product, void* scratch) {
  switch (product.weight.format) {
    case Format::bf16:
      return multiply_in_turns<Bf16Row>(product);
    case Format::fp8:
      return multiply_fp8(product, scratch);
    case Format::fp4:
      return multiply_fp4(product, scratch);
  }
}

// ------------------------------------------------------------------------------------ activations

// An FP4 weight's in the order of its spans.
template <auto kPrepare>
void prepare(const bf16* x, int64_t first, int64_t count, Format format, void* row) {
  if (format != Format::fp4) return kPrepare(x, first, count, format, row);
  for (int64_t k = 0; k < count; k += kBlock) {
    alignas(64) uint16_t block[kBlock];
    kPrepare(x + k, 0, kBlock, format, block);
    lay_in_span(block, first + k, static_cast<uint16_t*>(row));
  }
}

constexpr MatmulKernels kTable = {
    .activation_size = sizeof(bf16),
    .quantize = prepare<quantize>,
    .keep = prepare<keep>,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .few_rows = kCallRows,
    .many_rows = kCallRows,
    .tile_rows = rows_at_once(1),
    .tile_tokens = kTileTokens,
    .scratch_bytes = kPanelBytes,
    .multiply = multiply,
    .gated = gated,
    .sum_experts = sum_experts,
};

}  // namespace
}  // namespace cachalot::cpu
