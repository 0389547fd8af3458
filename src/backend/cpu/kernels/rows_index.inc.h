// Index scores in whole numbers: twice an E2M1 value is an integer of at most 12, so the products
// of a group of 32 add up exactly in integers, and only the groups' sums, times a power of two, are
// added in FP32.
//
// Lanes are keys. A tile of keys lies as [group][four channels][key][channel], one byte each, which
// is what the byte dot products of AVX2 (unsigned times signed) take: keys are stored + 12 so that
// they are unsigned, and 12 * sum(query) is taken off again.

constexpr int kKeyOffset = 12;

// A prepared query head: `width` doubled values, then per group the scale of the quantizer divided
// by four (both operands are doubled) and the correction 12 * sum(query).
CACHALOT_INLINE int64_t query_head_bytes(int64_t width) { return width + width / 32 * 8; }

void prepare_index_query(const uint8_t* rows, int64_t heads, int64_t width, void* query) {
  const int64_t groups = width / 32;
  for (int64_t h = 0; h < heads; ++h) {
    const uint8_t* row = rows + h * (width / 2 + groups);
    auto* values = static_cast<int8_t*>(query) + h * query_head_bytes(width);
    for (int64_t g = 0; g < groups; ++g) {
      doubled_values(row + g * 16, 16, 0, values + g * 32);
      int32_t correction = 0;
      for (int i = 0; i < 32; ++i) correction += kKeyOffset * values[g * 32 + i];
      const float scale = e8m0_value(row[width / 2 + g]) * 0.25f;
      __builtin_memcpy(values + width + g * 8, &scale, 4);
      __builtin_memcpy(values + width + g * 8 + 4, &correction, 4);
    }
  }
}

#if defined(__AVX512BW__)
CACHALOT_INLINE I32 group_dot(const uint8_t* keys, const int8_t* query) {
  __m512i total = _mm512_setzero_si512();
  for (int quad = 0; quad < 8; ++quad) {
    int32_t four;
    __builtin_memcpy(&four, query + quad * 4, 4);
    const __m512i key = _mm512_loadu_si512(keys + quad * 64);
    total = _mm512_add_epi16(total, _mm512_maddubs_epi16(key, _mm512_set1_epi32(four)));
  }
  return (I32)_mm512_madd_epi16(total, _mm512_set1_epi16(1));
}
#elif defined(__AVX2__)
// 8 products of at most 24 * 12, in pairs: 16-bit sums stay below 5000.
CACHALOT_INLINE I32 group_dot(const uint8_t* keys, const int8_t* query) {
  __m256i total = _mm256_setzero_si256();
  for (int quad = 0; quad < 8; ++quad) {
    int32_t four;
    __builtin_memcpy(&four, query + quad * 4, 4);
    const __m256i key = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys + quad * 32));
    total = _mm256_add_epi16(total, _mm256_maddubs_epi16(key, _mm256_set1_epi32(four)));
  }
  return (I32)_mm256_madd_epi16(total, _mm256_set1_epi16(1));
}
#else
CACHALOT_INLINE I32 group_dot(const uint8_t* keys, const int8_t* query) {
  I32 total{};
  for (int quad = 0; quad < 8; ++quad) {
    const U32 four = load_lanes<U32>(keys + quad * 4 * kLanes, kLanes);
    for (int i = 0; i < 4; ++i) {
      const I32 key = (I32)(four >> (8 * i)) & 0xFF;
      total += key * static_cast<int32_t>(query[quad * 4 + i]);
    }
  }
  return total;
}
#endif

// kLanes keys of one group of channels; keys past `count` repeat the last one.
CACHALOT_INLINE void load_group(const uint8_t* const* keys, int64_t count, int64_t width,
                                int64_t group, uint8_t* tile, float* scales) {
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const uint8_t* row = keys[lane < count ? lane : count - 1];
    int8_t values[32];
    doubled_values(row + group * 16, 16, kKeyOffset, values);
    for (int quad = 0; quad < 8; ++quad) {
      __builtin_memcpy(tile + (quad * kLanes + lane) * 4, values + quad * 4, 4);
    }
    scales[lane] = e8m0_value(row[width / 2 + group]);
  }
}

constexpr int64_t kMostIndexHeads = 128;

void index_scores(const void* query, const float* weights, int64_t heads, int64_t width,
                  const uint8_t* const* keys, int64_t count, float* scores) {
  const int64_t groups = width / 32;
  for (int64_t at = 0; at < count; at += kLanes) {
    const int64_t lanes = count - at < kLanes ? count - at : kLanes;
    F32 dots[kMostIndexHeads];
    for (int64_t g = 0; g < groups; ++g) {
      alignas(64) uint8_t tile[32 * kLanes];
      float key_scales[kLanes];
      load_group(keys + at, lanes, width, g, tile, key_scales);
      const F32 key_scale = load(key_scales);
      for (int64_t h = 0; h < heads; ++h) {
        const auto* head = static_cast<const int8_t*>(query) + h * query_head_bytes(width);
        float scale;
        int32_t correction;
        __builtin_memcpy(&scale, head + width + g * 8, 4);
        __builtin_memcpy(&correction, head + width + g * 8 + 4, 4);
        const F32 dot = __builtin_convertvector(group_dot(tile, head + g * 32) - correction, F32);
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
