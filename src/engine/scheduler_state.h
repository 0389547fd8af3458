// What a scheduler has done and is doing, for those who watch it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "engine/generation.h"
#include "engine/histogram.h"
#include "engine/prefix_cache.h"

namespace cachalot {

// A sequence of the engine and what it works on.
struct SlotState {
  int32_t sequence = 0;
  uint64_t request = 0;
  bool prefilling = false;
  int64_t priority = 0;
  int64_t prompt_tokens = 0;
  int64_t held_tokens = 0;  // in the caches
  int64_t generated_tokens = 0;
  double seconds = 0;  // since the request came
};

struct SchedulerState {
  int64_t slots = 0;  // requests that can run at a time
  std::vector<SlotState> running = {};
  int64_t waiting = 0;
  bool stopping = false;

  // Since the start.
  int64_t prompt_tokens = 0;     // of requests whose prompt is done, cached ones included
  int64_t cached_tokens = 0;     // of them
  int64_t generated_tokens = 0;  // end tokens included
  double prefill_seconds = 0, decode_seconds = 0;  // summed over requests
  int64_t steps = 0;                               // of the engine
  int64_t busy_slots = 0;                          // summed over steps
  int64_t drafts = 0, drafted_tokens = 0, accepted_tokens = 0;
  std::vector<int64_t> accepted_by_position = {};
  int64_t preemptions = 0;
  int64_t refused = 0;
  int64_t failed = 0;
  std::array<int64_t, 4> finished = {};  // by FinishReason
  int64_t longest_sequence = 0;
  PrefixCacheStatistics cache = {};
  PageUse pages = {};

  static std::vector<double> second_bounds() {
    return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
            1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
  }
  static std::vector<double> token_bounds() {
    return {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
            2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
  }
  Histogram first_token{second_bounds()}, between_tokens{second_bounds()},
      request_time{second_bounds()}, queue_time{second_bounds()}, prefill_time{second_bounds()},
      decode_time{second_bounds()};
  Histogram request_prompt{token_bounds()}, request_generated{token_bounds()},
      step_tokens{token_bounds()};
};

}  // namespace cachalot
