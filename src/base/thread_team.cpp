#include "base/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include "base/check.h"
#include "base/cpu_info.h"

namespace cachalot {
namespace {

bool has_cpus_for(int threads) { return threads <= cpus_at_once(); }

int team_size(int threads) {
  CACHALOT_CHECK(threads >= 0, "{} threads", threads);
  return threads > 0 ? threads : cpus_at_once();
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool spin_while(const std::atomic<uint32_t>& word, uint32_t value, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != value) return false;
    pause();
  }
  return true;
}

void wait_while(const std::atomic<uint32_t>& word, uint32_t value, int spins) {
  if (spin_while(word, value, spins)) word.wait(value, std::memory_order_acquire);
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // Speed only: a failure (the CPU was taken away meanwhile) leaves the thread where it is.
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// With a new epoch and no job.
void stop(std::atomic<uint32_t>& epoch, std::vector<std::thread>& workers) {
  epoch.fetch_add(1, std::memory_order_seq_cst);  // as TeamBarrier::gather()
  epoch.notify_all();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace

TeamBarrier::TeamBarrier(int members, int spins)
    : members_(members), spins_(spins), arrived_(new Arrivals[static_cast<size_t>(members)]) {}

void TeamBarrier::gather(int member) {
  constexpr int kBelow = 4;
  std::atomic<uint32_t>& own = arrived_[member].count;
  const uint32_t before = own.load(std::memory_order_relaxed);
  for (int i = kBelow * member + 1; i <= kBelow * (member + 1) && i < members_; ++i) {
    const std::atomic<uint32_t>& other = arrived_[i].count;
    if (!spin_while(other, before, spins_)) continue;
    const double start = wall_seconds();
    other.wait(before, std::memory_order_acquire);
    if (member == 0) slept_ += wall_seconds() - start;
  }
  if (member == 0) {
    own.store(before + 1, std::memory_order_relaxed);
    return;
  }
  // notify_one() first looks whether anybody sleeps. A release lets a processor look before the new
  // count can be seen, while somebody goes to sleep on the old one, and both wait for ever.
  own.store(before + 1, std::memory_order_seq_cst);
  own.notify_one();
}

void TeamBarrier::wait(int member) {
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  gather(member);
  if (member != 0) return wait_while(phase_, phase, spins_);
  phase_.store(phase + 1, std::memory_order_seq_cst);  // as gather()
  phase_.notify_all();
}

ThreadTeam::ThreadTeam(int threads, int spins)
    : size_(team_size(threads)),
      spins_(has_cpus_for(size_) ? spins : 0),
      barrier_(size_, spins_),
      late_(size_, has_cpus_for(size_) ? LateMembers::kRuns : 1) {
  const std::vector<int> cpus = available_cpus();
  const bool pinned = size_ <= static_cast<int>(cpus.size());
  try {
    for (int i = 1; i < size_; ++i) {
      workers_.emplace_back(&ThreadTeam::work, this, i, pinned ? cpus[i] : -1);
    }
  } catch (...) {  // the system has no more threads: those there are wait for this object
    stop(epoch_, workers_);
    throw;
  }
}

ThreadTeam::~ThreadTeam() {
  job_ = nullptr;
  stop(epoch_, workers_);
}

void ThreadTeam::run_job(Job job, void* function) {
  CACHALOT_CHECK(!running_.exchange(true, std::memory_order_acquire), "nested ThreadTeam::run");
  if (size_ > 1) {
    job_ = job;
    function_ = function;
    epoch_.fetch_add(1, std::memory_order_seq_cst);  // as TeamBarrier::gather()
    epoch_.notify_all();
  }
  job(function, TeamMember(0, size_, &barrier_));
  if (size_ > 1) {
    barrier_.gather(0);
    if (const double slept = barrier_.take_slept(); slept > 0) late_.add(slept);
  }
  running_.store(false, std::memory_order_release);
}

void ThreadTeam::work(int index, int cpu) {
  if (cpu >= 0) pin_to(cpu);
  for (uint32_t epoch = 0;; ++epoch) {
    wait_while(epoch_, epoch, spins_);
    const Job job = job_;
    if (!job) return;
    job(function_, TeamMember(index, size_, &barrier_));
    barrier_.gather(index);
  }
}

}  // namespace cachalot
