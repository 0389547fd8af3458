// OperationWatcher: sees every operation of a step while it runs, with its operands. The explorer
// shows a live step through it (inspect/live_trace.h).
#pragma once

#include <string_view>

#include "ops/cost.h"
#include "ops/part.h"

namespace cachalot {

// Called on the thread that runs the step; the time it takes is not the operations'. Operands are
// readable during the call only: before() sees what an operation may overwrite, after() its
// results.
class OperationWatcher {
 public:
  virtual ~OperationWatcher() = default;

  // The part of the model that the following operations lie in.
  virtual void enter(const PartScope&) {}
  virtual void leave() {}

#define CACHALOT_WATCH(function, Args) \
  virtual void before(const Args&) {}  \
  virtual void after(const Args&) {}
  CACHALOT_FOR_EACH_OPERATION(CACHALOT_WATCH)
#undef CACHALOT_WATCH

  // After after(): how long it took, what it moved and computed.
  virtual void ran(std::string_view /*operation*/, double /*seconds*/, const Cost&) {}
};

}  // namespace cachalot
