// Row kernels between BF16 or FP32 rows and the packed rows of the caches.

CACHALOT_INLINE uint8_t power_of_two_code(float value) {
  const uint32_t bits = float_to_bits(value);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFFu) != 0));
}

CACHALOT_INLINE float group_largest(const bf16* x, int64_t n) {
  F32 top{};
  for_lanes(n, [&](int64_t i, int64_t lanes) { top = max(abs(load(x + i, lanes)), top); });
  return max_of(top);
}

// E4M3 codes of |x| <= 448 and beyond (saturating).
CACHALOT_INLINE U32 e4m3_codes(F32 x) {
  const U32 sign = ((U32)(x) >> 24) & 0x80;
  const F32 size = min(abs(x), splat(kE4m3Max));
  const U32 bits = (U32)(size);
  // Normal: round the mantissa to three bits, a carry runs into the exponent; then rebias.
  const U32 normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - ((127 - 7) << 3);
  // Subnormal: 2^14 + size has steps of 2^-9 in its low bits.
  const U32 subnormal = (U32)(size + 0x1p14f) - float_to_bits(0x1p14f);
  return sign | (size < 0x1p-6f ? subnormal : normal);
}

void pack_window(const bf16* x, int64_t n, uint8_t* row) {
  for (int64_t at = 0; at < n; at += 32) {
    const uint8_t scale = fp8_scale_code_of(group_largest(x + at, 32));
    row[n + at / 32] = scale;
    // The scale is at least 2^-22 and its inverse a normal number: multiplying divides exactly.
    const float inverse = bits_to_float(uint32_t{254u - scale} << 23);
    for (int64_t i = 0; i < 32; i += kLanes) {
      store_lanes(row + at + i, __builtin_convertvector(e4m3_codes(load(x + at + i) * inverse), U8),
                  kLanes);
    }
  }
}

// E2M1 codes of x / scale. The thresholds are the midpoints; a tie belongs to the even code.
CACHALOT_INLINE U32 e2m1_codes(F32 x, float scale) {
  const F32 value = x / splat(scale);
  const F32 size = abs(value);
  const I32 code = -((size > 0.25f) + (size >= 0.75f) + (size > 1.25f) + (size >= 1.75f) +
                     (size > 2.5f) + (size >= 3.5f) + (size > 5.0f));
  return (((U32)(value) >> 28) & 8) | (U32)code;
}

// `n` E2M1 codes of x / scale, two a byte, the even element in the low nibble.
CACHALOT_INLINE void pack_e2m1(const bf16* x, int64_t n, float scale, uint8_t* out) {
  uint8_t codes[32];
  for (int64_t i = 0; i < n; i += kLanes) {
    store_lanes(codes + i, __builtin_convertvector(e2m1_codes(load(x + i), scale), U8), kLanes);
  }
  for (int64_t i = 0; i < n / 2; ++i) {
    out[i] = static_cast<uint8_t>(codes[2 * i] | (codes[2 * i + 1] << 4));
  }
}

void pack_latent(const bf16* x, int64_t n, uint8_t* row) {
  for (int64_t at = 0; at < n; at += 16) {
    const float top = group_largest(x + at, 16);
    const F32 amount = splat(top > 6 * 0x1p-9f ? top : 6 * 0x1p-9f) / splat(6.0f);
    const uint8_t code = static_cast<uint8_t>(e4m3_codes(amount)[0]);
    row[n / 2 + at / 16] = code;
    const uint32_t exponent = code >> 3, mantissa = code & 7;
    const float scale = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                      : bits_to_float(((exponent + 120) << 23) | (mantissa << 20));
    pack_e2m1(x + at, 16, scale, row + at / 2);
  }
}

void pack_index_key(const bf16* x, int64_t n, uint8_t* row) {
  for (int64_t at = 0; at < n; at += 32) {
    const float top = group_largest(x + at, 32);
    const uint8_t scale = power_of_two_code((top > 6 * 0x1p-126f ? top : 6 * 0x1p-126f) *
                                            bits_to_float(kInverse6Bits));
    row[n / 2 + at / 32] = scale;
    pack_e2m1(x + at, 32, e8m0_value(scale), row + at / 2);
  }
}

void unpack_window(const uint8_t* row, int64_t n, float* out) {
  for (int64_t at = 0; at < n; at += 32) {
    const float scale = e8m0_value(row[n + at / 32]) / kDecodeFactor;
    for (int64_t i = 0; i < 32; i += kLanes) store(out + at + i, load_e4m3(row + at + i) * scale);
  }
}

void unpack_e4m3(const uint8_t* codes, const uint8_t* scales, int64_t n, bf16* out) {
  for (int64_t at = 0; at < n; at += 32) {
    const float scale = e8m0_value(scales[at / 32]) / kDecodeFactor;
    for (int64_t i = 0; i < 32; i += kLanes) store(out + at + i, load_e4m3(codes + at + i) * scale);
  }
}

// Twice the E2M1 values: whole numbers.
constexpr int8_t kDoubledGrid[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2 * n E2M1 codes -> doubled values as bytes, n = 8 or 16 packed bytes; + offset.
CACHALOT_INLINE void doubled_values(const uint8_t* packed, int64_t n, int offset, int8_t* out) {
#if defined(__AVX2__)
  const __m128i grid = _mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kDoubledGrid)),
                                    _mm_set1_epi8(static_cast<char>(offset)));
  const __m128i bytes = n == 16 ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(packed))
                                : _mm_loadl_epi64(reinterpret_cast<const __m128i*>(packed));
  const __m128i mask = _mm_set1_epi8(0xF);
  const __m128i even = _mm_shuffle_epi8(grid, _mm_and_si128(bytes, mask));
  const __m128i odd = _mm_shuffle_epi8(grid, _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_unpacklo_epi8(even, odd));
  if (n == 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm_unpackhi_epi8(even, odd));
  }
#else
  for (int64_t i = 0; i < n; ++i) {
    out[2 * i] = static_cast<int8_t>(kDoubledGrid[packed[i] & 0xF] + offset);
    out[2 * i + 1] = static_cast<int8_t>(kDoubledGrid[packed[i] >> 4] + offset);
  }
#endif
}

void unpack_latent(const uint8_t* row, int64_t n, float* out) {
  typedef int8_t Signed __attribute__((vector_size(kLanes)));
  for (int64_t at = 0; at < n; at += 16) {
    const uint32_t code = row[n / 2 + at / 16], exponent = (code >> 3) & 0xF, mantissa = code & 7;
    // The scale is positive; half of it undoes the doubling.
    const float scale = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-10f
                                      : bits_to_float(((exponent + 119) << 23) | (mantissa << 20));
    int8_t doubled[16];
    doubled_values(row + at / 2, 8, 0, doubled);
    for (int64_t i = 0; i < 16; i += kLanes) {
      store(out + at + i,
            __builtin_convertvector(load_lanes<Signed>(doubled + i, kLanes), F32) * scale);
    }
  }
}
