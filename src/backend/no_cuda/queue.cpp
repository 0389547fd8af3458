// What a program built without CUDA has in place of backend/cuda: there is no device, so nothing
// else is ever called.
#include "backend/cuda/queue.h"

#include "backend/cuda/arranged_experts.h"
#include "backend/cuda/branch.h"
#include "backend/cuda/experts_elsewhere.h"
#include "base/check.h"

namespace cachalot::cuda {

class HeldOperation {};

Result<DeviceInfo> find_device() {
  return fail("this program was built without CUDA: build it where nvcc (CUDA 12.8 or later) is");
}

const MemorySpace& device_memory() { CACHALOT_CHECK(false, "no CUDA"); }
const MemorySpace& pinned_memory() { CACHALOT_CHECK(false, "no CUDA"); }

bool on_device(const void*) { return false; }
bool in_reach(const void*) { return false; }

Queue::Queue(Arena arena) : arena_(std::move(arena)) { CACHALOT_CHECK(false, "no CUDA"); }
Queue::~Queue() = default;
void Queue::start_held() {}
void Queue::wait() {}
void Queue::note() {}
void Queue::wait_for_noted() {}
void Queue::copy(void*, const void*, size_t) {}
void Queue::call(void (*)(void*), void*) {}
void Queue::begin_capture() {}
std::unique_ptr<Graph> Queue::end_capture() { return nullptr; }
void Queue::launch(const Graph&) {}
Graph::~Graph() { CACHALOT_CHECK(graph_ == nullptr, "no CUDA"); }
void* Queue::kept(const void*) const { return nullptr; }
void* Queue::keep(const void*, const void*, size_t) { return nullptr; }

Branch::Branch(Queue& queue) : queue_(queue) { CACHALOT_CHECK(false, "no CUDA"); }
Branch::~Branch() { CACHALOT_CHECK(stream_ == nullptr, "no CUDA"); }
void Branch::mark() {}
void Branch::copy(void*, const void*, size_t) {}
void Branch::call(void (*)(void*), void*) {}
void Branch::join() {}

void arrange_experts(Queue&, std::span<const ExpertMatrices>, const SharedExpertMatrices&) {
  CACHALOT_CHECK(false, "no CUDA");
}

void moe_experts(Queue&, const MoeExpertsArgs&, const ExpertsElsewhere&) {
  CACHALOT_CHECK(false, "no CUDA");
}

#define CACHALOT_STUB(function, Args) \
  void function(Queue&, const Args&) { CACHALOT_CHECK(false, "no CUDA"); }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_STUB)
#undef CACHALOT_STUB

}  // namespace cachalot::cuda
