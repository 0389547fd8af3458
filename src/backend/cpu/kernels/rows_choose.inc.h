// Row kernels of choosing the largest of many scores. A NaN is below every number.

// Maxima of disjoint parts of x: of each lane of `vectors` consecutive vectors. Which elements make
// a part does not matter to who only asks what many of them reach.
int64_t lane_maxima(const float* x, int64_t n, int64_t vectors, float* out) {
  const F32 least = splat(-__builtin_inff());
  int64_t count = 0;
  for (int64_t i = 0; i < n;) {
    F32 top = least;
    for (int64_t v = 0; v < vectors && i < n; ++v, i += kLanes) {
      F32 value = least;
      if (i + kLanes <= n) {
        value = load(x + i);
      } else {
        store_lanes(reinterpret_cast<float*>(&value), load(x + i, n - i), n - i);
      }
      top = max(value, top);
    }
    store(out + count, top);
    count += kLanes;
  }
  return count;
}

// The largest of every `size` neighbours.
void block_maxima(const float* x, int64_t n, int64_t size, float* out) {
  int64_t i = 0;
  if (size == 8) {
    for (; i + kLanes <= n; i += kLanes) {
      // After three exchanges every lane has its block's maximum.
      F32 top = max(load(x + i), splat(-__builtin_inff()));
#if defined(__AVX512F__)
      top = max(top, _mm512_shuffle_f32x4(top, top, 0xB1));
      top = max(top, _mm512_permute_ps(top, 0x4E));
      top = max(top, _mm512_permute_ps(top, 0xB1));
#elif defined(__AVX2__)
      top = max(top, _mm256_permute2f128_ps(top, top, 1));
      top = max(top, _mm256_permute_ps(top, 0x4E));
      top = max(top, _mm256_permute_ps(top, 0xB1));
#else
      top = splat(max_of(top));
#endif
      for (int lane = 0; lane < kLanes; lane += 8) out[(i + lane) / 8] = top[lane];
    }
  }
  for (; i < n; i += size) {
    float top = -__builtin_inff();
    for (int64_t j = i; j < i + size && j < n; ++j) top = x[j] > top ? x[j] : top;
    out[i / size] = top;
  }
}

// One bit per lane.
CACHALOT_INLINE uint32_t lanes_at_least(F32 x, F32 least) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(x, least, _CMP_GE_OQ);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x, least, _CMP_GE_OQ)));
#else
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= uint32_t{x[i] >= least[i]} << i;
  return bits;
#endif
}

int64_t count_at_least(const float* x, int64_t n, float least) {
  const F32 bound = splat(least);
  I32 counts{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) counts -= load(x + i) >= bound;
  int64_t count = 0;
  for (int lane = 0; lane < kLanes; ++lane) count += counts[lane];
  for (; i < n; ++i) count += x[i] >= least;
  return count;
}

int64_t list_at_least(const float* x, int64_t n, float least, int32_t* places, int64_t most) {
  const F32 bound = splat(least);
  int64_t count = 0, i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    uint32_t lanes = lanes_at_least(load(x + i), bound);
    if (lanes == 0) continue;
    if (count + __builtin_popcount(lanes) > most) return most + 1;
    for (; lanes != 0; lanes &= lanes - 1) {
      places[count++] = static_cast<int32_t>(i) + __builtin_ctz(lanes);
    }
  }
  for (; i < n; ++i) {
    if (!(x[i] >= least)) continue;
    if (count == most) return most + 1;
    places[count++] = static_cast<int32_t>(i);
  }
  return count;
}
