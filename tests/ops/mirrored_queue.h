// mirrored::Queue: takes arguments that lie in the host's memory, runs the operation on the CUDA
// queue on copies of them, and copies back what it wrote. So a test of the CPU queue serves the
// GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cuda/arranged_experts.h"
#include "backend/cuda/queue.h"

namespace cachalot::mirrored {

// Experts of moe_experts that are not copied to the device, by id: none if empty. They are copied
// to `memory` unless that is nullptr.
struct LeftBehind {
  std::vector<bool> experts;
  const MemorySpace* memory = nullptr;

  bool has(size_t expert) const { return !experts.empty() && experts[expert]; }
};

// Arguments whose tensors are copies on the device.
template <class Args>
class OnDevice {
 public:
  explicit OnDevice(const Args& host, LeftBehind left = {}) : args_(host), left_(std::move(left)) {
    args_.fields([&](auto, const auto& view, Access access) {
      using V = std::remove_cvref_t<decltype(view)>;
      using T = std::remove_reference_t<decltype(*view.data)>;
      if (view.absent()) return;
      auto& moved = const_cast<V&>(view);
      T* device = copy_of(moved);
      if constexpr (!std::is_const_v<T>) {
        if (access != Access::in) {
          written_.push_back({moved.data, device, static_cast<size_t>(moved.bytes())});
        }
      }
      moved.data = device;
    });
    if constexpr (std::is_same_v<Args, MoeExpertsArgs>) move_experts();
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  const Args& args() const { return args_; }
  void copy_back() const {
    for (const Written& field : written_) {
      cuda::device_memory().copy(field.host, field.device, field.bytes);
    }
  }

 private:
  struct Written {
    void* host;
    const void* device;
    size_t bytes;
  };

  template <class T>
  T* copy_of(View<T> view, const MemorySpace& memory = cuda::device_memory()) {
    const auto bytes = static_cast<size_t>(view.bytes());
    std::unique_ptr<void, ReleaseTo> copy(memory.allocate(bytes), {&memory});
    CACHALOT_CHECK(copy != nullptr, "{} bytes", bytes);
    memory.copy(copy.get(), view.data, bytes);
    copies_.push_back(std::move(copy));
    return static_cast<T*>(copies_.back().get());
  }
  void move(DenseMatrix& matrix) {
    if (matrix.codes.present()) matrix.codes.data = copy_of(matrix.codes);
    if (matrix.scales.present()) matrix.scales.data = copy_of(matrix.scales);
    if (matrix.values.present()) matrix.values.data = copy_of(matrix.values);
  }
  void move(Fp4Matrix& matrix, const MemorySpace& memory) {
    matrix.codes.data = copy_of(matrix.codes, memory);
    matrix.scales.data = copy_of(matrix.scales, memory);
  }
  // The list itself stays on the host.
  void move_experts() {
    experts_.assign(args_.experts.begin(), args_.experts.end());
    for (size_t e = 0; e < experts_.size(); ++e) {
      const MemorySpace* memory = left_.has(e) ? left_.memory : &cuda::device_memory();
      if (memory == nullptr) continue;
      move(experts_[e].w1, *memory);
      move(experts_[e].w2, *memory);
      move(experts_[e].w3, *memory);
    }
    args_.experts = experts_;
    move(args_.shared.w1);
    move(args_.shared.w2);
    move(args_.shared.w3);
  }

  Args args_;
  LeftBehind left_;
  std::vector<ExpertMatrices> experts_;
  std::vector<std::unique_ptr<void, ReleaseTo>> copies_;
  std::vector<Written> written_;
};

class Queue {
 public:
  explicit Queue(cuda::Queue& inner) : inner_(inner), arena_(0) {}

  Arena& arena() { return arena_; }
  void label(std::string_view) {}

  template <class Args, class Run>
  void run(const Args& args, Run run) {
    const OnDevice<Args> mirror(args);
    if constexpr (std::is_same_v<Args, MoeExpertsArgs>)
      cuda::arrange_experts(inner_, mirror.args().experts, mirror.args().shared);
    run(inner_, mirror.args());
    inner_.wait();
    mirror.copy_back();
  }

 private:
  cuda::Queue& inner_;
  Arena arena_;
};

#define CACHALOT_MIRRORED(function, Args)                                           \
  inline void function(Queue& queue, const Args& args) {                            \
    queue.run(args, [](cuda::Queue& on, const Args& with) { function(on, with); }); \
  }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_MIRRORED)
#undef CACHALOT_MIRRORED

}  // namespace cachalot::mirrored
