// ThreadTeam: one set of threads that all run the same function and meet at barriers inside it.
//
// The caller is member 0; the others wait between runs, spinning for some tens of microseconds (the
// gap between two operations of a decode step, unless told otherwise) and then sleeping. Workers
// are pinned when the team fits the CPUs the process may use; a larger team works too, without
// spinning.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/late_members.h"

namespace cachalot {

// Where members meet. Each tells its parent in a tree, four below each, that it and all below have
// come, every one in a cache line of its own: a counter that all of them changed would go from core
// to core as often as there are members.
class TeamBarrier {
 public:
  TeamBarrier(int members, int spins);

  // All members wait for one another; what one wrote before is visible to the others after.
  void wait(int member);
  // The same for member 0, which alone waits for the others.
  void gather(int member);

  // For how long member 0 has slept since this was asked last.
  double take_slept() { return std::exchange(slept_, 0); }

 private:
  struct alignas(64) Arrivals {
    std::atomic<uint32_t> count{0};
  };

  const int members_;
  const int spins_;
  const std::unique_ptr<Arrivals[]> arrived_;  // how often each has come
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) double slept_ = 0;  // member 0's; nobody else may wait for the line it lies in
};

// What a function run by the team knows of its place in it.
class TeamMember {
 public:
  TeamMember(int index, int count, TeamBarrier* barrier)
      : index_(index), count_(count), barrier_(barrier) {}
  int index() const { return index_; }
  int count() const { return count_; }
  void barrier() const {
    if (count_ > 1) barrier_->wait(index_);
  }

 private:
  int index_;
  int count_;
  TeamBarrier* barrier_;
};

class ThreadTeam {
 public:
  // How often a member pauses before it sleeps, at 40 to 140 cycles a pause. These take at most
  // about 50 us; with more threads than CPUs nobody pauses, for the one waited for may need this
  // CPU.
  static constexpr int kSpins = 2000;

  // 0: one thread per available CPU.
  explicit ThreadTeam(int threads = 0, int spins = kSpins);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  // Whether the caller is faster alone for now, as others use the CPUs (base/late_members.h).
  bool keeps_away() { return late_.keep_away(); }

  // Calls fn(const TeamMember&) on every member and returns when all have finished. fn must not
  // throw. A run inside a run, or two at once, is a bug.
  template <class F>
  void run(F&& fn) {
    run_job([](void* f, const TeamMember& member) { (*static_cast<std::decay_t<F>*>(f))(member); },
            const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
  }

  // The same on the calling thread alone, for work too small to share or while keeps_away().
  template <class F>
  void run_alone(F&& fn) {
    fn(TeamMember(0, 1, nullptr));
  }

 private:
  using Job = void (*)(void* function, const TeamMember& member);

  void run_job(Job job, void* function);
  void work(int index, int cpu);

  const int size_;
  const int spins_;
  TeamBarrier barrier_;
  LateMembers late_;
  Job job_ = nullptr;  // null with a new epoch: stop
  void* function_ = nullptr;
  std::atomic<bool> running_{false};
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::vector<std::thread> workers_;
};

}  // namespace cachalot
