// Attention on the tile registers of AMX (attention_kernels.h, docs/kernels/sparse_attention.md).
//
// Scores: 16 keys, decoded row by row, are the left tile, 16 heads side by side the right one.
// Values: 16 heads' weights, as they lie, are the left tile; on the right two keys' channels
// alternate, which takes no more than interleaving their decoded rows.
#include "backend/cpu/kernels/attention_kernels.h"
#include "backend/cpu/kernels/matmul_bf16_decode.inc.h"
#include "backend/cpu/kernels/tile_shapes.inc.h"
#include "backend/cpu/kernels/transpose.inc.h"

namespace cachalot::cpu {
namespace {

constexpr int64_t kTile = kAttentionTile, kTileBytes = 1024;
constexpr int64_t kPanelKeys = 2 * kTile;
static_assert(kAttentionChannels == kBlock && kAttentionKeys == 32);

// A line more than the channels: rows of 1024 bytes would share a few sets of the cache.
CACHALOT_INLINE int64_t panel_stride(int64_t channels) { return channels * 2 + 64; }
CACHALOT_INLINE int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

int64_t scratch_bytes(int64_t keys, int64_t channels) {
  const int64_t panel = kPanelKeys * panel_stride(channels);
  const int64_t strip = divide_up(keys, kAttentionKeys) * 2 * kTileBytes;
  return panel > strip ? panel : strip;
}

// --------------------------------------------------------------------------------------- decoding

// The sixteen E2M1 values times each E4M3 scale, exact in BF16.
struct LatentValues {
  alignas(64) uint16_t of[128][16] = {};

  constexpr LatentValues() {
    constexpr float kGrid[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    for (int scale = 0; scale < 128; ++scale) {
      const int exponent = scale >> 3, mantissa = scale & 7;
      float value = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) * 0x1p-9f;
      for (int i = 1; i < exponent; ++i) value *= 2;
      for (int code = 0; code < 16; ++code) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, kGrid[code % 8] * value);
        of[scale][code] = static_cast<uint16_t>((bits >> 16) | (code / 8 << 15));
      }
    }
  }
};
constexpr LatentValues kLatentValues;

// Thirty-two channels of packed rows, in order.
class KeyDecoder {
 public:
  explicit KeyDecoder(const AttendedRows& keys) : keys_(keys) {}

  CACHALOT_INLINE_MEMBER __m512i window(int64_t key, int64_t channel) const {
    const uint8_t* row = keys_.rows[key];
    const Fp8Decoder decoder(row[keys_.channels + channel / 32] - 127);
    return decoder.decode(row + channel, fp8_);
  }

  CACHALOT_INLINE_MEMBER __m512i latent(int64_t key, int64_t channel) const {
    const uint8_t* row = keys_.rows[key];
    const uint8_t* scales = row + keys_.channels / 2 + channel / 16;
    const __m512i values =
        _mm512_inserti64x4(_mm512_castsi256_si512(values_of(scales[0])), values_of(scales[1]), 1);
    const __m512i bytes =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + channel / 2)));
    // ((bytes | bytes << 12) & nibbles) | the place of the second scale's values
    const __m512i codes =
        _mm512_ternarylogic_epi32(bytes, _mm512_slli_epi32(bytes, 12), nibbles_, 0xA8);
    return _mm512_permutexvar_epi16(_mm512_or_si512(codes, second_), values);
  }

 private:
  CACHALOT_INLINE_MEMBER __m256i values_of(uint8_t scale) const {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(kLatentValues.of[scale & 0x7F]));
  }

  const AttendedRows& keys_;
  Fp8Constants fp8_;
  __m512i nibbles_ = kept(_mm512_set1_epi32(0x000F000F));
  __m512i second_ = kept(_mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1));
};

// ----------------------------------------------------------------------------------------- scores

int64_t query_bytes(int64_t heads, int64_t channels) {
  return divide_up(heads, kTile) * (channels / kBlock) * kTileBytes;
}

// Per 16 heads and 32 channels a tile: a row for two channels, an element for a head.
void pack_queries(const bf16* q, int64_t heads, int64_t channels, void* queries) {
  auto* out = static_cast<float*>(queries);
  for (int64_t head = 0; head < heads; head += kTile) {
    for (int64_t channel = 0; channel < channels; channel += kBlock) {
      F32 lines[kTile];
#pragma GCC unroll 16
      for (int64_t h = 0; h < kTile; ++h) {
        lines[h] = head + h < heads
                       ? load(reinterpret_cast<const float*>(q + (head + h) * channels + channel))
                       : F32{};
      }
      transpose(lines);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kTile; ++i, out += kTile) store(out, lines[i]);
    }
  }
}

// One or two tiles of keys times one or two of heads; sums[key tile][head tile] are tiles
// [keys][heads].
template <bool kTwoKeys, bool kTwoHeads>
void multiply_scores(const uint8_t* keys, int64_t key_stride, const uint8_t* heads, int64_t blocks,
                     float* sums) {
  finish_stores();
  _tile_zero(0);
  if constexpr (kTwoHeads) _tile_zero(1);
  if constexpr (kTwoKeys) _tile_zero(2);
  if constexpr (kTwoKeys && kTwoHeads) _tile_zero(3);
  const uint8_t* other_heads = heads + blocks * kTileBytes;
  for (int64_t b = 0; b < blocks; ++b) {
    _tile_loadd(4, keys + b * 64, key_stride);
    _tile_loadd(6, heads + b * kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoHeads) {
      _tile_loadd(7, other_heads + b * kTileBytes, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoKeys) {
      _tile_loadd(5, keys + kTile * key_stride + b * 64, key_stride);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwoHeads) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, 64);
  if constexpr (kTwoHeads) _tile_stored(1, sums + 256, 64);
  if constexpr (kTwoKeys) _tile_stored(2, sums + 512, 64);
  if constexpr (kTwoKeys && kTwoHeads) _tile_stored(3, sums + 768, 64);
}

CACHALOT_INLINE void put_scores(const float* sums, int64_t heads, float* scores, int64_t stride) {
  F32 lines[kTile];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTile; ++i) lines[i] = load(sums + i * kTile);
  transpose(lines);
  for (int64_t h = 0; h < heads && h < kTile; ++h) store(scores + h * stride, lines[h]);
}

void decode_panel(const KeyDecoder& decoder, const AttendedRows& keys, int64_t first, int64_t count,
                  uint8_t* panel) {
  const int64_t stride = panel_stride(keys.channels);
  for (int64_t k = first; k < first + count; ++k, panel += stride) {
    const bool window = k < keys.window;
    for (int64_t channel = 0; channel < keys.channels; channel += kBlock) {
      _mm512_store_si512(panel + channel * 2,
                         window ? decoder.window(k, channel) : decoder.latent(k, channel));
    }
  }
}

void score_keys(const void* queries, int64_t heads, const AttendedRows& keys, int64_t first,
                int64_t count, float* scores, int64_t stride, void* scratch) {
  auto* panel = static_cast<uint8_t*>(scratch);
  const KeyDecoder decoder(keys);
  const int64_t key_stride = panel_stride(keys.channels), blocks = keys.channels / kBlock;
  const int64_t last = first + count;
  alignas(64) float sums[4 * 256];
  shape_tiles(kTile, kTile);
  for (int64_t key = first; key < last; key += kPanelKeys) {
    const int64_t now = last - key < kPanelKeys ? last - key : kPanelKeys;
    decode_panel(decoder, keys, key, now, panel);
    for (int64_t head = 0; head < heads; head += 2 * kTile) {
      const auto* tiles = static_cast<const uint8_t*>(queries) + head / kTile * blocks * kTileBytes;
      const bool two_keys = now > kTile, two_heads = heads - head > kTile;
      const auto multiply =
          two_keys ? (two_heads ? multiply_scores<true, true> : multiply_scores<true, false>)
                   : (two_heads ? multiply_scores<false, true> : multiply_scores<false, false>);
      multiply(panel, key_stride, tiles, blocks, sums);
      for (int i = 0; i < 4; ++i) {
        if ((i % 2 == 1 && !two_heads) || (i / 2 == 1 && !two_keys)) continue;
        const int64_t tile_head = head + i % 2 * kTile;
        put_scores(sums + i * 256, heads - tile_head,
                   scores + tile_head * stride + key + i / 2 * kTile, stride);
      }
    }
  }
  _tile_release();
}

// ----------------------------------------------------------------------------------------- values

// exp() of simd.h with AVX-512's own steps: fewer of them, the same bits but for denormal results.
CACHALOT_INLINE __m512 exp_of(__m512 v) {
  v = _mm512_max_ps(_mm512_set1_ps(-104.5f), v);
  // v = n ln 2 + r: the upper part of ln 2 has 10 bits, so n * upper is exact. Taylor to r^7, as
  // exp() of simd.h.
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(v, _mm512_set1_ps(0x1.715476p0f)), 0);
  const __m512 upper = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.63p-1f), v);
  const __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(0x1.bd0106p-13f), upper);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r), _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

float weigh(float* scores, int64_t n, float scale, float sink) {
  const auto there = [n](int64_t i) {
    return n - i >= 16 ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << (n - i)) - 1);
  };
  __m512 top = _mm512_set1_ps(scores[0]);
  for (int64_t i = 0; i < n; i += 16) {
    top = _mm512_max_ps(_mm512_mask_loadu_ps(top, there(i), scores + i), top);
  }
  const float m = max_of(top) * scale;
  const __m512 factor = _mm512_set1_ps(scale), most = _mm512_set1_ps(m);
  __m512 total = _mm512_setzero_ps();
  auto* out = reinterpret_cast<uint16_t*>(scores);
  int64_t i = 0;
  for (; i < n; i += 16) {
    // Scores are read before what is stored reaches them.
    const __m512 score = _mm512_maskz_loadu_ps(there(i), scores + i);
    const __m512 e =
        _mm512_maskz_mov_ps(there(i), exp_of(_mm512_sub_ps(_mm512_mul_ps(score, factor), most)));
    total = _mm512_add_ps(total, e);
    store_bf16(out + i, e);
  }
  if (i % kAttentionKeys != 0) store_bf16(out + i, F32{});
  return sum(total) + exp_of(_mm512_set1_ps(sink - m))[0];
}

// A block of channels of all keys: per 32 keys two tiles, a row for two keys, of 16 channels each.
void decode_strip(const AttendedRows& keys, int64_t channel, uint8_t* strip) {
  const KeyDecoder decoder(keys);
  const int64_t padded = divide_up(keys.count, kAttentionKeys) * kAttentionKeys;
  const auto put = [&](int64_t key, __m512i even, __m512i odd) {
    uint8_t* to = strip + key / kAttentionKeys * 2 * kTileBytes + key % kAttentionKeys * 32;
    _mm512_store_si512(to, _mm512_unpacklo_epi16(even, odd));
    _mm512_store_si512(to + kTileBytes, _mm512_unpackhi_epi16(even, odd));
  };
  int64_t k = 0;
  for (; k + 1 < keys.window; k += 2) {
    put(k, decoder.window(k, channel), decoder.window(k + 1, channel));
  }
  if (k < keys.window) {
    put(k, decoder.window(k, channel),
        k + 1 < keys.count ? decoder.latent(k + 1, channel) : _mm512_setzero_si512());
    k += 2;
  }
  for (; k + 1 < keys.count; k += 2) {
    put(k, decoder.latent(k, channel), decoder.latent(k + 1, channel));
  }
  if (k < keys.count) {
    put(k, decoder.latent(k, channel), _mm512_setzero_si512());
    k += 2;
  }
  for (; k < padded; k += 2) put(k, _mm512_setzero_si512(), _mm512_setzero_si512());
}

// Sums of one or two tiles of heads: [head tile][half of the channels].
template <bool kTwoHeads>
void multiply_values(const float* weights, int64_t stride, const uint8_t* strip, int64_t chunks,
                     float* sums) {
  finish_stores();
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTwoHeads) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t c = 0; c < chunks; ++c) {
    _tile_loadd(6, strip + c * 2 * kTileBytes, 64);
    _tile_loadd(4, weights + c * 16, stride * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, strip + c * 2 * kTileBytes + kTileBytes, 64);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTwoHeads) {
      _tile_loadd(5, weights + kTile * stride + c * 16, stride * 4);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  if constexpr (kTwoHeads) {
    _tile_stored(2, sums + 512, 64);
    _tile_stored(3, sums + 768, 64);
  }
}

void weigh_values(const float* weights, int64_t score_stride, int64_t heads,
                  const AttendedRows& keys, int64_t channel, const float* factors, bf16* o,
                  int64_t stride, void* scratch) {
  auto* strip = static_cast<uint8_t*>(scratch);
  const int64_t chunks = divide_up(keys.count, kAttentionKeys);
  decode_strip(keys, channel, strip);
  // Interleaving keeps 128-bit lanes apart: four channels of the first half, four of the second.
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  alignas(64) float sums[4 * 256];
  shape_tiles(kTile, kTile);
  for (int64_t head = 0; head < heads; head += 2 * kTile) {
    const auto multiply = heads - head > kTile ? multiply_values<true> : multiply_values<false>;
    multiply(weights + head * score_stride, score_stride, strip, chunks, sums);
    for (int64_t h = head; h < heads && h < head + 2 * kTile; ++h) {
      const float* low = sums + (h - head) / kTile * 512 + h % kTile * kTile;
      const __m512 halves[2] = {load(low), load(low + 256)};
      const F32 factor = splat(factors[h]);
      bf16* to = o + h * stride + channel;
      store_bf16(to, _mm512_permutex2var_ps(halves[0], first, halves[1]) * factor);
      store_bf16(to + 16, _mm512_permutex2var_ps(halves[0], second, halves[1]) * factor);
    }
  }
  _tile_release();
}

}  // namespace

const AttentionKernels kAmxAttentionKernels = {.query_bytes = query_bytes,
                                               .pack_queries = pack_queries,
                                               .score_keys = score_keys,
                                               .weigh = weigh,
                                               .weigh_values = weigh_values,
                                               .scratch_bytes = scratch_bytes};

}  // namespace cachalot::cpu
