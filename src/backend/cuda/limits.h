// What a GPU allows, measured: the limits every kernel is held against.
#pragma once

#include <cstdint>

#include "backend/cuda/queue.h"

namespace cachalot::cuda {

struct DeviceLimits {
  int64_t buffer_bytes = 0;          // of the memory that was read
  double read_bytes_per_second = 0;  // reading alone
  double copy_bytes_per_second = 0;  // read and written bytes together
  // Multiply-adds count twice. Tensor cores multiply random values: with zeros they draw less power
  // and clock higher.
  double fp32_per_second = 0;
  double bf16_per_second = 0;
  double fp8_per_second = 0;
  // From one kernel's start to the next's in a captured chain of kernels that do nothing, started
  // as launch() starts them.
  double launch_seconds = 0;
};

// About a second. Takes `buffer_bytes` of device memory twice meanwhile.
DeviceLimits measure_limits(Queue& queue, int64_t buffer_bytes = int64_t{4} << 30);

// Starts reading all of it, as fast as it can be read. 3 times the L2 cache's size of other memory
// leave nothing in it of what was there.
void read_memory(Queue& queue, const void* data, int64_t bytes, int blocks_per_processor = 8);

}  // namespace cachalot::cuda
