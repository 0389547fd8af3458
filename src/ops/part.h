// How a part of the model is described: once, next to the code it is (docs/explorer.md).
//
// Model code opens a scope around what it names. Queues that record (backend/meta/queue.h,
// ops/timed.h) note it with every operation; on all others a scope is nothing, not even an
// instruction.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace cachalot {

// How numbered siblings (layers) form groups: a leader and those that follow it.
enum class PartPlace { alone, leads, follows };

// All texts live forever. `slug` is the part's piece of a node's path: lower case and dashes.
struct Part {
  const char* slug;
  const char* title;
  const char* sentence;
  const char* formula = "";  // KaTeX
  // Expressions over configuration keys, separated by commas: what the widths met here are made of,
  // and by that the keys that bear on the part. The first that has a width's value names it.
  const char* dimensions = "";
  const char* unit = "";       // what numbered scopes count: "layer", "stage", "block"
  const char* account = "";    // the total its weights belong to; empty: that of the part around
  const char* cost_unit = "";  // what its cost is counted by; empty: by step
  PartPlace place = PartPlace::alone;
  bool top = false;      // a child of the root, wherever the code that opens it is called from
  bool borrows = false;  // weights it shares with another part belong to the other
  std::span<const Part> members = {};  // groups of weights inside one operation, by slug
};

// A line of the code. Not std::source_location, which clang 14 cannot give.
struct CodePlace {
  const char* file = "";
  const char* function = "";
  int line = 0;
};

// A part at the place where its scope is opened.
struct PartScope {
  const Part* part = nullptr;
  int64_t number = -1;  // of the layer, stage or block; -1: not numbered
  CodePlace where;
};

// A part until the end of the block, `const Within part(queue, kPart);`, or of one statement,
// `linear(Within(queue, kPart).queue(), ...)`.
template <class Q>
class Within {
 public:
  explicit Within(Q& queue, const Part& part, int64_t number = -1,
                  const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION(),
                  int line = __builtin_LINE())
      : queue_(queue) {
    if constexpr (kNoted) queue_.enter(PartScope{&part, number, {file, function, line}});
  }
  ~Within() {
    if constexpr (kNoted) queue_.leave();
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

  Q& queue() const { return queue_; }

 private:
  static constexpr bool kNoted = requires(Q & queue, PartScope scope) {
    queue.enter(scope);
    queue.leave();
  };

  Q& queue_;
};

}  // namespace cachalot
