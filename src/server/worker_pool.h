// Threads for handlers that wait a lot: as many as there is work, up to a limit.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cachalot {

class WorkerPool {
 public:
  explicit WorkerPool(size_t most) : most_(most) {}
  ~WorkerPool();  // waits for all work
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void run(std::function<void()> work);

 private:
  void loop();

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace cachalot
