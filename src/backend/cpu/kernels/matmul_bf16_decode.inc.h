// FP8 and FP4 codes decoded to BF16, 32 columns of a row in one register, for the kernels that
// multiply BF16 values.
//
// Scales are added to the exponents of the decoded codes, exact while they are powers of two within
// kScaleRange.
#pragma once

#include "backend/cpu/kernels/simd.h"

namespace cachalot::cpu {
namespace {

// Codes reach from 2^-9 to 448: with a scale of 2^-64 to 2^64 no product leaves BF16's normal
// numbers, and neither do products with quantized activations (2^-31 and more) leave FP32's.
constexpr int kScaleRange = 64;

// A constant the compiler keeps in a register instead of making it anew in every iteration.
CACHALOT_INLINE __m512i kept(__m512i value) {
  __asm__("" : "+v"(value));
  return value;
}

// ------------------------------------------------------------------------------------------- FP8

// Whether all of these scales can be added to exponents.
CACHALOT_INLINE bool scales_fold(const float* scales, int64_t count) {
  for (int64_t b = 0; b < count; ++b) {
    const uint32_t bits = float_to_bits(scales[b]);
    const int exponent = static_cast<int>(bits >> 23) - 127;
    if (bits & 0x7FFFFF || exponent < -kScaleRange || exponent > kScaleRange) return false;
  }
  return true;
}

struct Fp8Constants {
  __m512i low_bits = kept(_mm512_set1_epi16(0x7F));
  __m512i eight = kept(_mm512_set1_epi16(8));
  __m512i sign_bit = kept(_mm512_set1_epi16(-0x8000));
};

// What the codes of one scale tile become.
struct Fp8Decoder {
  __m512i normal;      // added to a normal code's bits
  __m512i subnormals;  // the eight smallest magnitudes

  explicit Fp8Decoder(int exponent) {
    const __m512i shift = _mm512_set1_epi16(static_cast<int16_t>(exponent * 128));
    normal = kept(_mm512_add_epi16(shift, _mm512_set1_epi16(120 << 7)));
    // m * 2^-9 for m = 0..7, repeated: only three bits of the index matter. 0 stays 0.
    const __m512i unscaled = _mm512_broadcast_i32x4(
        _mm_setr_epi16(0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60));
    subnormals = kept(_mm512_mask_add_epi16(unscaled, 0xFEFEFEFEu, unscaled, shift));
  }

  CACHALOT_INLINE_MEMBER __m512i decode(const uint8_t* codes, const Fp8Constants& c) const {
    const __m512i words =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
    const __m512i magnitude = _mm512_and_si512(words, c.low_bits);
    const __m512i large = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), normal);
    const __mmask32 small = _mm512_cmplt_epu16_mask(magnitude, c.eight);
    const __m512i value = _mm512_mask_permutexvar_epi16(large, small, magnitude, subnormals);
    // value | (words << 8 & sign_bit)
    return _mm512_ternarylogic_epi32(value, _mm512_slli_epi16(words, 8), c.sign_bit, 0xF8);
  }
};

// The same by tables of 128 magnitudes, for two blocks at a time.
struct E4m3Bytes {
  alignas(64) uint8_t low[128] = {}, high[128] = {};  // of the BF16 value

  constexpr E4m3Bytes() {
    constexpr uint16_t kSubnormals[8] = {0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60};
    for (int code = 0; code < 128; ++code) {
      const int value = code < 8 ? kSubnormals[code] : (code << 4) + (120 << 7);
      low[code] = static_cast<uint8_t>(value);
      high[code] = static_cast<uint8_t>(value >> 8);
    }
  }
};
constexpr E4m3Bytes kE4m3Bytes;

// What a power of two adds to a BF16 value's bits.
CACHALOT_INLINE __m512i exponent_shift(float scale) {
  return _mm512_set1_epi16(static_cast<int16_t>((float_to_bits(scale) >> 16) - (127 << 7)));
}

// BF16 values times the power of two that exponent_shift() was given; what has none of the bits of
// `nonzero` stays as it is.
CACHALOT_INLINE __m512i shifted(__m512i values, __m512i shift, __m512i nonzero) {
  return _mm512_mask_add_epi16(values, _mm512_test_epi16_mask(values, nonzero), values, shift);
}

struct Fp8Tables {
  __m512i low[2] = {kept(_mm512_load_si512(kE4m3Bytes.low)),
                    kept(_mm512_load_si512(kE4m3Bytes.low + 64))};
  __m512i high[2] = {kept(_mm512_load_si512(kE4m3Bytes.high)),
                     kept(_mm512_load_si512(kE4m3Bytes.high + 64))};
  __m512i halves = kept(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7));
  __m512i sign = kept(_mm512_set1_epi8(-0x80));
  __m512i magnitude = kept(_mm512_set1_epi16(0x7FFF));

  // One or two blocks of codes, without scales.
  template <int kBlocks>
  CACHALOT_INLINE_MEMBER void decode(const uint8_t* codes, __m512i* out) const {
    __m512i bytes;
    if constexpr (kBlocks == 2) {
      bytes = _mm512_loadu_si512(codes);
    } else {
      bytes = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
    }
    // Eight codes of the first block, eight of the second one: unpacked, they come apart.
    bytes = _mm512_permutexvar_epi64(halves, bytes);
    const __m512i first = _mm512_permutex2var_epi8(low[0], bytes, low[1]);
    // table | (code & sign)
    const __m512i second = _mm512_ternarylogic_epi32(
        _mm512_permutex2var_epi8(high[0], bytes, high[1]), bytes, sign, 0xF8);
    out[0] = _mm512_unpacklo_epi8(first, second);
    if constexpr (kBlocks == 2) out[1] = _mm512_unpackhi_epi8(first, second);
  }
};

// ------------------------------------------------------------------------------------------- FP4

// Whether all of these scales are 2^-exponent to 2^exponent.
CACHALOT_INLINE bool scales_within(const uint8_t* scales, int64_t count, int exponent) {
  __m512i least = _mm512_set1_epi8(127), most = least;
  for (int64_t b = 0; b < count; b += 64) {
    const __mmask64 there = count - b < 64 ? (uint64_t{1} << (count - b)) - 1 : ~uint64_t{0};
    const __m512i codes = _mm512_mask_loadu_epi8(_mm512_set1_epi8(127), there, scales + b);
    least = _mm512_min_epu8(least, codes);
    most = _mm512_max_epu8(most, codes);
  }
  return !_mm512_cmplt_epu8_mask(least, _mm512_set1_epi8(static_cast<char>(127 - exponent))) &&
         !_mm512_cmpgt_epu8_mask(most, _mm512_set1_epi8(static_cast<char>(127 + exponent)));
}

// Whether all of these scales can be added to exponents.
CACHALOT_INLINE bool scales_fold(const uint8_t* scales, int64_t count) {
  return scales_within(scales, count, kScaleRange);
}

}  // namespace
}  // namespace cachalot::cpu
