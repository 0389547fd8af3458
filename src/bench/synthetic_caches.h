// Caches as if sequences had run up to some position: valid random rows, so that a step at that
// position costs what it costs in earnest, without the time it takes to get there.
#pragma once

#include <vector>

#include "checkpoint/config.h"
#include "model/caches.h"

namespace cachalot::bench {

struct SyntheticCacheOptions {
  int64_t sequences = 1;
  int64_t context = 0;  // positions filled
  int64_t tokens = 1;   // positions of a sequence that steps will write after them
  int64_t shortcut_tail = 0;
  // Past this, sequences share the pages before `context`. Of the machine's memory alone: in a
  // device's every page of every sequence is filled.
  int64_t most_filled_bytes = int64_t{768} << 20;
};

class SyntheticCaches {
 public:
  SyntheticCaches(const ModelConfig& config, const SyntheticCacheOptions& options,
                  const MemorySpace& memory = host_memory());

  const Caches& caches() const { return caches_; }
  View<const int32_t> page_table() const {
    return {table_.data(), {caches_.options().slots, caches_.pages_per_slot()}};
  }
  // Whether sequences read the same rows, which then are in a cache more often than in earnest.
  bool shared() const { return shared_; }

 private:
  Caches caches_;
  bool shared_ = false;
  std::vector<int32_t> table_;
};

}  // namespace cachalot::bench
