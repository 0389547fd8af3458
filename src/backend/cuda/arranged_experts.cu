#include <algorithm>

#include "backend/cuda/arranged_experts.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/plan/experts_layout.h"

namespace cachalot::cuda {
namespace {

constexpr int kThreads = 256;

// Units in arranged order from those in the checkpoint's, a thread for two or four that are written
// together: so a warp writes whole lines, and reads 32 bytes and more of each of eight rows.
__global__ void arrange_fp4_codes(const uint32_t* from, uint4* to, RowOrder order, int64_t columns,
                                  int64_t count) {
  wait_for_inputs();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const ArrangedPlace place = fp4_word_at(order, columns, at * 4 + i);
    words[i] = arranged_word(from[place.row * (columns / 8) + place.unit]);
  }
  to[at] = make_uint4(words[0], words[1], words[2], words[3]);
}

// Four scales of a row and stage are together in both orders.
__global__ void arrange_fp4_scales(const uint32_t* from, uint32_t* to, RowOrder order,
                                   int64_t columns, int64_t count) {
  wait_for_inputs();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const ArrangedPlace place = fp4_scale_at(order, columns, at * 4);
  to[at] = from[place.row * (columns / kStageDepth) + place.unit / 4];
}

__global__ void arrange_fp8_codes(const uint64_t* from, ulonglong2* to, RowOrder order,
                                  int64_t columns, int64_t count) {
  wait_for_inputs();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  uint64_t units[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const ArrangedPlace place = fp8_unit_at(order, columns, at * 2 + i);
    units[i] = arranged_fp8(from[place.row * (columns / 8) + place.unit]);
  }
  to[at] = make_ulonglong2(units[0], units[1]);
}

// Four scales of 32 rows and a stage are together in both orders.
__global__ void arrange_fp8_scales(const float4* from, float4* to, RowOrder, int64_t columns,
                                   int64_t count) {
  wait_for_inputs();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const ArrangedPlace place = fp8_scale_at(columns, at * 4);
  to[at] = from[place.row * (columns / kStageDepth) + place.unit / 4];
}

class Arranger {
 public:
  // `bytes`: of the largest view.
  Arranger(Queue& queue, int64_t bytes)
      : queue_(queue), scratch_(queue), staging_(scratch_.allocate<uint8_t>(bytes)) {}

  void arrange(const Fp4Matrix& matrix, RowOrder order) {
    arrange(matrix.codes, arrange_fp4_codes, order, matrix.columns);
    arrange(matrix.scales, arrange_fp4_scales, order, matrix.columns);
  }
  void arrange(const DenseMatrix& matrix, RowOrder order) {
    arrange(matrix.codes, arrange_fp8_codes, order, matrix.columns);
    arrange(matrix.scales, arrange_fp8_scales, order, matrix.columns);
  }

 private:
  template <class T, class From, class To>
  void arrange(View<const T> view, void (*kernel)(const From*, To*, RowOrder, int64_t, int64_t),
               RowOrder order, int64_t columns) {
    const auto bytes = static_cast<size_t>(view.bytes());
    queue_.copy(staging_, view.data, bytes);
    // This is the one time that weights are written after they were placed.
    auto* to = reinterpret_cast<To*>(const_cast<T*>(view.data));
    const auto count = static_cast<int64_t>(bytes / sizeof(To));
    launch(queue_, "arrange_experts", kernel,
           {.blocks = dim3((count + kThreads - 1) / kThreads), .threads = kThreads},
           reinterpret_cast<const From*>(staging_), to, order, columns, count);
  }

  Queue& queue_;
  Scratch scratch_;
  uint8_t* staging_;
};

}  // namespace

void arrange_experts(Queue& queue, std::span<const ExpertMatrices> experts,
                     const SharedExpertMatrices& shared) {
  if (!experts_are_arranged(experts, shared)) return;
  // An FP8 matrix has twice the codes of an FP4 one of its shape.
  Arranger arranger(queue, std::max(shared.w1.codes.bytes(), shared.w2.codes.bytes()));
  const auto arrange_all = [&](const auto& matrices) {
    arranger.arrange(matrices.w1, RowOrder::gated);
    arranger.arrange(matrices.w2, RowOrder::own);
    arranger.arrange(matrices.w3, RowOrder::gated);
  };
  for (const ExpertMatrices& expert : experts)
    if (in_reach(expert.w1.codes.data)) arrange_all(expert);
  arrange_all(shared);
  queue.wait();
}

}  // namespace cachalot::cuda
