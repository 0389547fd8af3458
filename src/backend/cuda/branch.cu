#include "backend/cuda/branch.h"
#include "backend/cuda/launch.h"

namespace cachalot::cuda {

Branch::Branch(Queue& queue) : queue_(queue) {
  // A blocking stream, as the queue's.
  check(cudaStreamCreate(&stream_), "making a stream");
  for (cudaEvent_t* event : {&marked_, &joined_}) {
    check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event");
  }
}

Branch::~Branch() {
  check(cudaStreamSynchronize(stream_), "running a branch");
  for (cudaEvent_t event : {marked_, joined_}) check(cudaEventDestroy(event), "ending an event");
  check(cudaStreamDestroy(stream_), "ending a stream");
}

void Branch::mark() { check(cudaEventRecord(marked_, queue_.stream()), "marking a place"); }

void Branch::wait_for_mark() { check(cudaStreamWaitEvent(stream_, marked_), "waiting for a mark"); }

void Branch::copy(void* to, const void* from, size_t bytes) {
  wait_for_mark();
  if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copying");
}

void Branch::call(void (*call)(void* data), void* data) {
  wait_for_mark();
  check(cudaLaunchHostFunc(stream_, call, data), "calling the host");
}

void Branch::join() {
  check(cudaEventRecord(joined_, stream_), "joining");
  check(cudaStreamWaitEvent(queue_.stream(), joined_), "joining");
}

}  // namespace cachalot::cuda
