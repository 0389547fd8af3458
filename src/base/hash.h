// Checksums of bytes (XXH3): against damage, not against intent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cachalot {

uint64_t hash64(std::span<const std::byte> bytes);

using Hash128 = std::array<uint64_t, 2>;  // low, high
Hash128 hash128(std::span<const std::byte> bytes);

}  // namespace cachalot
