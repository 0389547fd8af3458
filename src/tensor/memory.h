// Where tensors lie: the machine's memory, or a device's. A backend says how memory of its kind is
// taken, given back and copied; whoever owns tensors is given one.
#pragma once

#include <cstddef>

namespace cachalot {

struct MemorySpace {
  void* (*allocate)(size_t bytes);  // zeroed; nullptr: not so much is left
  void (*release)(void* memory);
  // Either side may be this memory or the host's. Done when it returns, after everything that was
  // started before on the device.
  void (*copy)(void* to, const void* from, size_t bytes);
  // Whether the processor reads and writes it by address.
  bool is_host = false;
};

const MemorySpace& host_memory();

// Gives memory back to where it came from; for std::unique_ptr.
struct ReleaseTo {
  const MemorySpace* space = nullptr;
  void operator()(void* memory) const { space->release(memory); }
};

}  // namespace cachalot
