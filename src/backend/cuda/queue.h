// cuda::Queue: the operations of the seam on one NVIDIA Hopper GPU, started in order on one stream.
// An operation returns once its kernels are queued, or once it is held back for the operation
// behind it, which may make one kernel of both (held_operation.h); memory of the device is read and
// written when they run.
//
// Everything an operation is given lies in device memory (device_memory()), except what says
// otherwise in its args struct. A build without CUDA has the same symbols (backend/no_cuda), of
// which find_device() is the only one that may be called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "ops/queue.h"
#include "tensor/memory.h"

struct CUevent_st;
struct CUgraphExec_st;
struct CUstream_st;

namespace cachalot::cuda {

// What is known of the GPU.
struct DeviceInfo {
  std::string name;         // "NVIDIA H200"
  int64_t memory = 0;       // bytes
  int64_t free_memory = 0;  // bytes, when it was asked
  int multiprocessors = 0;
};

// The first GPU this process sees, which becomes its device. Errors: this program was built without
// CUDA; there is no GPU or no driver; it is not a Hopper GPU.
Result<DeviceInfo> find_device();

// Memory of the device. copy() waits for the streams of all queues.
const MemorySpace& device_memory();
// Memory of the host that the device reads and writes too, over the bus; the same addresses on both
// sides. is_host.
const MemorySpace& pinned_memory();

// Whether the device reads this address as fast as it can: not memory of the host.
bool on_device(const void* address);
// Whether it reads it at all: memory of the device, or pinned memory.
bool in_reach(const void* address);

// What a queue started between begin_capture() and end_capture(), to be started again at once.
class Graph {
 public:
  explicit Graph(CUgraphExec_st* graph) : graph_(graph) {}
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

 private:
  friend class Queue;

  CUgraphExec_st* graph_;
};

class HeldOperation;

class Queue {
 public:
  // find_device() has succeeded. `arena` lies in device_memory().
  explicit Queue(Arena arena);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Arena& arena() { return arena_; }
  void label(std::string_view) {}

  // For whoever starts something on it: what was held back comes first.
  CUstream_st* stream() {
    start_held();
    return stream_;
  }
  int multiprocessors() const { return multiprocessors_; }
  HeldOperation& held() { return *held_; }
  void start_held();
  // Waits until everything started has run. A kernel that failed ends the program with its name.
  // To be called before anything is written past the queue that operations read or write, such as
  // pinned memory or weights: they may still run, or be held back.
  void wait();
  // Notes what was started so far; wait_for_noted() waits for that alone.
  void note();
  void wait_for_noted();

  // Starts a copy; host memory must be pinned and stay as it is until wait().
  void copy(void* to, const void* from, size_t bytes);
  // Calls call(data) on a thread of its own when everything started before has run; what is started
  // after waits for it. It may not use CUDA.
  void call(void (*call)(void* data), void* data);

  // From now on operations are noted, not run.
  void begin_capture();
  std::unique_ptr<Graph> end_capture();
  void launch(const Graph& graph);

  // A counter per use, zero between operations: a kernel that counts in them leaves zeros behind.
  static constexpr int64_t kCounters = 1 << 16;
  int32_t* counters() const { return counters_; }

  // What an operation keeps on the device about something on the host that does not change, such as
  // the addresses of a layer's experts; by the address of that thing. nullptr: nothing yet.
  void* kept(const void* key) const;
  // Copies `bytes` of the host and keeps them. Not while a graph is captured.
  void* keep(const void* key, const void* data, size_t bytes);

 private:
  friend class Scratch;

  Arena arena_;
  CUstream_st* stream_ = nullptr;
  int multiprocessors_ = 0;
  int32_t* counters_ = nullptr;
  std::unordered_map<const void*, std::unique_ptr<void, ReleaseTo>> kept_;
  // Memory of operations that are running. Blocks are never given back while the queue lives: a
  // captured graph may use them.
  struct Block {
    std::unique_ptr<void, ReleaseTo> memory;
    size_t bytes = 0;
  };
  std::vector<Block> blocks_;
  CUevent_st* noted_ = nullptr;
  std::unique_ptr<HeldOperation> held_;
};

// Memory of one operation while it runs, in device memory and not zeroed: what it allocates is
// other memory than what the arena hands out, and free for the next operation. One at a time.
class Scratch {
 public:
  explicit Scratch(Queue& queue) : queue_(queue) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  T* allocate(int64_t count) {
    return static_cast<T*>(bytes(static_cast<size_t>(count) * sizeof(T)));
  }

 private:
  // Aligned to 256.
  void* bytes(size_t count);

  Queue& queue_;
  size_t block_ = 0, used_ = 0;
};

#define CACHALOT_DECLARE_OPERATION(function, Args) void function(Queue& queue, const Args& args);
CACHALOT_FOR_EACH_OPERATION(CACHALOT_DECLARE_OPERATION)
#undef CACHALOT_DECLARE_OPERATION

static_assert(cachalot::Queue<Queue>);

}  // namespace cachalot::cuda
