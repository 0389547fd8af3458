// Index scores in whole numbers: twice an E2M1 value is an integer of at most 12, so the products
// of a group of 32 add up exactly in integers, and only the groups' sums, times a power of two, are
// added in FP32.
//
// Lanes are keys: one 32-bit word of a vector holds four channels of one key, which is what the
// byte dot products of AVX2 (unsigned times signed) take. Keys are taken + 12 so that they are
// unsigned, and 12 * sum(query) is taken off again.

constexpr int kKeyOffset = 12;
constexpr int64_t kMostIndexGroups = kMostIndexWidth / 32;

// A prepared query head: `width` doubled values, then per group the scale of the quantizer divided
// by four (both operands are doubled) and what a group's sum starts with, the lanes' integer
// -12 * sum(query).
CACHALOT_INLINE int64_t query_head_bytes(int64_t width) { return width + width / 32 * 8; }

#if defined(__AVX2__)

// Keys of a vector are decoded with even and odd channels apart: of every eight the even ones come
// first.
CACHALOT_INLINE int channel_at(int i) { return i / 8 * 8 + i % 4 * 2 + i / 4 % 2; }

// Four channels of kLanes keys, or of one query head in every lane, and the sums over channels.
// Without a dot product of bytes: eight products of at most 24 * 12, in pairs, so that 16-bit sums,
// which start with the correction in one of the two, stay below 10000.
#if defined(__AVX512BW__)
using Words = __m512i;
#else
using Words = __m256i;
#endif
// The compiler would add integers as a tree, for which there are not enough registers.
CACHALOT_INLINE Words in_order(Words sums) {
  __asm__("" : "+v"(sums));
  return sums;
}
#if defined(__AVX512BW__)
CACHALOT_INLINE Words broadcast_word(const int8_t* from) {
  int32_t word;
  __builtin_memcpy(&word, from, 4);
  return _mm512_set1_epi32(word);
}
CACHALOT_INLINE Words add_products(Words sums, Words keys, Words query) {
#if defined(__AVX512VNNI__)
  return _mm512_dpbusd_epi32(sums, keys, query);
#else
  return in_order(_mm512_add_epi16(sums, _mm512_maddubs_epi16(keys, query)));
#endif
}
CACHALOT_INLINE F32 total_of(Words sums) {
#if !defined(__AVX512VNNI__)
  sums = _mm512_madd_epi16(sums, _mm512_set1_epi16(1));
#endif
  return _mm512_cvtepi32_ps(sums);
}
// The two halves of 32-bit or 64-bit pairs, within 128 bits.
CACHALOT_INLINE Words low_words(Words a, Words b) { return _mm512_unpacklo_epi32(a, b); }
CACHALOT_INLINE Words high_words(Words a, Words b) { return _mm512_unpackhi_epi32(a, b); }
CACHALOT_INLINE Words low_pairs(Words a, Words b) { return _mm512_unpacklo_epi64(a, b); }
CACHALOT_INLINE Words high_pairs(Words a, Words b) { return _mm512_unpackhi_epi64(a, b); }
// Sixteen bytes of every fourth row.
CACHALOT_INLINE Words load_codes(const uint8_t* const* rows, int64_t offset) {
  const auto at = [&](int key) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[key] + offset));
  };
  Words codes = _mm512_castsi128_si512(at(0));
  codes = _mm512_inserti32x4(codes, at(4), 1);
  codes = _mm512_inserti32x4(codes, at(8), 2);
  return _mm512_inserti32x4(codes, at(12), 3);
}
// Channels + kKeyOffset of the codes' low and high nibbles.
CACHALOT_INLINE void decode_nibbles(Words codes, __m128i grid, Words& even, Words& odd) {
  const Words table = _mm512_broadcast_i32x4(grid), nibble = _mm512_set1_epi8(0xF);
  even = _mm512_shuffle_epi8(table, _mm512_and_si512(codes, nibble));
  odd = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
}
#else
CACHALOT_INLINE Words broadcast_word(const int8_t* from) {
  int32_t word;
  __builtin_memcpy(&word, from, 4);
  return _mm256_set1_epi32(word);
}
CACHALOT_INLINE Words add_products(Words sums, Words keys, Words query) {
  return in_order(_mm256_add_epi16(sums, _mm256_maddubs_epi16(keys, query)));
}
CACHALOT_INLINE F32 total_of(Words sums) {
  return _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
}
// The two halves of 32-bit or 64-bit pairs, within 128 bits.
CACHALOT_INLINE Words low_words(Words a, Words b) { return _mm256_unpacklo_epi32(a, b); }
CACHALOT_INLINE Words high_words(Words a, Words b) { return _mm256_unpackhi_epi32(a, b); }
CACHALOT_INLINE Words low_pairs(Words a, Words b) { return _mm256_unpacklo_epi64(a, b); }
CACHALOT_INLINE Words high_pairs(Words a, Words b) { return _mm256_unpackhi_epi64(a, b); }
// Sixteen bytes of every fourth row.
CACHALOT_INLINE Words load_codes(const uint8_t* const* rows, int64_t offset) {
  const auto at = [&](int key) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[key] + offset));
  };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(at(0)), at(4), 1);
}
// Channels + kKeyOffset of the codes' low and high nibbles.
CACHALOT_INLINE void decode_nibbles(Words codes, __m128i grid, Words& even, Words& odd) {
  const Words table = _mm256_broadcastsi128_si256(grid), nibble = _mm256_set1_epi8(0xF);
  even = _mm256_shuffle_epi8(table, _mm256_and_si256(codes, nibble));
  odd = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble));
}
#endif

#if defined(__AVX512VNNI__)
CACHALOT_INLINE int32_t start_of_sums(int32_t correction) { return -correction; }
#else
CACHALOT_INLINE int32_t start_of_sums(int32_t correction) { return -correction & 0xFFFF; }
#endif

// quads[step * d] = dword d of the kLanes rows that `keys` hold four apart.
CACHALOT_INLINE void transpose_keys(const Words (&keys)[4], Words* quads, int step) {
  const Words low01 = low_words(keys[0], keys[1]), high01 = high_words(keys[0], keys[1]);
  const Words low23 = low_words(keys[2], keys[3]), high23 = high_words(keys[2], keys[3]);
  quads[0] = low_pairs(low01, low23);
  quads[step] = high_pairs(low01, low23);
  quads[2 * step] = low_pairs(high01, high23);
  quads[3 * step] = high_pairs(high01, high23);
}

// A group of kLanes keys: its channels in quads of four.
CACHALOT_INLINE void decode_group(const uint8_t* const* rows, int64_t offset, Words* quads) {
  const __m128i grid = _mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kDoubledGrid)),
                                    _mm_set1_epi8(kKeyOffset));
  Words even[4], odd[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    decode_nibbles(load_codes(rows + i, offset), grid, even[i], odd[i]);
  }
  transpose_keys(even, quads, 2);
  transpose_keys(odd, quads + 1, 2);
}
#else
CACHALOT_INLINE int channel_at(int i) { return i; }
CACHALOT_INLINE int32_t start_of_sums(int32_t correction) { return -correction; }
#endif

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
      const int32_t start = start_of_sums(correction);
      __builtin_memcpy(values + width + g * 8, &scale, 4);
      __builtin_memcpy(values + width + g * 8 + 4, &start, 4);
    }
  }
}

// The values of E8M0 codes. No key has code 255.
CACHALOT_INLINE F32 scales_of(U32 codes) {
  const U32 bits = codes << 23;
  return (F32)(bits > 0x00400000u ? bits : U32{} + 0x00400000u);
}

// The scales of every group of kLanes keys. Four groups' lie in one word.
CACHALOT_INLINE void load_scales(const uint8_t* const* rows, int64_t width, F32* scales) {
  const int64_t groups = width / 32;
  if (groups == 4) {
    U32 words;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      uint32_t word;
      __builtin_memcpy(&word, rows[i] + width / 2, 4);
      words[i] = word;
    }
    for (int g = 0; g < 4; ++g) scales[g] = scales_of(words >> (8 * g) & 0xFF);
    return;
  }
  for (int64_t g = 0; g < groups; ++g) {
    U32 codes;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) codes[i] = rows[i][width / 2 + g];
    scales[g] = scales_of(codes);
  }
}

CACHALOT_INLINE float group_scale(const int8_t* head, int64_t width, int64_t g) {
  float scale;
  __builtin_memcpy(&scale, head + width + g * 8, 4);
  return scale;
}

#if defined(__AVX2__)

// Up to kIndexTile keys, decoded: [vector of keys][group][8] quads, [vector][group] scales.
constexpr int64_t kKeyVectors = kIndexTile / kLanes;
struct KeyTile {
  Words quads[kKeyVectors * kMostIndexGroups * 8];
  F32 scales[kKeyVectors * kMostIndexGroups];
};

// Adds `heads` and `vectors` of a tile in registers: every operand that is loaded serves several
// products. quads and scales are those of the first vector.
template <int kHeads, int kVectors>
CACHALOT_INLINE void add_heads(const int8_t* query, const float* weights, int64_t width,
                               const Words* quads, const F32* scales, F32* totals) {
  const int64_t groups = width / 32, stride = query_head_bytes(width);
  F32 dots[kHeads][kVectors];
  for (int64_t g = 0; g < groups; ++g) {
    Words sums[kHeads][kVectors];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Words start = broadcast_word(query + h * stride + width + g * 8 + 4);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[h][v] = start;
    }
#pragma GCC unroll 8
    for (int q = 0; q < 8; ++q) {
      Words keys[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) keys[v] = quads[(v * groups + g) * 8 + q];
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const Words four = broadcast_word(query + h * stride + g * 32 + q * 4);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sums[h][v] = add_products(sums[h][v], keys[v], four);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const F32 scale = splat(group_scale(query + h * stride, width, g));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        // Scales are powers of two: their product and its product with the sum are exact.
        const F32 factor = scales[v * groups + g] * scale, dot = total_of(sums[h][v]);
        dots[h][v] = g == 0 ? dot * factor : fma(dot, factor, dots[h][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      totals[v] = fma(splat(weights[h]), max(dots[h][v], F32{}), totals[v]);
    }
  }
}

// The scores of kVectors vectors of keys.
template <int kVectors>
void score_vectors(const int8_t* query, const float* weights, int64_t heads, int64_t width,
                   const Words* quads, const F32* scales, F32* totals) {
  // Four heads times two vectors of sums and their operands fit 16 registers.
  constexpr int kHeads = 4;
  const int64_t stride = query_head_bytes(width);
  F32 total[kVectors] = {};
  int64_t h = 0;
  for (; h + kHeads <= heads; h += kHeads) {
    add_heads<kHeads, kVectors>(query + h * stride, weights + h, width, quads, scales, total);
  }
  for (; h < heads; ++h) {
    add_heads<1, kVectors>(query + h * stride, weights + h, width, quads, scales, total);
  }
  for (int v = 0; v < kVectors; ++v) totals[v] = total[v];
}

void index_scores(const void* query, const float* weights, int64_t heads, int64_t width,
                  const uint8_t* const* keys, int64_t count, float* scores) {
  const int64_t groups = width / 32, vectors = (count + kLanes - 1) / kLanes;
  KeyTile tile;
  for (int64_t v = 0; v < vectors; ++v) {
    const uint8_t* rows[kLanes];  // idle lanes repeat the last key
    for (int64_t i = 0; i < kLanes; ++i) {
      rows[i] = keys[v * kLanes + i < count ? v * kLanes + i : count - 1];
    }
    for (int64_t g = 0; g < groups; ++g) {
      decode_group(rows, g * 16, tile.quads + (v * groups + g) * 8);
    }
    load_scales(rows, width, tile.scales + v * groups);
  }
  const auto* heads_of = static_cast<const int8_t*>(query);
  for (int64_t v = 0; v < vectors; v += 2) {
    const Words* quads = tile.quads + v * groups * 8;
    const F32* scales = tile.scales + v * groups;
    F32 totals[2];
    if (v + 1 < vectors) {
      score_vectors<2>(heads_of, weights, heads, width, quads, scales, totals);
      store(scores + v * kLanes, totals[0]);
    } else {
      score_vectors<1>(heads_of, weights, heads, width, quads, scales, totals + 1);
    }
    const int64_t last = v + 1 < vectors ? v + 1 : v, left = count - last * kLanes;
    store(scores + last * kLanes, totals[1], left < kLanes ? left : kLanes);
  }
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
CACHALOT_INLINE I32 group_dot(const GroupKeys& keys, const int8_t* query, int32_t start) {
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
  return total + start;
}

constexpr int64_t kMostIndexHeads = 128;

void index_scores(const void* query, const float* weights, int64_t heads, int64_t width,
                  const uint8_t* const* keys, int64_t count, float* scores) {
  const int64_t groups = width / 32;
  for (int64_t at = 0; at < count; at += kLanes) {
    const int64_t lanes = count - at < kLanes ? count - at : kLanes;
    const uint8_t* rows[kLanes];  // idle lanes repeat the last key
    for (int64_t i = 0; i < kLanes; ++i) rows[i] = keys[at + (i < lanes ? i : lanes - 1)];
    F32 scales[kMostIndexGroups], dots[kMostIndexHeads];
    load_scales(rows, width, scales);
    for (int64_t g = 0; g < groups; ++g) {
      const GroupKeys group = load_group(rows, g * 16);
      for (int64_t h = 0; h < heads; ++h) {
        const auto* head = static_cast<const int8_t*>(query) + h * query_head_bytes(width);
        int32_t start;
        __builtin_memcpy(&start, head + width + g * 8 + 4, 4);
        const F32 dot = __builtin_convertvector(group_dot(group, head + g * 32, start), F32);
        // Scales are powers of two: their product and its product with the sum are exact.
        const F32 factor = scales[g] * group_scale(head, width, g);
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
#endif
