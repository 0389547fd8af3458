// Row kernels of the vision tower: attention among a picture's patches, the gated unit.

// R queries times V vectors of keys stay in registers while the channels go by; 6 x 2 and 3
// operands fit 16 registers.
template <int R>
CACHALOT_INLINE void image_score_tile(const float* q, int64_t width, const float* keys,
                                      float* scores, int64_t stride) {
  F32 total[R][2] = {};
  for (int64_t i = 0; i < width; ++i) {
    const F32 first = load(keys + i * kImagePanel), second = load(keys + i * kImagePanel + kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const F32 query = broadcast(q + r * width + i);
      total[r][0] = fma(query, first, total[r][0]);
      total[r][1] = fma(query, second, total[r][1]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    store(scores + r * stride, total[r][0]);
    store(scores + r * stride + kLanes, total[r][1]);
  }
}

void image_scores(const float* q, int64_t width, const float* keys, int64_t panels, float* scores,
                  int64_t stride) {
  for (int64_t panel = 0; panel < panels; ++panel) {
    const float* block = keys + panel * kImagePanel * width;
    for (int64_t r = 0; r < kImageQueries; r += 6) {
      for (int64_t lane = 0; lane < kImagePanel; lane += 2 * kLanes) {
        image_score_tile<6>(q + r * width, width, block + lane,
                            scores + r * stride + panel * kImagePanel + lane, stride);
      }
    }
  }
}

float image_softmax(float* scores, int64_t n, float scale) {
  F32 top = splat(scores[0]);
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    // The first score in the idle lanes does not change the maximum.
    F32 value = splat(scores[0]);
    store_lanes(reinterpret_cast<float*>(&value), load(scores + i, lanes), lanes);
    top = max(value, top);
  });
  const float m = max_of(top) * scale;
  F32 total{};
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    F32 e = exp(load(scores + i, lanes) * scale - m);
    for (int64_t lane = lanes; lane < kLanes; ++lane) e[lane] = 0;
    total += e;
    store(scores + i, e, lanes);
  });
  return sum(total);
}

template <int R>
CACHALOT_INLINE void image_value_tile(const float* p, int64_t stride, const float* values,
                                      int64_t keys, int64_t width, float* o) {
  F32 total[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    total[r][0] = load(o + r * width);
    total[r][1] = load(o + r * width + kLanes);
  }
  for (int64_t k = 0; k < keys; ++k) {
    const F32 first = load(values + k * width), second = load(values + k * width + kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const F32 weight = broadcast(p + r * stride + k);
      total[r][0] = fma(weight, first, total[r][0]);
      total[r][1] = fma(weight, second, total[r][1]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    store(o + r * width, total[r][0]);
    store(o + r * width + kLanes, total[r][1]);
  }
}

// Keys in blocks that stay in the nearest cache for all queries.
void image_values(const float* p, int64_t stride, const float* values, int64_t keys, int64_t width,
                  float* o) {
  constexpr int64_t kBlockKeys = 64;
  for (int64_t first = 0; first < keys; first += kBlockKeys) {
    const int64_t count = keys - first < kBlockKeys ? keys - first : kBlockKeys;
    for (int64_t r = 0; r < kImageQueries; r += 6) {
      for (int64_t i = 0; i < width; i += 2 * kLanes) {
        image_value_tile<6>(p + r * stride + first, stride, values + first * width + i, count,
                            width, o + r * width + i);
      }
    }
  }
}

void gated_unit(const bf16* gate, const bf16* up, int64_t n, bf16* h) {
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    store(h + i, round_bf16(silu(load(gate + i, lanes))) * load(up + i, lanes), lanes);
  });
}

void add_rows(bf16* x, const bf16* update, int64_t n) {
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    store(x + i, load(x + i, lanes) + load(update + i, lanes), lanes);
  });
}

void add_bias(const float* x, const bf16* bias, int64_t n, bf16* out) {
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    store(out + i, load(x + i, lanes) + load(bias + i, lanes), lanes);
  });
}
