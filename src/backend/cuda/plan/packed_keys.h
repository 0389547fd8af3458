// The keys of one token as the blocks of sparse_attention copy them, in the order of their slots:
// which bytes lie where. Window and latents have chunks of 64 slots of their own; slots without a
// key are zeros.
#pragma once

#include <cstdint>

namespace cachalot::cuda {

struct PackedKeys {
  static constexpr int kChunkKeys = 64, kChunkGroups = 4;
  static constexpr int kWindowChunks = 2, kLatentChunks = 8;
  static constexpr int kChunks = kWindowChunks + kLatentChunks;
  static constexpr int kWindowGroups = kWindowChunks * kChunkGroups;
  static constexpr int kLatentGroups = kLatentChunks * kChunkGroups;
  static constexpr int kWindowKeys = kWindowChunks * kChunkKeys;
  static constexpr int kLatents = kLatentChunks * kChunkKeys;

  // Keys of each chunk that are there.
  static constexpr int kCountsAt = 0;
  // For scores: of each part of a row, 128 bytes of codes, and of 16 bytes of scales, the groups of
  // 16 keys one behind the other. All parts of a window row have the same scales.
  static constexpr int kWindowParts = 4, kLatentParts = 2;
  static constexpr int kCodesOfGroup = 16 * 128, kScalesOfGroup = 16 * 16;
  static constexpr int kWindowCodesAt = 128;
  static constexpr int kWindowScalesAt =
      kWindowCodesAt + kWindowParts * kWindowGroups * kCodesOfGroup;
  static constexpr int kLatentCodesAt = kWindowScalesAt + kWindowGroups * kScalesOfGroup;
  static constexpr int kLatentScalesAt =
      kLatentCodesAt + kLatentParts * kLatentGroups * kCodesOfGroup;
  // For values: of each slice of the channels, stages of a window chunk and of two chunks of
  // latents, in which each of eight warps has what its lanes read: codes of the lane's two channels
  // of the four keys it has of a group, then the multipliers of four keys for all lanes of a quad,
  // two BF16 numbers a word.
  static constexpr int kSlices = 4, kWarps = 8;
  static constexpr int kWarpCodes = 1024, kWarpBytes = kWarpCodes + 256;
  static constexpr int kStageBytes = kWarps * kWarpBytes;
  static constexpr int kWindowStages = kWindowChunks, kLatentStages = kLatentChunks / 2;
  static constexpr int kStages = kWindowStages + kLatentStages;
  static constexpr int kValuesAt = kLatentScalesAt + kLatentParts * kLatentGroups * kScalesOfGroup;
  // The token's query as products take it: panels of 64 of the channels of 64 heads, swizzled. A
  // k-step of 16 takes two pairs of each quad's channels, 8 w + r and 8 w + r + 4, because two
  // codes 16 bits apart come out of a word together: pair r of quad Q lies in k-step r / 2 of the
  // two at columns 2 Q + 8 (r % 2) and the one after.
  static constexpr int kQueryAt = kValuesAt + kSlices * kStages * kStageBytes;
  static constexpr int kPanelBytes = 64 * 128, kPanels = 8;
  static constexpr int kBytes = kQueryAt + kPanels * kPanelBytes;

  static constexpr int query(int head, int channel) {
    const int panel = channel / 128 * 2 + channel / 16 % 2, quad = channel / 32 % 4;
    const int piece = channel / 8 % 2 * 4 + channel % 4, half = channel / 4 % 2;
    return kQueryAt + panel * kPanelBytes + head * 128 + ((piece ^ head % 8) << 4) + quad * 4 +
           half * 2;
  }

  static constexpr int window_codes(int part, int group) {
    return kWindowCodesAt + (part * kWindowGroups + group) * kCodesOfGroup;
  }
  static constexpr int window_scales(int group) { return kWindowScalesAt + group * kScalesOfGroup; }
  // `group`: of latents.
  static constexpr int latent_codes(int part, int group) {
    return kLatentCodesAt + (part * kLatentGroups + group) * kCodesOfGroup;
  }
  static constexpr int latent_scales(int part, int group) {
    return kLatentScalesAt + (part * kLatentGroups + group) * kScalesOfGroup;
  }
  static constexpr int values(int slice, int stage) {
    return kValuesAt + (slice * kStages + stage) * kStageBytes;
  }
};
static_assert(PackedKeys::kValuesAt % 128 == 0 && PackedKeys::kQueryAt % 128 == 0);

}  // namespace cachalot::cuda
