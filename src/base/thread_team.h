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
#include <vector>

namespace cachalot {

// All members wait for one another; what one wrote before is visible to the others after.
class TeamBarrier {
 public:
  TeamBarrier(int members, int spins) : members_(members), spins_(spins) {}
  void wait();

 private:
  const int members_;
  const int spins_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
};

// What a function run by the team knows of its place in it.
class TeamMember {
 public:
  TeamMember(int index, int count, TeamBarrier* barrier)
      : index_(index), count_(count), barrier_(barrier) {}
  int index() const { return index_; }
  int count() const { return count_; }
  void barrier() const {
    if (count_ > 1) barrier_->wait();
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

  // Calls fn(const TeamMember&) on every member and returns when all have finished. fn must not
  // throw. A run inside a run, or two at once, is a bug.
  template <class F>
  void run(F&& fn) {
    run_job([](void* f, const TeamMember& member) { (*static_cast<std::decay_t<F>*>(f))(member); },
            const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
  }

  // The same on the calling thread alone, for work too small to share.
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
  Job job_ = nullptr;  // null with a new epoch: stop
  void* function_ = nullptr;
  std::atomic<bool> running_{false};
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::vector<std::thread> workers_;
};

}  // namespace cachalot
