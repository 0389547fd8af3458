// Sharing an operation's independent pieces of work among the team's members.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/thread_team.h"

namespace cachalot::cpu {

// Tasks 0 .. count - 1, handed out in order, `grain` at a time, to whoever comes next. Who runs a
// task must not matter to its result.
class Tasks {
 public:
  explicit Tasks(int64_t count, int64_t grain = 1) : count_(count), grain_(grain) {}

  template <class F>
  void work(F&& body) {
    for (;;) {
      const int64_t first = next_.fetch_add(grain_, std::memory_order_relaxed);
      if (first >= count_) return;
      for (int64_t task = first; task < std::min(count_, first + grain_); ++task) body(task);
    }
  }

 private:
  const int64_t count_;
  const int64_t grain_;
  std::atomic<int64_t> next_{0};
};

// The same with a fixed share per member: member i takes tasks i, i + count, ...
template <class F>
void share_tasks(const TeamMember& member, int64_t tasks, F&& body) {
  for (int64_t task = member.index(); task < tasks; task += member.count()) body(task);
}

constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace cachalot::cpu
