// reference::Queue: the operations as the contracts and the specification spell them. Slow,
// obvious, one thread; what every other queue is compared with.
//
// Sums run in double and are rounded to FP32 once, except where a contract fixes the order of FP32
// additions. Nothing here is shared with a backend beyond the number formats.
#pragma once

#include <string_view>
#include <utility>

#include "ops/queue.h"

namespace cachalot::reference {

class Queue {
 public:
  explicit Queue(Arena arena) : arena_(std::move(arena)) {}

  Arena& arena() { return arena_; }
  void label(std::string_view) {}

 private:
  Arena arena_;
};

#define CACHALOT_DECLARE(function, Args) void function(Queue& queue, const Args& args);
CACHALOT_FOR_EACH_OPERATION(CACHALOT_DECLARE)
#undef CACHALOT_DECLARE

static_assert(cachalot::Queue<Queue>);

}  // namespace cachalot::reference
