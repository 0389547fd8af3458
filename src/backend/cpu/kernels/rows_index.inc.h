// Index scores in whole numbers: twice an E2M1 value is an integer of at most 12, so the products
// of a group of 32 add up exactly in integers, and only the groups' sums, times a power of two, are
// added in FP32.
//
// Lanes are keys: one 32-bit word of a vector holds four channels of one key, which is what the
// byte dot products of AVX2 (unsigned times signed) take. Keys are taken + 12 so that they are
// unsigned, and 12 * sum(query) is taken off again.

constexpr int kKeyOffset = 12;

// A prepared query head: `width` doubled values, then per group the scale of the quantizer divided
// by four (both operands are doubled) and the correction 12 * sum(query).
CACHALOT_INLINE int64_t query_head_bytes(int64_t width) { return width + width / 32 * 8; }

// The channel that stands at place i of a group of 32. Where a key's nibbles are decoded without
// interleaving them again, the even ones of every eight come first.
CACHALOT_INLINE int channel_at(int i) {
#if defined(__AVX512BW__)
  return i / 8 * 8 + i % 4 * 2 + i / 4 % 2;
#else
  return i;
#endif
}

void prepare_index_query(const uint8_t* rows, int64_t heads, int64_t width, void* query) {
  const int64_t groups = width / 32;
  for (int64_t h = 0; h < heads; ++h) {
    const uint8_t* row = rows + h * (width / 2 + groups);
    auto* values = static_cast<int8_t*>(query) + h * query_head_bytes(width);
    for (int64_t g = 0; g < groups; ++g) {
      int8_t channels[32];
      doubled_values(row + g * 16, channels);
      for (int i = 0; i < 32; ++i) values[g * 32 + i] = channels[channel_at(i)];
      int32_t correction = 0;
      for (int i = 0; i < 32; ++i) correction += kKeyOffset * values[g * 32 + i];
      const float scale = e8m0_value(row[width / 2 + g]) * 0.25f;
      __builtin_memcpy(values + width + g * 8, &scale, 4);
      __builtin_memcpy(values + width + g * 8 + 4, &correction, 4);
    }
  }
}

// One group of channels of kLanes keys: four channels of every key in one vector.
#if defined(__AVX2__) && !defined(__AVX512BW__)
// 16 packed bytes -> 32 channels + kKeyOffset.
CACHALOT_INLINE __m256i key_channels(const uint8_t* packed) {
  const __m128i grid = _mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kDoubledGrid)),
                                    _mm_set1_epi8(kKeyOffset));
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(packed));
  const __m128i nibble = _mm_set1_epi8(0xF);
  const __m128i even = _mm_shuffle_epi8(grid, _mm_and_si128(bytes, nibble));
  const __m128i odd = _mm_shuffle_epi8(grid, _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
  return _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
}

// quads[q] = channels 4q .. 4q + 3 of eight keys: an 8 x 8 transpose of 32-bit words.
CACHALOT_INLINE void transpose_keys(const uint8_t* const* rows, int64_t offset, __m256i* quads) {
  __m256i pairs[8], fours[8];
  for (int i = 0; i < 8; i += 2) {
    const __m256i a = key_channels(rows[i] + offset), b = key_channels(rows[i + 1] + offset);
    pairs[i] = _mm256_unpacklo_epi32(a, b);
    pairs[i + 1] = _mm256_unpackhi_epi32(a, b);
  }
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    quads[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
    quads[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
  }
}
#endif

CACHALOT_INLINE int32_t four_channels(const int8_t* query) {
  int32_t four;
  __builtin_memcpy(&four, query, 4);
  return four;
}

// The products of a group less the correction. Without a dot product of bytes: eight products of at
// most 24 * 12, in pairs, so that 16-bit sums stay below 5000.
#if defined(__AVX512BW__)
struct GroupKeys {
  __m512i quads[8];
};
// quads[d] = dword d of sixteen keys, where lane j of keys[i] is key 4 * j + i.
CACHALOT_INLINE void transpose_keys(const __m512i* keys, __m512i* quads, int step) {
  const __m512i low01 = _mm512_unpacklo_epi32(keys[0], keys[1]);
  const __m512i high01 = _mm512_unpackhi_epi32(keys[0], keys[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(keys[2], keys[3]);
  const __m512i high23 = _mm512_unpackhi_epi32(keys[2], keys[3]);
  quads[0] = _mm512_unpacklo_epi64(low01, low23);
  quads[step] = _mm512_unpackhi_epi64(low01, low23);
  quads[2 * step] = _mm512_unpacklo_epi64(high01, high23);
  quads[3 * step] = _mm512_unpackhi_epi64(high01, high23);
}
CACHALOT_INLINE GroupKeys load_group(const uint8_t* const* rows, int64_t offset) {
  const __m512i grid = _mm512_broadcast_i32x4(_mm_add_epi8(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(kDoubledGrid)), _mm_set1_epi8(kKeyOffset)));
  const __m512i nibble = _mm512_set1_epi8(0xF);
  const auto at = [&](int key) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[key] + offset));
  };
  __m512i even[4], odd[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    __m512i codes = _mm512_castsi128_si512(at(i));
    codes = _mm512_inserti32x4(codes, at(4 + i), 1);
    codes = _mm512_inserti32x4(codes, at(8 + i), 2);
    codes = _mm512_inserti32x4(codes, at(12 + i), 3);
    even[i] = _mm512_shuffle_epi8(grid, _mm512_and_si512(codes, nibble));
    odd[i] = _mm512_shuffle_epi8(grid, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
  }
  GroupKeys keys;
  transpose_keys(even, keys.quads, 2);
  transpose_keys(odd, keys.quads + 1, 2);
  return keys;
}
CACHALOT_INLINE I32 group_dot(const GroupKeys& keys, const int8_t* query, int32_t correction) {
#if defined(__AVX512VNNI__)
  __m512i sum = _mm512_set1_epi32(-correction);
  for (int q = 0; q < 8; ++q) {
    sum = _mm512_dpbusd_epi32(sum, keys.quads[q], _mm512_set1_epi32(four_channels(query + q * 4)));
  }
  return (I32)sum;
#else
  __m512i total = _mm512_setzero_si512();
  for (int q = 0; q < 8; ++q) {
    const __m512i four = _mm512_set1_epi32(four_channels(query + q * 4));
    total = _mm512_add_epi16(total, _mm512_maddubs_epi16(keys.quads[q], four));
  }
  return (I32)_mm512_madd_epi16(total, _mm512_set1_epi16(1)) - correction;
#endif
}
#elif defined(__AVX2__)
struct GroupKeys {
  __m256i quads[8];
};
CACHALOT_INLINE GroupKeys load_group(const uint8_t* const* rows, int64_t offset) {
  GroupKeys keys;
  transpose_keys(rows, offset, keys.quads);
  return keys;
}
CACHALOT_INLINE I32 group_dot(const GroupKeys& keys, const int8_t* query, int32_t correction) {
  __m256i total = _mm256_setzero_si256();
  for (int q = 0; q < 8; ++q) {
    const __m256i four = _mm256_set1_epi32(four_channels(query + q * 4));
    total = _mm256_add_epi16(total, _mm256_maddubs_epi16(keys.quads[q], four));
  }
  return (I32)_mm256_madd_epi16(total, _mm256_set1_epi16(1)) - correction;
}
#else
// Whole numbers below 2^24: FP32 adds them exactly. Halves of a vector, because GCC keeps a vector
// wider than the machine's in memory.
typedef float FourFloats __attribute__((vector_size(16), may_alias));
static_assert(kLanes == 8);
struct GroupKeys {
  alignas(16) float channels[32][kLanes];
};
CACHALOT_INLINE GroupKeys load_group(const uint8_t* const* rows, int64_t offset) {
  GroupKeys keys;
  for (int lane = 0; lane < kLanes; ++lane) {
    int8_t values[32];
    doubled_values(rows[lane] + offset, values);
    for (int i = 0; i < 32; ++i) {
      keys.channels[i][lane] = static_cast<float>(values[i] + kKeyOffset);
    }
  }
  return keys;
}
CACHALOT_INLINE I32 group_dot(const GroupKeys& keys, const int8_t* query, int32_t correction) {
  FourFloats low{}, high{};
  for (int i = 0; i < 32; ++i) {
    const float factor = static_cast<float>(query[i]);
    low += *reinterpret_cast<const FourFloats*>(keys.channels[i]) * factor;
    high += *reinterpret_cast<const FourFloats*>(keys.channels[i] + 4) * factor;
  }
  I32 total;
  for (int i = 0; i < 4; ++i) {
    total[i] = static_cast<int32_t>(low[i]);
    total[i + 4] = static_cast<int32_t>(high[i]);
  }
  return total - correction;
}
#endif

// The scales of a group of every key. No key has code 255.
CACHALOT_INLINE F32 group_scales(const uint8_t* const* rows, int64_t offset) {
  U32 codes;
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) codes[i] = rows[i][offset];
  const U32 bits = codes << 23;
  return (F32)(bits > 0x00400000u ? bits : U32{} + 0x00400000u);
}

constexpr int64_t kMostIndexHeads = 128;

void index_scores(const void* query, const float* weights, int64_t heads, int64_t width,
                  const uint8_t* const* keys, int64_t count, float* scores) {
  const int64_t groups = width / 32;
  for (int64_t at = 0; at < count; at += kLanes) {
    const int64_t lanes = count - at < kLanes ? count - at : kLanes;
    const uint8_t* rows[kLanes];  // idle lanes repeat the last key
    for (int64_t i = 0; i < kLanes; ++i) rows[i] = keys[at + (i < lanes ? i : lanes - 1)];
    F32 dots[kMostIndexHeads];
    for (int64_t g = 0; g < groups; ++g) {
      const GroupKeys group = load_group(rows, g * 16);
      const F32 key_scale = group_scales(rows, width / 2 + g);
      for (int64_t h = 0; h < heads; ++h) {
        const auto* head = static_cast<const int8_t*>(query) + h * query_head_bytes(width);
        float scale;
        __builtin_memcpy(&scale, head + width + g * 8, 4);
        const int32_t correction = four_channels(head + width + g * 8 + 4);
        const F32 dot = __builtin_convertvector(group_dot(group, head + g * 32, correction), F32);
        // Scales are powers of two: their product and its product with the sum are exact.
        const F32 factor = key_scale * scale;
        dots[h] = g == 0 ? dot * factor : fma(dot, factor, dots[h]);
      }
    }
    F32 total{};
    for (int64_t h = 0; h < heads; ++h) {
      total = fma(splat(weights[h]), max(dots[h], F32{}), total);
    }
    store(scores + at, total, lanes);
  }
}
