#include <cstring>

#include "backend/cuda/held_operation.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/queue.h"

namespace cachalot::cuda {
namespace {

// An allocation may fail; whoever asked says what for.
void* allocate(size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes > 0 ? bytes : 1) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  check(cudaMemset(memory, 0, bytes), "clearing device memory");
  return memory;
}
void release(void* memory) { check(cudaFree(memory), "releasing device memory"); }

void* allocate_pinned(size_t bytes) {
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, bytes > 0 ? bytes : 1, cudaHostAllocDefault) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  std::memset(memory, 0, bytes);
  return memory;
}
void release_pinned(void* memory) { check(cudaFreeHost(memory), "releasing pinned memory"); }

// Without a device nothing is known to it.
cudaMemoryType kind_of(const void* address) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    cudaGetLastError();
    return cudaMemoryTypeUnregistered;
  }
  return attributes.type;
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copying");
}

}  // namespace

void check(cudaError_t status, const char* what) {
  CACHALOT_CHECK(status == cudaSuccess, "{}: {}", what, cudaGetErrorString(status));
}

Result<DeviceInfo> find_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  // What the runtime also says where there is no driver at all.
  if (status == cudaErrorInsufficientDriver) {
    return fail(
        "no GPU: expected an NVIDIA Hopper GPU with a driver for CUDA {}.{}, found no driver "
        "or an older one",
        CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  if (status != cudaSuccess || count == 0) {
    return fail("no GPU: expected an NVIDIA Hopper GPU, found {}",
                status == cudaSuccess ? "none" : cudaGetErrorString(status));
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "asking for the GPU's properties");
  if (properties.major != 9 || properties.minor != 0) {
    return fail(
        "{}: expected a Hopper GPU (compute capability 9.0: H100, H200, H800, H20, GH200), found "
        "compute capability {}.{}",
        properties.name, properties.major, properties.minor);
  }
  if (const cudaError_t status = cudaSetDevice(0); status != cudaSuccess) {
    return fail("{}: cannot be used: {}", properties.name, cudaGetErrorString(status));
  }
  size_t free = 0, total = 0;
  if (const cudaError_t status = cudaMemGetInfo(&free, &total); status != cudaSuccess) {
    return fail("{}: cannot be used: {}", properties.name, cudaGetErrorString(status));
  }
  return DeviceInfo{.name = properties.name,
                    .memory = static_cast<int64_t>(total),
                    .free_memory = static_cast<int64_t>(free),
                    .multiprocessors = properties.multiProcessorCount};
}

const MemorySpace& device_memory() {
  static constexpr MemorySpace kDevice{.allocate = allocate, .release = release, .copy = copy};
  return kDevice;
}

const MemorySpace& pinned_memory() {
  static constexpr MemorySpace kPinned{
      .allocate = allocate_pinned, .release = release_pinned, .copy = copy, .is_host = true};
  return kPinned;
}

bool on_device(const void* address) { return kind_of(address) == cudaMemoryTypeDevice; }

bool in_reach(const void* address) { return kind_of(address) != cudaMemoryTypeUnregistered; }

Queue::Queue(Arena arena) : arena_(std::move(arena)), held_(std::make_unique<HeldOperation>()) {
  // A blocking stream: copies on the default stream wait for it.
  check(cudaStreamCreate(&stream_), "making a stream");
  check(cudaEventCreateWithFlags(&noted_, cudaEventDisableTiming), "making an event");
  check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, 0),
        "counting multiprocessors");
  counters_ = static_cast<int32_t*>(keep(&counters_, nullptr, kCounters * sizeof(int32_t)));
}

Queue::~Queue() {
  wait();
  check(cudaEventDestroy(noted_), "ending an event");
  check(cudaStreamDestroy(stream_), "ending a stream");
}

void Queue::start_held() { held_->start(*this); }

void Queue::wait() { check(cudaStreamSynchronize(stream()), "running kernels"); }

void Queue::note() { check(cudaEventRecord(noted_, stream()), "noting a place"); }

void Queue::wait_for_noted() { check(cudaEventSynchronize(noted_), "running kernels"); }

void Queue::copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()), "copying");
}

void Queue::call(void (*call)(void* data), void* data) {
  check(cudaLaunchHostFunc(stream(), call, data), "calling the host");
}

void Queue::begin_capture() {
  held_->forget_attention();
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "capturing a step");
}

std::unique_ptr<Graph> Queue::end_capture() {
  cudaGraph_t graph = nullptr;
  held_->forget_attention();
  check(cudaStreamEndCapture(stream(), &graph), "capturing a step");
  cudaGraphExec_t instance = nullptr;
  check(cudaGraphInstantiate(&instance, graph, 0), "making a graph of a step");
  check(cudaGraphDestroy(graph), "making a graph of a step");
  return std::make_unique<Graph>(instance);
}

void Queue::launch(const Graph& graph) {
  held_->forget_attention();
  check(cudaGraphLaunch(graph.graph_, stream()), "starting a step's graph");
}

Graph::~Graph() { check(cudaGraphExecDestroy(graph_), "ending a graph"); }

void* Queue::kept(const void* key) const {
  const auto found = kept_.find(key);
  return found == kept_.end() ? nullptr : found->second.get();
}

void* Queue::keep(const void* key, const void* data, size_t bytes) {
  std::unique_ptr<void, ReleaseTo> memory(device_memory().allocate(bytes), {&device_memory()});
  CACHALOT_CHECK(memory != nullptr, "{} bytes on the device", bytes);
  if (data != nullptr) device_memory().copy(memory.get(), data, bytes);
  return (kept_[key] = std::move(memory)).get();
}

void* Scratch::bytes(size_t count) {
  constexpr size_t kAlignment = 256, kLeastBlock = size_t{64} << 20;
  count = (count + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < queue_.blocks_.size() && used_ + count > queue_.blocks_[block_].bytes) {
    ++block_;
    used_ = 0;
  }
  if (block_ == queue_.blocks_.size()) {
    const size_t size = count > kLeastBlock ? count : kLeastBlock;
    std::unique_ptr<void, ReleaseTo> memory(device_memory().allocate(size), {&device_memory()});
    CACHALOT_CHECK(memory != nullptr, "{} bytes of workspace on the device", size);
    queue_.blocks_.push_back({std::move(memory), size});
  }
  std::byte* at = static_cast<std::byte*>(queue_.blocks_[block_].memory.get()) + used_;
  used_ += count;
  return at;
}

}  // namespace cachalot::cuda
