// What runs beside the operations of a queue, in an order of its own: copies and calls of the host.
// Captured, it is a branch of the graph.
#pragma once

#include <cstddef>

#include "backend/cuda/queue.h"

struct CUevent_st;

namespace cachalot::cuda {

class Branch {
 public:
  // The queue outlives it.
  explicit Branch(Queue& queue);
  ~Branch();
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  // What is started in the branch from now on waits for all that the queue was given so far.
  void mark();
  // As the queue's.
  void copy(void* to, const void* from, size_t bytes);
  void call(void (*call)(void* data), void* data);
  // What the queue is given from now on waits for all of the branch.
  void join();

 private:
  void wait_for_mark();

  Queue& queue_;
  CUstream_st* stream_ = nullptr;
  CUevent_st *marked_ = nullptr, *joined_ = nullptr;
};

}  // namespace cachalot::cuda
