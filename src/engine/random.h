// Random numbers without state: a pure function of (seed, choice, position), so that a token drawn
// for a request does not depend on what else is running, on restarts or on the order of requests.
//
// Philox-4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011): key = seed, counter = (position low, position high, choice, use).
#pragma once

#include <array>
#include <cstdint>

namespace cachalot {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox_4x32(PhiloxBlock counter, uint32_t key_low, uint32_t key_high) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key_low,
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key_high,
               static_cast<uint32_t>(product0)};
    key_low += kWeyl0;
    key_high += kWeyl1;
  }
  return counter;
}

// What a number is for; those of different uses are independent.
enum class RandomUse : uint32_t {
  token,   // the token that is emitted
  draft,   // the draft for its place
  accept,  // whether the draft is taken over
};

// Uniform in [0, 1), a multiple of 2^-53. `choice` counts the answers to one prompt, `position` is
// the place of the drawn token in its sequence (the number of tokens before it).
constexpr double uniform_random(uint64_t seed, uint32_t choice, uint64_t position,
                                RandomUse use = RandomUse::token) {
  const PhiloxBlock block =
      philox_4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), choice,
                   static_cast<uint32_t>(use)},
                  static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const uint64_t bits = (uint64_t{block[1]} << 32) | block[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace cachalot
