#include "bench/gpu_machine.h"

namespace cachalot::bench {

Machine machine_of(const cuda::DeviceInfo& device, const cuda::DeviceLimits& limits) {
  return {.processor = device.name,
          .read_bytes_per_second = limits.read_bytes_per_second,
          .read_buffer_bytes = limits.buffer_bytes,
          .peaks = {{Machine::kVectorPath, Isa::generic, limits.fp32_per_second},
                    {"bf16_wgmma", Isa::generic, limits.bf16_per_second},
                    {"fp8_wgmma", Isa::generic, limits.fp8_per_second}},
          .caches = {},
          .matmul_path = "fp8_wgmma",
          .multiprocessors = device.multiprocessors,
          .copy_bytes_per_second = limits.copy_bytes_per_second,
          .launch_seconds = limits.launch_seconds};
}

Machine measure_gpu(const cuda::DeviceInfo& device) {
  cuda::Queue queue(Arena(0, cuda::device_memory()));
  return machine_of(device, cuda::measure_limits(queue));
}

}  // namespace cachalot::bench
