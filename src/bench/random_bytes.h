// Bytes for benchmarks: a small fast generator.
#pragma once

#include <cstdint>
#include <cstring>

namespace cachalot::bench {

class RandomWords {
 public:
  explicit RandomWords(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(next() % static_cast<uint64_t>(limit));
  }

 private:
  uint64_t state_;
};

// Random bytes with the bits of `keep` only, the same in each byte.
inline void fill_bytes(uint8_t* out, int64_t count, uint8_t keep, RandomWords& random) {
  const uint64_t mask = keep * 0x0101010101010101u;
  int64_t at = 0;
  for (; at + 8 <= count; at += 8) {
    const uint64_t word = random.next() & mask;
    std::memcpy(out + at, &word, 8);
  }
  for (; at < count; ++at) out[at] = static_cast<uint8_t>(random.next()) & keep;
}

}  // namespace cachalot::bench
