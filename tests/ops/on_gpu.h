// Runs operations on the GPU for tests that compare them with the reference.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "mirrored_queue.h"
#include "ops/checked.h"
#include "random_arguments.h"

namespace cachalot {

inline cuda::Queue& gpu_queue() {
  static cuda::Queue* queue = [] {
    const auto device = cuda::find_device();
    CACHALOT_CHECK(device.has_value(), "{}", device.error().message);
    return new cuda::Queue(Arena(size_t{1} << 24, cuda::device_memory()));
  }();
  return *queue;
}

// Runs the operation on the GPU on copies of `args`, and compares what it wrote with the reference,
// within the limits of the operation's number formats. `args` then holds what the GPU wrote.
#define CACHALOT_EXPECT_GPU_AGREES(function, ...)                                   \
  do {                                                                              \
    mirrored::Queue mirror(gpu_queue());                                            \
    checked::Queue<mirrored::Queue> checking(mirror);                               \
    function(checking, __VA_ARGS__);                                                \
    EXPECT_FALSE(checking.first_departure())                                        \
        << #function << " departs in " << checking.first_departure()->field << ": " \
        << checking.first_departure()->error.error << " exceeds "                   \
        << checking.first_departure()->error.limit;                                 \
  } while (false)

// The bytes of all fields an operation may write.
template <class Args>
std::vector<std::byte> written_bytes(const Args& args) {
  std::vector<std::byte> out;
  args.fields([&](const char*, const auto& view, Access access) {
    if (access == Access::in || view.absent()) return;
    const auto* bytes = reinterpret_cast<const std::byte*>(view.data);
    out.insert(out.end(), bytes, bytes + view.bytes());
  });
  return out;
}

}  // namespace cachalot
