// Row kernels of attention: the softmax over a row's keys and the weighted sum of its values.

float softmax(float* scores, int64_t n, float scale, float sink) {
  F32 top = splat(scores[0]);
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    // The first score in the idle lanes does not change the maximum.
    F32 value = splat(scores[0]);
    store_lanes(reinterpret_cast<float*>(&value), load(scores + i, lanes), lanes);
    top = max(value, top);
  });
  const float m = max_of(top) * scale;
  F32 total{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F32 e = exp(load(scores + i) * scale - m);
    total += e;
    store(scores + i, round_bf16(e));
  }
  if (i < n) {
    F32 e = exp(load(scores + i, n - i) * scale - m);
    for (int64_t lane = n - i; lane < kLanes; ++lane) e[lane] = 0;
    total += e;
    store(scores + i, round_bf16(e), n - i);
  }
  return sum(total) + exp(splat(sink - m))[0];
}

// H heads times V vectors of channels stay in registers while the keys go by.
template <int H, int V>
CACHALOT_INLINE void value_tile(const float* p, int64_t p_stride, const float* keys,
                                int64_t key_stride, int64_t key_count, float* o, int64_t o_stride) {
  F32 total[H][V];
#pragma GCC unroll 8
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) total[h][v] = load(o + h * o_stride + v * kLanes);
  }
  for (int64_t k = 0; k < key_count; ++k) {
    F32 value[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) value[v] = load(keys + k * key_stride + v * kLanes);
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      const F32 weight = broadcast(p + h * p_stride + k);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) total[h][v] = fma(weight, value[v], total[h][v]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(o + h * o_stride + v * kLanes, total[h][v]);
  }
}

template <int V>
CACHALOT_INLINE void value_columns(const float* p, int64_t p_stride, int64_t heads,
                                   const float* keys, int64_t key_stride, int64_t key_count,
                                   float* o, int64_t o_stride) {
  // Sixteen sums where the registers allow it, so that they hide a multiply-add's latency.
  constexpr int kHeads = kLanes == 16 && V < 4 ? 8 : 4;
  int64_t h = 0;
  for (; h + kHeads <= heads; h += kHeads) {
    value_tile<kHeads, V>(p + h * p_stride, p_stride, keys, key_stride, key_count, o + h * o_stride,
                          o_stride);
  }
  for (; h < heads; ++h) {
    value_tile<1, V>(p + h * p_stride, p_stride, keys, key_stride, key_count, o + h * o_stride,
                     o_stride);
  }
}

void add_values(const float* p, int64_t p_stride, int64_t heads, const float* keys,
                int64_t key_stride, int64_t key_count, int64_t n, float* o, int64_t o_stride) {
  // 4 heads times 3 vectors and their operands fit 16 registers, times 4 vectors 32.
  constexpr int kVectors = kLanes == 16 ? 4 : 3;
  int64_t i = 0;
  for (; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
    value_columns<kVectors>(p, p_stride, heads, keys + i, key_stride, key_count, o + i, o_stride);
  }
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    value_columns<2>(p, p_stride, heads, keys + i, key_stride, key_count, o + i, o_stride);
  }
  for (; i < n; i += kLanes) {
    value_columns<1>(p, p_stride, heads, keys + i, key_stride, key_count, o + i, o_stride);
  }
}

void divide(const float* x, int64_t n, float divisor, bf16* out) {
  const F32 by = splat(divisor);
  for_lanes(n, [&](int64_t i, int64_t lanes) { store(out + i, load(x + i, lanes) / by, lanes); });
}
