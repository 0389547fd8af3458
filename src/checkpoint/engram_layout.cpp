#include "checkpoint/engram_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace cachalot {
namespace {

__extension__ using uint128 = unsigned __int128;

uint64_t power_modulo(uint64_t base, uint64_t exponent, uint64_t modulus) {
  uint64_t result = 1;
  for (base %= modulus; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = static_cast<uint64_t>(uint128{result} * base % modulus);
    base = static_cast<uint64_t>(uint128{base} * base % modulus);
  }
  return result;
}

// Miller-Rabin with the first twelve primes as bases decides every 64-bit number.
bool is_prime(uint64_t n) {
  constexpr uint64_t kBases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  if (n < 2) return false;
  for (uint64_t base : kBases) {
    if (n % base == 0) return n == base;
  }
  const int twos = std::countr_zero(n - 1);
  for (uint64_t base : kBases) {
    uint64_t power = power_modulo(base, (n - 1) >> twos, n);
    bool passes = power == 1 || power == n - 1;
    for (int i = 1; i < twos && !passes; ++i) {
      power = static_cast<uint64_t>(uint128{power} * power % n);
      passes = power == n - 1;
    }
    if (!passes) return false;
  }
  return true;
}

// NumPy's SeedSequence: mixes the seed's 32-bit words into a pool of four, and draws state words.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, 4> entropy = {static_cast<uint32_t>(seed),
                                             static_cast<uint32_t>(seed >> 32), 0, 0};
    for (size_t i = 0; i < 4; ++i) pool_[i] = hash(entropy[i]);
    for (size_t source = 0; source < 4; ++source) {
      for (size_t target = 0; target < 4; ++target) {
        if (source != target) pool_[target] = mix(pool_[target], hash(pool_[source]));
      }
    }
  }

  std::array<uint64_t, 4> state() const {
    std::array<uint64_t, 4> words{};
    uint32_t factor = 0x8b51f9ddu;
    for (size_t i = 0; i < 8; ++i) {
      uint32_t word = pool_[i % 4] ^ factor;
      factor *= 0x58f38dedu;
      word *= factor;
      word ^= word >> 16;
      words[i / 2] |= uint64_t{word} << (32 * (i % 2));
    }
    return words;
  }

 private:
  uint32_t hash(uint32_t value) {
    value ^= factor_;
    factor_ *= 0x931e8875u;
    value *= factor_;
    return value ^ (value >> 16);
  }
  static uint32_t mix(uint32_t x, uint32_t y) {
    const uint32_t result = 0xca01f9ddu * x - 0x4973f715u * y;
    return result ^ (result >> 16);
  }

  std::array<uint32_t, 4> pool_{};
  uint32_t factor_ = 0x43b0d7e5u;
};

// NumPy's PCG64: a 128-bit congruential generator, output folded by xor and rotated.
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto words = SeedSequence(seed).state();
    increment_ = (((uint128{words[2]} << 64) | words[3]) << 1) | 1;
    step();
    state_ += (uint128{words[0]} << 64) | words[1];
    step();
  }

  uint64_t next64() {
    step();
    const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    return std::rotr(folded, static_cast<int>(state_ >> 122));
  }

  // The halves of one 64-bit draw, low half first.
  uint32_t next32() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    const uint64_t word = next64();
    half_ = static_cast<uint32_t>(word >> 32);
    has_half_ = true;
    return static_cast<uint32_t>(word);
  }

 private:
  void step() {
    constexpr uint128 kMultiplier = (uint128{0x2360ED051FC65DA4u} << 64) | 0x4385DF649FCCF645u;
    state_ = state_ * kMultiplier + increment_;
  }

  uint128 state_ = 0;
  uint128 increment_ = 0;
  uint32_t half_ = 0;
  bool has_half_ = false;
};

// Lemire's bounded draw, with the rejection NumPy applies.
uint64_t bounded64(Pcg64& generator, uint64_t bound) {
  uint128 product = uint128{generator.next64()} * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t threshold = (0 - bound) % bound;
    while (static_cast<uint64_t>(product) < threshold) {
      product = uint128{generator.next64()} * bound;
    }
  }
  return static_cast<uint64_t>(product >> 64);
}

uint32_t bounded32(Pcg64& generator, uint32_t bound) {
  uint64_t product = uint64_t{generator.next32()} * bound;
  if (static_cast<uint32_t>(product) < bound) {
    const uint32_t threshold = (0 - bound) % bound;
    while (static_cast<uint32_t>(product) < threshold) {
      product = uint64_t{generator.next32()} * bound;
    }
  }
  return static_cast<uint32_t>(product >> 32);
}

}  // namespace

std::vector<int64_t> numpy_integers(uint64_t seed, int64_t bound, int64_t count) {
  CACHALOT_CHECK(bound >= 1, "bound {}", bound);
  constexpr int64_t k32Bits = int64_t{1} << 32;
  Pcg64 generator(seed);
  std::vector<int64_t> draws(static_cast<size_t>(count));
  for (int64_t& draw : draws) {
    if (bound == 1) {
      draw = 0;
    } else if (bound < k32Bits) {
      draw = bounded32(generator, static_cast<uint32_t>(bound));
    } else if (bound == k32Bits) {
      draw = generator.next32();
    } else {
      draw = static_cast<int64_t>(bounded64(generator, static_cast<uint64_t>(bound)));
    }
  }
  return draws;
}

EngramLayout engram_layout(const ModelConfig& config) {
  EngramLayout layout;
  layout.layer_ids = config.engram_layer_ids;
  const size_t layers = layout.layer_ids.size();
  if (layers == 0) return layout;
  const auto sizes = static_cast<size_t>(config.engram_max_ngram_size - 1);
  const auto heads = static_cast<size_t>(config.engram_n_heads);
  // Each bucket takes the smallest prime from engram_vocab_size on that no other has: the primes in
  // their order. Starting over for every n-gram size would take minutes where there are many.
  int64_t candidate = config.engram_vocab_size - 1;
  layout.primes.assign(layers, std::vector(sizes, std::vector<int64_t>(heads)));
  for (auto& layer : layout.primes) {
    auto& offsets = layout.offsets.emplace_back();
    int64_t row = 0;
    for (auto& size : layer) {
      for (int64_t& prime : size) {
        do ++candidate;
        while (!is_prime(static_cast<uint64_t>(candidate)));
        prime = candidate;
        offsets.push_back(row);
        row += prime;
      }
    }
    layout.rows.push_back(row);
  }
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const int64_t bound = std::max<int64_t>(1, largest / config.engram_compressed_vocab_size / 2);
  for (int64_t layer : layout.layer_ids) {
    auto draws =
        numpy_integers(static_cast<uint64_t>(10007 * layer), bound, config.engram_max_ngram_size);
    for (int64_t& draw : draws) draw = 2 * draw + 1;
    layout.multipliers.push_back(std::move(draws));
  }
  return layout;
}

}  // namespace cachalot
