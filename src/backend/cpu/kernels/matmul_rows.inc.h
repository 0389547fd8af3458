// Weight rows as the FP32 kernels take them: 32 columns at a time, decoded to floats.
//
// A format's columns come out in the order that costs least to decode, and prepared activations
// lie in the same order (kFp8Order, kFp4Order: which column of a block stands where). An FP4 value
// comes with its scale, looked up together; an FP8 value without, because the rows of a scale tile
// share the product of scale and activation. Values come times 1 / kOutputFactor, a power of two
// that lets every E8M0 scale through without an overflow or underflow on the way.
#pragma once

#include "backend/cpu/kernels/matmul_common.inc.h"

// A pointer the compiler must not express by another one: it would make up a pointer for every row,
// more than it has registers.
#define CACHALOT_POINTER(pointer) __asm__("" : "+r"(pointer))

namespace cachalot::cpu {
namespace {

struct Order {
  uint8_t column[kBlock];
};

constexpr Order natural_order() {
  Order order = {};
  for (int i = 0; i < kBlock; ++i) order.column[i] = static_cast<uint8_t>(i);
  return order;
}

// A row's blocks (RowCodes); advance() leaves the first one behind. kFetchesBelow: with few tokens
// the rows below a tile are fetched into L1, not the next product into L2 (docs/kernels/linear.md
// says what was measured).
struct Bf16Row : RowCodes<64> {
  static constexpr bool kScalesInput = false;
  static constexpr bool kFetchesBelow = false;
  static constexpr float kOutputFactor = 1;

  using RowCodes::RowCodes;
  CACHALOT_INLINE_MEMBER void advance() {
    RowCodes::advance(1);
    CACHALOT_POINTER(codes);
  }
  CACHALOT_INLINE_MEMBER Block block(int64_t b) const {
    Block out;
#pragma GCC unroll 4
    for (int i = 0; i < kBlockVectors; ++i) out.v[i] = load_bf16(at(b) + i * kLanes * 2);
    return out;
  }
};

// -------------------------------------------------------------------------------------------- FP8

#if defined(__AVX2__) && !defined(__AVX512F__)

// Words of two bytes -> the floats whose upper halves they are: even words, then odd ones.
CACHALOT_INLINE void widen_words(__m256i words, F32* out) {
  out[0] = (F32)_mm256_slli_epi32(words, 16);
  out[1] = (F32)_mm256_and_si256(words, _mm256_set1_epi32(-0x10000));
}

// Where widen_words leaves the bytes of two unpacked halves; `low` and `high` are the columns of
// byte 0 of each half, `step` the distance of neighbours.
constexpr Order unpacked_order(int low, int high, int step) {
  Order order = {};
  for (int i = 0; i < kBlock; ++i) {
    const int vector = i / 8, lane = i % 8;
    const int byte = vector / 2 * 8 + lane % 4 * 2 + vector % 2;
    order.column[i] = static_cast<uint8_t>((lane < 4 ? low : high) + byte * step);
  }
  return order;
}
constexpr Order kFp8Order = unpacked_order(0, 16, 1);

// The upper two bytes of value * 2^-8 as a float. Exponent 112 + e of a normal code seeeemmm: the
// first byte follows from seee, the second is emmm0000. Codes s000nnnn are n * 2^-9, subnormals
// and the first normals alike; for them one table adds what the first byte lacks, the other turns
// the second byte into the right one. A table yields zero where bit 7 of the index is set: adding
// 0x70 to the magnitude sets it for all other codes.
CACHALOT_INLINE Block load_e4m3_words(const uint8_t* p) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i first_table =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0x39, 0x3A, 0x3B, 0x3C, 0x3D, 0x3E, 0x3F, -0x80,
                                                -0x47, -0x46, -0x45, -0x44, -0x43, -0x42, -0x41));
  const __m256i small_first = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      0, 0x37, 0x37, 0x37, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38));
  const __m256i small_second = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 0x10, -0x60, -0x10, 0x40, 0x70, 0x20, 0x10, 0, 0, 0, 0, 0, 0, 0, 0));
  const __m256i small =
      _mm256_add_epi8(_mm256_and_si256(codes, _mm256_set1_epi8(0x7F)), _mm256_set1_epi8(0x70));
  const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(codes, 4), _mm256_set1_epi8(0x0F));
  const __m256i lower = _mm256_and_si256(_mm256_slli_epi16(codes, 4), _mm256_set1_epi8(-0x10));
  const __m256i first = _mm256_or_si256(_mm256_shuffle_epi8(first_table, upper),
                                        _mm256_shuffle_epi8(small_first, small));
  const __m256i second = _mm256_xor_si256(lower, _mm256_shuffle_epi8(small_second, small));
  Block block;
  widen_words(_mm256_unpacklo_epi8(second, first), block.v);
  widen_words(_mm256_unpackhi_epi8(second, first), block.v + 2);
  return block;
}

#else

constexpr Order kFp8Order = natural_order();

CACHALOT_INLINE Block load_e4m3_words(const uint8_t* p) {
  Block block;
#if defined(__AVX512F__)
  // As load_e4m3, all codes at a time.
  const __m512i words =
      _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512i halves = _mm512_and_si512(_mm512_slli_epi16(words, 7),
                                          _mm512_set1_epi16(static_cast<int16_t>(0xBFFF)));
  block.v[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  block.v[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
#else
  for (int i = 0; i < kBlockVectors; ++i) block.v[i] = load_e4m3(p + i * kLanes);
#endif
  return block;
}

#endif

struct Fp8Row : RowCodes<32> {
  static constexpr bool kScalesInput = true;
  static constexpr bool kFetchesBelow = kLanes == 16;
  static constexpr float kOutputFactor = 1 / kDecodeFactor;

  using RowCodes::RowCodes;
  CACHALOT_INLINE_MEMBER void advance() {
    RowCodes::advance(1);
    CACHALOT_POINTER(codes);
  }
  CACHALOT_INLINE_MEMBER Block block(int64_t b) const { return load_e4m3_words(at(b)); }
};

// -------------------------------------------------------------------------------------------- FP4

#if defined(__AVX2__)

constexpr float kFp4Factor = 4;

// value / kFp4Factor of an E2M1 code under an E8M0 scale: 2^-130 to 1.5 * 2^127, all floats whose
// lower halves are zero.
constexpr float scaled_e2m1(int code, int scale) {
  constexpr float kGrid[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  if (scale == 255) return __builtin_nanf("");
  float value = kGrid[code & 7] / kFp4Factor;
  for (int e = 127; e < scale; ++e) value *= 2;
  for (int e = 127; e > scale; --e) value /= 2;
  return code & 8 ? -value : value;
}

#if defined(__AVX512F__)

struct Fp4Tables {
  alignas(64) float value[256][16];
  constexpr Fp4Tables() : value() {
    for (int s = 0; s < 256; ++s) {
      for (int code = 0; code < 16; ++code) value[s][code] = scaled_e2m1(code, s);
    }
  }
};

// Low nibbles, then high ones.
constexpr Order fp4_order() {
  Order order = {};
  for (int i = 0; i < kBlock; ++i) {
    order.column[i] = static_cast<uint8_t>(i % kLanes * 2 + i / kLanes);
  }
  return order;
}

#else

// The upper two bytes of each value.
struct Fp4Tables {
  alignas(32) uint8_t upper[256][2][16];
  constexpr Fp4Tables() : upper() {
    for (int s = 0; s < 256; ++s) {
      for (int code = 0; code < 16; ++code) {
        const auto bits = __builtin_bit_cast(uint32_t, scaled_e2m1(code, s));
        upper[s][0][code] = static_cast<uint8_t>(bits >> 24);
        upper[s][1][code] = static_cast<uint8_t>(bits >> 16);
      }
    }
  }
};

constexpr Order fp4_order() { return unpacked_order(0, 1, 2); }

#endif

constexpr Fp4Tables kFp4Tables;
constexpr Order kFp4Order = fp4_order();

// 16 bytes of two codes each, the low nibble first.
CACHALOT_INLINE Block load_e2m1_scaled(const uint8_t* p, uint8_t scale) {
  Block block;
  const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
#if defined(__AVX512F__)
  // vpermps looks at the lowest four bits of a lane only.
  const __m512i pairs = _mm512_cvtepu8_epi32(packed);
  const __m512 values = _mm512_load_ps(kFp4Tables.value[scale]);
  block.v[0] = _mm512_permutexvar_ps(pairs, values);
  block.v[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(pairs, 4), values);
#else
  const auto table = [&](int byte) {
    return _mm256_broadcastsi128_si256(
        _mm_load_si128(reinterpret_cast<const __m128i*>(kFp4Tables.upper[scale][byte])));
  };
  const __m256i shifts = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
  const __m256i codes = _mm256_and_si256(
      _mm256_srlv_epi32(_mm256_broadcastsi128_si256(packed), shifts), _mm256_set1_epi8(0x0F));
  const __m256i first = _mm256_shuffle_epi8(table(0), codes);
  const __m256i second = _mm256_shuffle_epi8(table(1), codes);
  widen_words(_mm256_unpacklo_epi8(second, first), block.v);
  widen_words(_mm256_unpackhi_epi8(second, first), block.v + 2);
#endif
  return block;
}

#else

constexpr float kFp4Factor = 1 / kDecodeFactor;
constexpr Order kFp4Order = natural_order();

CACHALOT_INLINE Block load_e2m1_scaled(const uint8_t* p, uint8_t scale) {
  Block block = load_e2m1_block(p);
  for (int i = 0; i < kBlockVectors; ++i) block.v[i] *= e8m0_value(scale);
  return block;
}

#endif

struct Fp4Row : Fp4Codes {
  static constexpr bool kScalesInput = false;
  static constexpr bool kFetchesBelow = false;
  static constexpr float kOutputFactor = kFp4Factor;

  using Fp4Codes::Fp4Codes;
  CACHALOT_INLINE_MEMBER void advance() {
    Fp4Codes::advance(1);
    CACHALOT_POINTER(codes);
    CACHALOT_POINTER(scales);
  }
  CACHALOT_INLINE_MEMBER Block block(int64_t b) const { return load_e2m1_scaled(at(b), scales[b]); }
};

}  // namespace
}  // namespace cachalot::cpu
