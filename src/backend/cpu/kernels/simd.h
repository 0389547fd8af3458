// Vectors for the kernels: kLanes floats, compiled once per instruction set with that set's flags
// (../CMakeLists.txt), 8 lanes for generic and AVX2, 16 for AVX-512.
//
// A kernel file includes this and calls nothing of the standard library: everything is local to its
// object, so that the linker can never pick an AVX-512 copy of a shared inline function for the
// whole program (the test kernel_objects_have_no_weak_symbols). Built with -ffp-contract=off:
// only fma() fuses, so one source line rounds the same way wherever it is inlined.
#pragma once

#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define CACHALOT_INLINE static inline __attribute__((always_inline))
#define CACHALOT_INLINE_MEMBER inline __attribute__((always_inline))

namespace cachalot::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

typedef float F32 __attribute__((vector_size(kLanes * 4), may_alias));
typedef int32_t I32 __attribute__((vector_size(kLanes * 4), may_alias));
typedef uint32_t U32 __attribute__((vector_size(kLanes * 4), may_alias));
typedef uint16_t U16 __attribute__((vector_size(kLanes * 2), may_alias));
typedef uint8_t U8 __attribute__((vector_size(kLanes), may_alias));

// As they lie in memory: any alignment.
typedef float F32Memory __attribute__((vector_size(kLanes * 4), may_alias, aligned(1)));
typedef uint16_t U16Memory __attribute__((vector_size(kLanes * 2), may_alias, aligned(1)));
typedef uint8_t U8Memory __attribute__((vector_size(kLanes), may_alias, aligned(1)));

// ------------------------------------------------------------------------------------- arithmetic

CACHALOT_INLINE F32 splat(float value) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(value);
#elif defined(__AVX2__)
  return _mm256_set1_ps(value);
#else
  return F32{value, value, value, value, value, value, value, value};
#endif
}
CACHALOT_INLINE I32 splat(int32_t value) { return I32{} + value; }
CACHALOT_INLINE F32 load(const float* p) { return *reinterpret_cast<const F32Memory*>(p); }
CACHALOT_INLINE void store(float* p, F32 v) { *reinterpret_cast<F32Memory*>(p) = v; }

CACHALOT_INLINE float bits_to_float(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
CACHALOT_INLINE uint32_t float_to_bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}

// a * b + c, one rounding where the hardware has it, two in generic.
CACHALOT_INLINE F32 fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// The second operand where either is NaN: put the constant first to let a NaN through.
CACHALOT_INLINE F32 max(F32 a, F32 b) { return a > b ? a : b; }
CACHALOT_INLINE F32 min(F32 a, F32 b) { return a < b ? a : b; }
CACHALOT_INLINE F32 abs(F32 v) { return (F32)((I32)v & 0x7FFFFFFF); }

// All lanes by op, lane pairs at distance 8, 4, 2, 1: the one order of every horizontal sum.
template <class Op>
CACHALOT_INLINE float over_lanes(F32 v, const Op& op) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
  const __m256 eight = op(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#else
  const __m256 eight = v;
#endif
  const __m128 four = op(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = op(four, _mm_movehl_ps(four, four));
  return op(two, _mm_movehdup_ps(two))[0];
#else
  const float a = op(v[0], v[4]), b = op(v[1], v[5]), c = op(v[2], v[6]), d = op(v[3], v[7]);
  return op(op(a, c), op(b, d));
#endif
}

CACHALOT_INLINE float sum(F32 v) {
  return over_lanes(v, [](auto a, auto b) { return a + b; });
}
CACHALOT_INLINE float max_of(F32 v) {
  return over_lanes(v, [](auto a, auto b) { return a > b ? a : b; });
}

// ------------------------------------------------------------------------------------------ BF16

CACHALOT_INLINE F32 load_bf16(const void* p) {
#if defined(__AVX512F__)
  const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#elif defined(__AVX2__)
  const __m128i halves = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
#else
  const U16 halves = *static_cast<const U16Memory*>(p);
  return (F32)(__builtin_convertvector(halves, U32) << 16);
#endif
}

// RNE, NaN stays NaN: base/number_formats.h, to_bf16, in every lane.
CACHALOT_INLINE U32 bf16_bits(F32 v) {
  const U32 bits = (U32)v;
  const U32 rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  return ((bits & 0x7FFFFFFFu) > 0x7F800000u ? bits | 0x400000u : rounded) >> 16;
}
CACHALOT_INLINE F32 round_bf16(F32 v) { return (F32)(bf16_bits(v) << 16); }
CACHALOT_INLINE void store_bf16(void* p, F32 v) {
  *static_cast<U16Memory*>(p) = __builtin_convertvector(bf16_bits(v), U16);
}
CACHALOT_INLINE uint16_t bf16_bits(float value) {
  const uint32_t bits = float_to_bits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
CACHALOT_INLINE float bf16_value(uint16_t bits) { return bits_to_float(uint32_t{bits} << 16); }

// ------------------------------------------------------------------------------------ FP8 and FP4

// 32 consecutive values, value k in lane k mod kLanes.
constexpr int kBlock = 32;
constexpr int kBlockVectors = kBlock / kLanes;
struct Block {
  F32 v[kBlockVectors];
};

// Decoded FP8 and FP4 values come times 2^-8; whoever multiplies makes up for it exactly.
constexpr float kDecodeFactor = 0x1p-8f;

#if !defined(__AVX2__)
// Without byte shuffles and half-precision conversion a table is the fastest decoder.
struct Tables {
  float e4m3[256] = {};
  float e2m1[256][2] = {};  // both values of a byte

  constexpr Tables() {
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15;
      float value = static_cast<float>(exponent == 0 ? code & 7 : 8 + (code & 7)) * 0x1p-17f;
      for (int e = 1; e < exponent; ++e) value *= 2;
      e4m3[code] = code & 0x80 ? -value : value;
      e2m1[code][0] = e2m1_value(code & 15);
      e2m1[code][1] = e2m1_value(code >> 4);
    }
  }

 private:
  static constexpr float e2m1_value(int code) {
    const int exponent = code >> 1 & 3;
    float value = static_cast<float>(exponent == 0 ? code & 1 : 2 + (code & 1)) * 0x1p-9f;
    for (int e = 1; e < exponent; ++e) value *= 2;
    return code & 8 ? -value : value;
  }
};
constexpr Tables kTables;
#endif

// kLanes E4M3 codes. The code's bits, moved into a half-precision number, are 2^-8 of its value,
// subnormals included. NaN codes give 480 * 2^-8: the loader refuses none, and none occurs.
CACHALOT_INLINE F32 load_e4m3(const uint8_t* p) {
#if defined(__AVX512F__)
  const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(0xBFFF)));
#elif defined(__AVX2__)
  const __m128i words = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_cvtph_ps(
      _mm_and_si128(_mm_slli_epi16(words, 7), _mm_set1_epi16(static_cast<int16_t>(0xBFFF))));
#else
  float values[kLanes];
  for (int i = 0; i < kLanes; ++i) values[i] = kTables.e4m3[p[i]];
  return load(values);
#endif
}

// 16 bytes, two E2M1 codes each, the low nibble first.
CACHALOT_INLINE Block load_e2m1_block(const uint8_t* p) {
  Block block;
#if defined(__AVX2__)
  const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i nibble = _mm_set1_epi8(0xF);
  const __m128i even = _mm_and_si128(packed, nibble);
  const __m128i odd = _mm_and_si128(_mm_srli_epi16(packed, 4), nibble);
#if defined(__AVX512F__)
  const __m512 grid =
      _mm512_mul_ps(_mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                   -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f),
                    _mm512_set1_ps(kDecodeFactor));
  block.v[0] = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(even, odd)), grid);
  block.v[1] = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_unpackhi_epi8(even, odd)), grid);
#else
  // High bytes of the halves 2^-8 * {0, .5, 1, 1.5, 2, 3, 4, 6}; their low bytes are zero.
  const __m128i grid = _mm_setr_epi8(0, 0x18, 0x1C, 0x1E, 0x20, 0x22, 0x24, 0x26, -0x80, -0x68,
                                     -0x64, -0x62, -0x60, -0x5E, -0x5C, -0x5A);
  const __m128i even_halves = _mm_shuffle_epi8(grid, even);
  const __m128i odd_halves = _mm_shuffle_epi8(grid, odd);
  const __m128i low = _mm_unpacklo_epi8(even_halves, odd_halves);
  const __m128i high = _mm_unpackhi_epi8(even_halves, odd_halves);
  const __m128i zero = _mm_setzero_si128();
  block.v[0] = _mm256_cvtph_ps(_mm_unpacklo_epi8(zero, low));
  block.v[1] = _mm256_cvtph_ps(_mm_unpackhi_epi8(zero, low));
  block.v[2] = _mm256_cvtph_ps(_mm_unpacklo_epi8(zero, high));
  block.v[3] = _mm256_cvtph_ps(_mm_unpackhi_epi8(zero, high));
#endif
#else
  float values[kBlock];
  for (int i = 0; i < kBlock / 2; ++i) __builtin_memcpy(values + 2 * i, kTables.e2m1[p[i]], 8);
  for (int i = 0; i < kBlockVectors; ++i) block.v[i] = load(values + i * kLanes);
#endif
  return block;
}

// 2^(code - 127); 0 is the denormal 2^-127, 255 NaN.
CACHALOT_INLINE float e8m0_value(uint8_t code) {
  if (code == 0) return bits_to_float(0x00400000u);
  return bits_to_float(code == 255 ? 0x7FC00000u : uint32_t{code} << 23);
}

// Scale code of an FP8 group from its largest magnitude (spec: model, 2.1 and 2.2).
CACHALOT_INLINE uint8_t fp8_scale_code_of(float largest) {
  const float bounded = largest > 1e-4f ? largest : 1e-4f;
  const uint32_t bits = float_to_bits(bounded * bits_to_float(0x3b124925u));
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFFu) != 0));
}

// The nearest E4M3 value, saturating at 448. Adding and subtracting 1.5 * 2^(e + 20) rounds v to a
// multiple of 2^(e - 3), e being v's exponent or -6 for the subnormals.
CACHALOT_INLINE F32 round_e4m3(F32 v) {
  v = min(splat(448.0f), max(splat(-448.0f), v));
  const I32 exponent = (I32)v & 0x7F800000;
  const I32 smallest = splat(int32_t{(127 - 6) << 23});
  const F32 shift = (F32)(((exponent > smallest ? exponent : smallest) + (20 << 23)) | 0x400000);
  return (v + shift) - shift;
}

// ---------------------------------------------------------------------------- exp, sigmoid, silu

// e^v, at most 1 ulp off (tests: row kernels); 0 below -104, infinite above 88.73, NaN stays.
CACHALOT_INLINE F32 exp(F32 v) {
  v = min(splat(89.0f), max(splat(-104.5f), v));
  // v = n ln 2 + r: the upper part of ln 2 has 10 bits, so n * upper is exact.
  constexpr float kRounder = 0x1.8p23f;
  const F32 n = (v * 0x1.715476p0f + kRounder) - kRounder;
  const F32 r = fma(n, splat(0x1.bd0106p-13f), fma(n, splat(-0x1.63p-1f), v));
  // Taylor to r^7 on |r| <= 0.35: the rest is below 6e-9.
  F32 p = splat(1.0f / 5040);
  p = fma(p, r, splat(1.0f / 720));
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p * r, r, r) + 1.0f;
  // 2^n in two steps, because 2^128 and 2^-150 are no floats.
  const I32 whole = __builtin_convertvector(n, I32);
  const I32 half = whole >> 1;
  return p * (F32)((half + 127) << 23) * (F32)((whole - half + 127) << 23);
}

CACHALOT_INLINE F32 sigmoid(F32 v) { return 1.0f / (1.0f + exp(-v)); }
CACHALOT_INLINE F32 silu(F32 v) { return v * sigmoid(v); }

}  // namespace
}  // namespace cachalot::cpu
