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

void unpack_window(const uint8_t* row, int64_t n, int64_t first, int64_t count, float* out) {
  const uint8_t* codes = row + first;
  const uint8_t* scales = row + n + first / 32;
  for (int64_t at = 0; at < count; at += 32) {
    const float scale = e8m0_value(scales[at / 32]) / kDecodeFactor;
    for (int64_t i = 0; i < 32; i += kLanes) store(out + at + i, load_e4m3(codes + at + i) * scale);
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

// 16 packed bytes, the even channel in the low nibble -> 32 doubled values.
CACHALOT_INLINE void doubled_values(const uint8_t* packed, int8_t* out) {
  for (int i = 0; i < 16; ++i) {
    out[2 * i] = kDoubledGrid[packed[i] & 0xF];
    out[2 * i + 1] = kDoubledGrid[packed[i] >> 4];
  }
}

// The values of E4M3 codes 0 .. 127 (the scales of latents are positive), times 2^8: what
// load_e2m1_block leaves out.
struct LatentScales {
  float values[128];
  constexpr LatentScales() : values() {
    for (int code = 0; code < 128; ++code) {
      const int exponent = code >> 3, mantissa = code & 7;
      float value = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) * 0x1p-1f;
      for (int i = 1; i < exponent; ++i) value *= 2;
      values[code] = value;
    }
  }
};
constexpr LatentScales kLatentScales;

// 32 channels with a scale per 16.
CACHALOT_INLINE void unpack_latent_block(const uint8_t* codes, float low, float high, float* out) {
  const Block block = load_e2m1_block(codes);
  for (int i = 0; i < kBlockVectors; ++i) {
    store(out + i * kLanes, block.v[i] * (i < kBlockVectors / 2 ? low : high));
  }
}

void unpack_latent(const uint8_t* row, int64_t n, int64_t first, int64_t count, float* out) {
  const uint8_t* all_codes = row + first / 2;
  const uint8_t* scales = row + n / 2 + first / 16;
  int64_t at = 0;
  for (; at + 32 <= count; at += 32) {
    unpack_latent_block(all_codes + at / 2, kLatentScales.values[scales[at / 16] & 0x7F],
                        kLatentScales.values[scales[at / 16 + 1] & 0x7F], out + at);
  }
  if (at == count) return;
  uint8_t codes[16] = {};
  float values[32];
  __builtin_memcpy(codes, all_codes + at / 2, 8);
  unpack_latent_block(codes, kLatentScales.values[scales[at / 16] & 0x7F], 0, values);
  __builtin_memcpy(out + at, values, 16 * sizeof(float));
}
