// Weight rows as the left tiles of AMX: a group is kGroupRows rows x 64 columns, decoded to BF16 in
// four tiles of 16 rows x 32 columns.
//
// FP8 and FP4 scales are added to the exponents of the decoded codes, exact while they are powers
// of two within kScaleRange.
#pragma once

#include "backend/cpu/kernels/matmul_common.inc.h"

namespace cachalot::cpu {
namespace {

constexpr int64_t kTileBytes = 1024;  // 16 rows x 32 BF16 values
constexpr int64_t kGroupRows = 32;
constexpr int64_t kGroupColumns = 64;
constexpr int64_t kGroupBytes = 4 * kTileBytes;

// Codes reach from 2^-9 to 448: with a scale of 2^-64 to 2^64 no product leaves BF16's normal
// numbers, and neither do products with quantized activations (2^-31 and more) leave FP32's.
constexpr int kScaleRange = 64;

CACHALOT_INLINE int64_t groups_of(int64_t columns) {
  return (columns + kGroupColumns - 1) / kGroupColumns;
}

// Decoding functions stay functions: inlined into one another they would not keep their constants
// in registers.
#define CACHALOT_DECODER __attribute__((noinline))

// A group is decoded in quarters. After each, decode() calls its last argument with the quarter's
// number: a core can multiply one group while it decodes another when their instructions mix.
constexpr int64_t kQuarterRows = kGroupRows / 4;
struct Nothing {
  void operator()(int64_t) const {}
};

// Tiles of a group: columns 0-31 of rows 0-15, of rows 16-31, then the other columns.
CACHALOT_INLINE uint8_t* tile_row(uint8_t* group, int64_t row, int half) {
  return group + (2 * half + row / 16) * kTileBytes + row % 16 * 64;
}

// A constant the compiler keeps in a register instead of making it anew in every iteration.
CACHALOT_INLINE __m512i kept(__m512i value) {
  __asm__("" : "+v"(value));
  return value;
}

// Rows of equal length one after the other. Rows past the last one of a product repeat it; their
// sums are dropped.
class RowsOf {
 public:
  RowsOf(const void* data, int64_t row_bytes, int64_t first, int64_t last)
      : first_(static_cast<const uint8_t*>(data) + first * row_bytes),
        row_bytes_(row_bytes),
        count_(last - first) {}

  int64_t count() const { return count_; }
  int64_t row_bytes() const { return row_bytes_; }
  CACHALOT_INLINE_MEMBER const uint8_t* row(int64_t index) const {
    return first_ + clamped(index, count_) * row_bytes_;
  }

 private:
  const uint8_t* first_;
  int64_t row_bytes_;
  int64_t count_;
};

// Calls f<rows>(first) for the rows of a quarter: once where all exist, so that f can walk through
// them, else for each.
template <class F>
CACHALOT_INLINE void each_run(int64_t quarter, int64_t rows, const F& f) {
  const int64_t first = quarter * kQuarterRows;
  if (first + kQuarterRows <= rows) return f.template operator()<kQuarterRows>(first);
  for (int64_t r = first; r < first + kQuarterRows; ++r) f.template operator()<1>(r);
}

// ------------------------------------------------------------------------------------------- BF16

class Bf16Rows {
 public:
  Bf16Rows(const PackedWeight& w, int64_t first, int64_t last)
      : values_(w.data, w.row_bytes(), first, last), blocks_(w.columns / kBlock) {}

  bool scales_fold() const { return true; }

  template <class F>
  CACHALOT_DECODER void decode(int64_t group, uint8_t* out, F&& after_quarter) const {
    const int64_t offset = group * kGroupColumns * 2;
    const bool whole = 2 * group + 1 < blocks_;
    for (int64_t quarter = 0; quarter < 4; ++quarter) {
      for (int64_t r = quarter * kQuarterRows; r < (quarter + 1) * kQuarterRows; ++r) {
        const uint8_t* row = values_.row(r) + offset;
        _mm512_store_si512(tile_row(out, r, 0), _mm512_loadu_si512(row));
        _mm512_store_si512(tile_row(out, r, 1),
                           whole ? _mm512_loadu_si512(row + 64) : _mm512_setzero_si512());
      }
      after_quarter(quarter);
    }
  }

  void decode_unscaled(int64_t, uint8_t*) const {}
  float scale(int64_t, int64_t) const { return 1.0f; }

 private:
  RowsOf values_;
  int64_t blocks_;
};

// -------------------------------------------------------------------------------------------- FP8

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

  CACHALOT_INLINE_MEMBER __m512i decode(const uint8_t* codes, __m512i low_bits, __m512i eight,
                                        __m512i sign_bit) const {
    const __m512i words =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
    const __m512i magnitude = _mm512_and_si512(words, low_bits);
    const __m512i large = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), normal);
    const __mmask32 small = _mm512_cmplt_epu16_mask(magnitude, eight);
    const __m512i value = _mm512_mask_permutexvar_epi16(large, small, magnitude, subnormals);
    // value | (words << 8 & sign_bit)
    return _mm512_ternarylogic_epi32(value, _mm512_slli_epi16(words, 8), sign_bit, 0xF8);
  }
};

class Fp8Rows {
 public:
  Fp8Rows(const PackedWeight& w, int64_t first, int64_t last)
      : codes_(w.data, w.columns, first, last), blocks_(w.columns / kBlock) {
    // Thirty-two rows lie in one scale tile or in two.
    scales_[0] = w.tile_scales + first / 32 * blocks_;
    const int64_t end = last - first < kGroupRows ? last : first + kGroupRows;
    scales_[1] = w.tile_scales + (end - 1) / 32 * blocks_;
    second_tile_ = scales_[0] == scales_[1] ? kGroupRows : 32 - first % 32;
  }

  bool scales_fold() const {
    for (const float* scales : scales_) {
      for (int64_t b = 0; b < blocks_; ++b) {
        const uint32_t bits = float_to_bits(scales[b]);
        const int exponent = static_cast<int>(bits >> 23) - 127;
        if (bits & 0x7FFFFF || exponent < -kScaleRange || exponent > kScaleRange) return false;
      }
    }
    return true;
  }

  template <class F>
  CACHALOT_DECODER void decode(int64_t group, uint8_t* out, F&& after_quarter) const {
    const int64_t block = 2 * group;
    const bool whole = block + 1 < blocks_;
    if (!whole) __builtin_memset(out, 0, kGroupBytes);
    const Fp8Decoder left[2] = {decoder(0, block), decoder(1, block)};
    const Fp8Decoder right[2] = {decoder(0, block + whole), decoder(1, block + whole)};
    const Constants c;
    for (int64_t quarter = 0; quarter < 4; ++quarter) {
      const int64_t first = quarter * kQuarterRows;
      if (first + kQuarterRows <= second_tile_ || first >= second_tile_) {
        const int tile = first >= second_tile_;
        each_run(quarter, codes_.count(), [&]<int64_t kRows>(int64_t r) {
          decode_rows<kRows>(c, left[tile], block, r, out);
          if (whole) decode_rows<kRows>(c, right[tile], block + 1, r, out);
        });
      } else {
        for (int64_t r = first; r < first + kQuarterRows; ++r) {
          decode_rows<1>(c, left[r >= second_tile_], block, r, out);
          if (whole) decode_rows<1>(c, right[r >= second_tile_], block + 1, r, out);
        }
      }
      after_quarter(quarter);
    }
  }

  // Block `block` of the group's two, the other one zero.
  CACHALOT_DECODER void decode_unscaled(int64_t block, uint8_t* out) const {
    const Fp8Decoder decoder(0);
    const Constants c;
    __builtin_memset(out, 0, kGroupBytes);
    for (int64_t r = 0; r < kGroupRows; ++r) decode_rows<1>(c, decoder, block, r, out);
  }

  float scale(int64_t row, int64_t block) const {
    return scales_[clamped(row, codes_.count()) >= second_tile_][block];
  }

 private:
  struct Constants {
    __m512i low_bits = kept(_mm512_set1_epi16(0x7F));
    __m512i eight = kept(_mm512_set1_epi16(8));
    __m512i sign_bit = kept(_mm512_set1_epi16(-0x8000));
  };

  Fp8Decoder decoder(int tile, int64_t block) const {
    return Fp8Decoder(static_cast<int>(float_to_bits(scales_[tile][block]) >> 23) - 127);
  }

  // kRows rows of a quarter from row `first` on.
  template <int64_t kRows>
  CACHALOT_INLINE_MEMBER void decode_rows(Constants c, Fp8Decoder decoder, int64_t block,
                                          int64_t first, uint8_t* out) const {
    uint8_t* to = tile_row(out, first, static_cast<int>(block % 2));
    const uint8_t* codes = codes_.row(first) + block * kBlock;
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r, to += 64, codes += codes_.row_bytes()) {
      _mm512_store_si512(to, decoder.decode(codes, c.low_bits, c.eight, c.sign_bit));
    }
  }

  RowsOf codes_;
  int64_t blocks_;
  const float* scales_[2];
  int64_t second_tile_;  // the first row whose scales are scales_[1]
};

// -------------------------------------------------------------------------------------------- FP4

// What the sixteen E2M1 codes are worth in BF16 with every scale of kScaleRange; the others, never
// asked for (scales_fold), are there so that a scale's code is its index.
struct E2m1Values {
  alignas(32) uint16_t of[256][16] = {};

  constexpr E2m1Values() {
    constexpr uint16_t kUnscaled[8] = {0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0};
    for (int scale = 0; scale < 256; ++scale) {
      for (int code = 0; code < 16; ++code) {
        const int exponent = code % 8 == 0 ? 0 : (scale - 127) * 128;
        of[scale][code] = static_cast<uint16_t>(kUnscaled[code % 8] + exponent + (code / 8 << 15));
      }
    }
  }
};
constexpr E2m1Values kE2m1Values;

class Fp4Rows {
 public:
  Fp4Rows(const PackedWeight& w, int64_t first, int64_t last)
      : codes_(w.data, w.columns / 2, first, last),
        scales_(w.row_scales, w.columns / kBlock, first, last) {}

  bool scales_fold() const {
    __m512i least = _mm512_set1_epi8(127), most = least;
    const int64_t blocks = scales_.row_bytes();
    for (int64_t r = 0; r < kGroupRows; ++r) {
      for (int64_t b = 0; b < blocks; b += 64) {
        const __mmask64 there = blocks - b < 64 ? (uint64_t{1} << (blocks - b)) - 1 : ~uint64_t{0};
        const __m512i codes =
            _mm512_mask_loadu_epi8(_mm512_set1_epi8(127), there, scales_.row(r) + b);
        least = _mm512_min_epu8(least, codes);
        most = _mm512_max_epu8(most, codes);
      }
    }
    return !_mm512_cmplt_epu8_mask(least, _mm512_set1_epi8(127 - kScaleRange)) &&
           !_mm512_cmpgt_epu8_mask(most, _mm512_set1_epi8(static_cast<char>(127 + kScaleRange)));
  }

  template <class F>
  CACHALOT_DECODER void decode(int64_t group, uint8_t* out, F&& after_quarter) const {
    const __m512i shifts = nibbles();
    const bool whole = 2 * group + 1 < scales_.row_bytes();
    for (int64_t quarter = 0; quarter < 4; ++quarter) {
      each_run(quarter, codes_.count(), [&]<int64_t kRows>(int64_t r) {
        if (whole) {
          decode_rows<kRows, true>(shifts, group, r, out);
        } else {
          decode_rows<kRows, false>(shifts, group, r, out);
        }
      });
      after_quarter(quarter);
    }
  }

  // Block `block` of the group's two with scale 1, the other one zero.
  CACHALOT_DECODER void decode_unscaled(int64_t block, uint8_t* out) const {
    const __m512i shifts = nibbles();
    __builtin_memset(out, 0, kGroupBytes);
    for (int64_t r = 0; r < kGroupRows; ++r) {
      store_block(shifts, codes_.row(r) + block * kBlock / 2, 127,
                  tile_row(out, r, static_cast<int>(block % 2)));
    }
  }

  float scale(int64_t row, int64_t block) const { return e8m0_value(scales_.row(row)[block]); }

 private:
  // kRows rows of a quarter from row `first` on; the second block may be missing.
  template <int64_t kRows, bool kWhole>
  CACHALOT_INLINE_MEMBER void decode_rows(__m512i shifts, int64_t group, int64_t first,
                                          uint8_t* out) const {
    uint8_t* to = tile_row(out, first, 0);
    const uint8_t* codes = codes_.row(first) + group * kGroupColumns / 2;
    const uint8_t* scales = scales_.row(first) + 2 * group;
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      store_block(shifts, codes, scales[0], to);
      if constexpr (kWhole) {
        store_block(shifts, codes + kBlock / 2, scales[1], to + 2 * kTileBytes);
      } else {
        _mm512_store_si512(to + 2 * kTileBytes, _mm512_setzero_si512());
      }
      to += 64;
      codes += codes_.row_bytes();
      scales += scales_.row_bytes();
    }
  }

  // Words of four nibbles each, shifted so that the first, second, third and fourth nibble of all
  // eight words come down one after the other.
  CACHALOT_INLINE_MEMBER static __m512i nibbles() {
    return kept(_mm512_inserti64x4(
        _mm512_castsi256_si512(
            _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_set1_epi16(4), 1)),
        _mm256_inserti128_si256(_mm256_set1_epi16(8), _mm_set1_epi16(12), 1), 1));
  }

  // A block of a row. The permutation looks at five bits of a word, one more than a code has: the
  // sixteen values stand there twice.
  CACHALOT_INLINE_MEMBER static void store_block(__m512i shifts, const uint8_t* codes, int scale,
                                                 uint8_t* out) {
    const __m512i words =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    const __m512i values = _mm512_broadcast_i64x4(
        _mm256_load_si256(reinterpret_cast<const __m256i*>(kE2m1Values.of[scale])));
    _mm512_store_si512(out, _mm512_permutexvar_epi16(_mm512_srlv_epi16(words, shifts), values));
  }

  RowsOf codes_, scales_;
};

}  // namespace
}  // namespace cachalot::cpu
