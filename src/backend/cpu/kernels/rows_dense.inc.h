// Row kernels on activations: norms, rotation, dot products, the residual stream, engram.

void widen(const bf16* x, int64_t n, float* out) {
  for_lanes(n, [&](int64_t i, int64_t lanes) { store(out + i, load(x + i, lanes), lanes); });
}

template <class T>
CACHALOT_INLINE float sum_of_squares(const T* x, int64_t n) {
  F32 total{};
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    const F32 value = load(x + i, lanes);
    total = fma(value, value, total);
  });
  return sum(total);
}

float square_sum(const float* x, int64_t n) { return sum_of_squares(x, n); }

void rms_norm(bf16* x, int64_t n, const bf16* norm, float eps) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const F32 root = splat(__builtin_sqrtf(mean + eps));
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    store(x + i, load(norm + i, lanes) * (load(x + i, lanes) / root), lanes);
  });
}

// A pair of BF16 values is one 32-bit lane: the even channel in the low half.
void rotate(bf16* x, int64_t n, const float* cosine, const float* sine, int64_t pairs) {
  bf16* tail = x + n - 2 * pairs;
  for_lanes(pairs, [&](int64_t i, int64_t lanes) {
    const U32 pair = load_lanes<U32>(reinterpret_cast<const uint32_t*>(tail) + i, lanes);
    const F32 a = (F32)(pair << 16), b = (F32)(pair & 0xFFFF0000u);
    const F32 c = load(cosine + i, lanes), s = load(sine + i, lanes);
    const U32 even = bf16_bits(a * c - b * s);
    const U32 odd = bf16_bits(a * s + b * c) << 16;
    store_lanes(reinterpret_cast<uint32_t*>(tail) + i, even | odd, lanes);
  });
}

// R rows times C outputs in registers. Every (row, output) has its own accumulator that walks n in
// order, so the result is the same in every tile.
template <int R, int C, class X, class W>
CACHALOT_INLINE void dot_tile(const X* x, int64_t x_stride, const W* w, int64_t w_stride, int64_t n,
                              float* y, int64_t y_stride) {
  F32 total[R][C] = {};
  for_lanes(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        F32 column[C];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) column[c] = load(w + c * w_stride + i, lanes);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const F32 row = load(x + r * x_stride + i, lanes);
#pragma GCC unroll 4
          for (int c = 0; c < C; ++c) total[r][c] = fma(row, column[c], total[r][c]);
        }
      });
#if defined(__AVX512F__)
  if constexpr (R == 4 && C == 4) {
    F32 all[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) all[i] = total[i % 4][i / 4];
    float sums[16];
    store(sums, sums_of(all));
    for (int r = 0; r < 4; ++r) __builtin_memcpy(y + r * y_stride, sums + 4 * r, 16);
    return;
  }
#endif
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) y[r * y_stride + c] = sum(total[r][c]);
  }
}

// 4 x 3 accumulators and 4 operands fit 16 registers, 4 x 4 fit 32; 7 loads feed 12 multiply-adds.
constexpr int kTileOutputs = kLanes == 16 ? 4 : 3;

template <int R, class X, class W>
CACHALOT_INLINE void dot_rows(const X* x, int64_t x_stride, const W* w, int64_t w_stride,
                              int64_t outputs, int64_t n, float* y, int64_t y_stride) {
  int64_t o = 0;
  for (; o + kTileOutputs <= outputs; o += kTileOutputs) {
    dot_tile<R, kTileOutputs>(x, x_stride, w + o * w_stride, w_stride, n, y + o, y_stride);
  }
  for (; o < outputs; ++o) {
    dot_tile<R, 1>(x, x_stride, w + o * w_stride, w_stride, n, y + o, y_stride);
  }
}

template <class X, class W>
CACHALOT_INLINE void all_dots(const X* x, int64_t x_stride, int64_t rows, const W* w,
                              int64_t w_stride, int64_t outputs, int64_t n, float* y,
                              int64_t y_stride) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    dot_rows<4>(x + r * x_stride, x_stride, w, w_stride, outputs, n, y + r * y_stride, y_stride);
  }
  for (; r < rows; ++r) {
    dot_rows<1>(x + r * x_stride, x_stride, w, w_stride, outputs, n, y + r * y_stride, y_stride);
  }
}

void dots(const bf16* x, int64_t x_stride, int64_t rows, const bf16* w, int64_t w_stride,
          int64_t outputs, int64_t n, float* y, int64_t y_stride) {
  all_dots(x, x_stride, rows, w, w_stride, outputs, n, y, y_stride);
}

void dots_f32(const float* x, int64_t x_stride, int64_t rows, const float* w, int64_t w_stride,
              int64_t outputs, int64_t n, float* y, int64_t y_stride) {
  all_dots(x, x_stride, rows, w, w_stride, outputs, n, y, y_stride);
}

void collapse(const bf16* stream, const float* pre, int64_t copies, int64_t dim, int64_t n,
              bf16* x) {
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    F32 total = load(stream + i, lanes) * pre[0];
    for (int64_t c = 1; c < copies; ++c) {
      total = fma(load(stream + c * dim + i, lanes), splat(pre[c]), total);
    }
    store(x + i, total, lanes);
  });
}

template <int kCopies>
CACHALOT_INLINE void expand_copies(const bf16* y, const float* post, const float* comb, int64_t dim,
                                   int64_t n, bf16* stream) {
  for_lanes(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        F32 copy[kCopies];
#pragma GCC unroll 8
        for (int j = 0; j < kCopies; ++j) copy[j] = load(stream + j * dim + i, lanes);
        const F32 out = load(y + i, lanes);
#pragma GCC unroll 8
        for (int k = 0; k < kCopies; ++k) {
          F32 total = copy[0] * comb[k];
#pragma GCC unroll 8
          for (int j = 1; j < kCopies; ++j) {
            total = fma(copy[j], splat(comb[j * kCopies + k]), total);
          }
          store(stream + k * dim + i, fma(out, splat(post[k]), total), lanes);
        }
      });
}

void expand(const bf16* y, const float* post, const float* comb, int64_t copies, int64_t dim,
            int64_t n, bf16* stream) {
  switch (copies) {
    case 1:
      return expand_copies<1>(y, post, comb, dim, n, stream);
    case 2:
      return expand_copies<2>(y, post, comb, dim, n, stream);
    case 3:
      return expand_copies<3>(y, post, comb, dim, n, stream);
    case 4:
      return expand_copies<4>(y, post, comb, dim, n, stream);
    case 5:
      return expand_copies<5>(y, post, comb, dim, n, stream);
    case 6:
      return expand_copies<6>(y, post, comb, dim, n, stream);
    case 7:
      return expand_copies<7>(y, post, comb, dim, n, stream);
    default:
      return expand_copies<8>(y, post, comb, dim, n, stream);
  }
}

void average(const bf16* stream, int64_t copies, int64_t dim, bf16* x) {
  const F32 count = splat(static_cast<float>(copies));
  for_lanes(dim, [&](int64_t i, int64_t lanes) {
    F32 total = load(stream + i, lanes);
    for (int64_t c = 1; c < copies; ++c) total += load(stream + c * dim + i, lanes);
    store(x + i, total / count, lanes);
  });
}

void pool(const float* const* kv, const float* const* gate, int64_t group, int64_t n, bf16* out) {
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    F32 top = load(gate[0] + i, lanes);
    for (int64_t g = 1; g < group; ++g) top = max(top, load(gate[g] + i, lanes));
    F32 weights{}, total{};
    for (int64_t g = 0; g < group; ++g) weights += exp(load(gate[g] + i, lanes) - top);
    for (int64_t g = 0; g < group; ++g) {
      const F32 weight = exp(load(gate[g] + i, lanes) - top) / weights;
      total = fma(weight, load(kv[g] + i, lanes), total);
    }
    store(out + i, total, lanes);
  });
}

void engram_dots(const bf16* h, const bf16* q_weight, const bf16* k_weight, const bf16* key,
                 int64_t n, float* dots) {
  F32 product{}, h_square{}, key_square{};
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    const F32 a = load(h + i, lanes), b = load(key + i, lanes);
    const F32 gain = load(q_weight + i, lanes) * load(k_weight + i, lanes);
    product = fma(a * gain, b, product);
    h_square = fma(a, a, h_square);
    key_square = fma(b, b, key_square);
  });
  dots[0] = sum(product);
  dots[1] = sum(h_square);
  dots[2] = sum(key_square);
}

void add_scaled(bf16* h, const bf16* value, float gate, int64_t n) {
  for_lanes(n, [&](int64_t i, int64_t lanes) {
    store(h + i, fma(load(value + i, lanes), splat(gate), load(h + i, lanes)), lanes);
  });
}
