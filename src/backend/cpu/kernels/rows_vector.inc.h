// What the row kernels add to simd.h: rows whose length is no multiple of the vector.

// One full vector, or the first `count` lanes with zeros behind them.
template <class V, class T>
CACHALOT_INLINE V load_lanes(const T* from, int64_t count) {
  V out{};
  if (count == kLanes) {
    __builtin_memcpy(&out, from, sizeof out);
  } else {
    __builtin_memcpy(&out, from, static_cast<size_t>(count) * sizeof(T));
  }
  return out;
}
template <class V, class T>
CACHALOT_INLINE void store_lanes(T* to, V value, int64_t count) {
  if (count == kLanes) {
    __builtin_memcpy(static_cast<void*>(to), &value, sizeof value);
  } else {
    __builtin_memcpy(static_cast<void*>(to), &value, static_cast<size_t>(count) * sizeof(T));
  }
}

CACHALOT_INLINE F32 load(const float* from, int64_t count) { return load_lanes<F32>(from, count); }
CACHALOT_INLINE F32 load(const bf16* from, int64_t count = kLanes) {
  return (F32)(__builtin_convertvector(load_lanes<U16>(from, count), U32) << 16);
}
CACHALOT_INLINE void store(float* to, F32 x, int64_t count) { store_lanes(to, x, count); }
CACHALOT_INLINE void store(bf16* to, F32 x, int64_t count = kLanes) {
  store_lanes(to, __builtin_convertvector(bf16_bits(x), U16), count);
}

// A value from memory in every lane: one load. splat() adds it to zero first, because of -0.
CACHALOT_INLINE F32 broadcast(const float* from) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(*from);
#elif defined(__AVX2__)
  return _mm256_broadcast_ss(from);
#else
  return splat(*from);
#endif
}

#if defined(__AVX512F__)
// sum() of sixteen vectors at once, the same additions: element c of 128-bit lane r is the sum of
// v[4 * c + r].
CACHALOT_INLINE F32 sums_of(const F32 (&v)[16]) {
  const auto pairs = [](F32 x) { return _mm512_castps_pd(x); };
  F32 eights[8], fours[4], twos[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    eights[i] = _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44) +
                _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    fours[i] = _mm512_shuffle_f32x4(eights[2 * i], eights[2 * i + 1], 0x88) +
               _mm512_shuffle_f32x4(eights[2 * i], eights[2 * i + 1], 0xDD);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    twos[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pairs(fours[2 * i]), pairs(fours[2 * i + 1]))) +
              _mm512_castpd_ps(_mm512_unpackhi_pd(pairs(fours[2 * i]), pairs(fours[2 * i + 1])));
  }
  return _mm512_shuffle_ps(twos[0], twos[1], 0x88) + _mm512_shuffle_ps(twos[0], twos[1], 0xDD);
}
#endif

// body(i, lanes) over n elements; lanes is kLanes except in the last call.
template <class Body>
CACHALOT_INLINE void for_lanes(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}
