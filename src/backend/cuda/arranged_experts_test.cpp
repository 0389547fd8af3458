// The experts' matrices in device memory, arranged, against the checkpoint's order.
#include "backend/cuda/arranged_experts.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cuda/plan/experts_layout.h"
#include "on_gpu.h"

namespace cachalot {
namespace {

// Matrices on the host, their copies on the device, and the device's copies on the host again.
class Matrices {
 public:
  Matrices(int64_t dim, int64_t width) {
    for (int64_t e = 0; e < 2; ++e)
      experts_.push_back({.w1 = random_.fp4_matrix(width, dim),
                          .w2 = random_.fp4_matrix(dim, width),
                          .w3 = random_.fp4_matrix(width, dim)});
    shared_ = {.w1 = random_.fp8_matrix(width, dim),
               .w2 = random_.fp8_matrix(dim, width),
               .w3 = random_.fp8_matrix(width, dim)};
    const auto dense = [this](const DenseMatrix& matrix) {
      DenseMatrix copy = matrix;
      copy.codes.data = moved(matrix.codes);
      copy.scales.data = moved(matrix.scales);
      return copy;
    };
    const auto fp4 = [this](const Fp4Matrix& matrix) {
      Fp4Matrix copy = matrix;
      copy.codes.data = moved(matrix.codes);
      copy.scales.data = moved(matrix.scales);
      return copy;
    };
    for (const ExpertMatrices& expert : experts_)
      moved_.push_back({fp4(expert.w1), fp4(expert.w2), fp4(expert.w3)});
    moved_shared_ = {dense(shared_.w1), dense(shared_.w2), dense(shared_.w3)};
    cuda::arrange_experts(gpu_queue(), moved_, moved_shared_);
  }

  // check(before, after, order) for every matrix, FP4 ones and those of the shared expert.
  template <class Check>
  void for_each(Check check) {
    using cuda::RowOrder;
    const auto of = [&](const auto& before, const auto& after) {
      check(before.w1, after.w1, RowOrder::gated);
      check(before.w2, after.w2, RowOrder::own);
      check(before.w3, after.w3, RowOrder::gated);
    };
    for (size_t e = 0; e < experts_.size(); ++e) of(experts_[e], moved_[e]);
    of(shared_, moved_shared_);
  }

  template <class T>
  static std::vector<T> back(const void* device, int64_t bytes) {
    std::vector<T> host(static_cast<size_t>(bytes) / sizeof(T));
    cuda::device_memory().copy(host.data(), device, static_cast<size_t>(bytes));
    return host;
  }

 private:
  template <class T>
  T* moved(View<T> view) {
    const MemorySpace& memory = cuda::device_memory();
    const auto bytes = static_cast<size_t>(view.bytes());
    copies_.emplace_back(memory.allocate(bytes), ReleaseTo{&memory});
    memory.copy(copies_.back().get(), view.data, bytes);
    return static_cast<T*>(copies_.back().get());
  }

  RandomTensors random_{1};
  std::vector<ExpertMatrices> experts_, moved_;
  SharedExpertMatrices shared_, moved_shared_;
  std::vector<std::unique_ptr<void, ReleaseTo>> copies_;
};

struct ArrangedAsPlanned {
  void operator()(const Fp4Matrix& before, const Fp4Matrix& after, cuda::RowOrder order) const {
    const auto* from = reinterpret_cast<const uint32_t*>(before.codes.data);
    const auto codes = Matrices::back<uint32_t>(after.codes.data, after.codes.bytes());
    int64_t differing = 0;
    for (int64_t i = 0; i < std::ssize(codes); ++i) {
      const auto place = cuda::fp4_word_at(order, before.columns, i);
      differing +=
          codes[i] != cuda::arranged_word(from[place.row * (before.columns / 8) + place.unit]);
    }
    const auto scales = Matrices::back<uint8_t>(after.scales.data, after.scales.bytes());
    for (int64_t i = 0; i < std::ssize(scales); ++i) {
      const auto place = cuda::fp4_scale_at(order, before.columns, i);
      differing += scales[i] != before.scales.row(place.row)[place.unit];
    }
    EXPECT_EQ(differing, 0);
  }
  void operator()(const DenseMatrix& before, const DenseMatrix& after, cuda::RowOrder order) const {
    const auto* from = reinterpret_cast<const uint64_t*>(before.codes.data);
    const auto codes = Matrices::back<uint64_t>(after.codes.data, after.codes.bytes());
    int64_t differing = 0;
    for (int64_t i = 0; i < std::ssize(codes); ++i) {
      const auto place = cuda::fp8_unit_at(order, before.columns, i);
      differing +=
          codes[i] != cuda::arranged_fp8(from[place.row * (before.columns / 8) + place.unit]);
    }
    const auto scales = Matrices::back<float>(after.scales.data, after.scales.bytes());
    for (int64_t i = 0; i < std::ssize(scales); ++i) {
      const auto place = cuda::fp8_scale_at(before.columns, i);
      differing += scales[i] != before.scales.row(place.row)[place.unit];
    }
    EXPECT_EQ(differing, 0);
  }
};

TEST(ArrangedExperts, LieAsPlanned) { Matrices(512, 384).for_each(ArrangedAsPlanned()); }

TEST(ArrangedExperts, OfOtherShapesStayAsTheyAre) {
  Matrices(384, 128).for_each([](const auto& before, const auto& after, cuda::RowOrder) {
    const auto codes = Matrices::back<uint8_t>(after.codes.data, after.codes.bytes());
    EXPECT_EQ(std::memcmp(codes.data(), before.codes.data, codes.size()), 0);
  });
}

}  // namespace
}  // namespace cachalot
