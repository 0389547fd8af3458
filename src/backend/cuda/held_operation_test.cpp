// Operations that a queue runs in one kernel give the bytes that each gives alone.
#include <functional>

#include "on_gpu.h"

namespace cachalot {
namespace {

constexpr int64_t kDim = 5120;

// Started in turn; what they write is looked at when all have run.
class Operations {
 public:
  // With all tensors on the device. Another operation's may be given to it before it is added.
  template <class Args>
  static Args on_device(const Args& host) {
    return kept().emplace_back(std::make_shared<mirrored::OnDevice<Args>>(host)),
           std::static_pointer_cast<mirrored::OnDevice<Args>>(kept().back())->args();
  }
  static void forget() { kept().clear(); }

  template <class Args>
  void add(void (*start)(cuda::Queue&, const Args&), const Args& args) {
    starts_.push_back([=](cuda::Queue& queue) { start(queue, args); });
    args.fields([&](const char*, const auto& view, Access access) {
      if (access == Access::in || view.absent()) return;
      written_.push_back({const_cast<void*>(static_cast<const void*>(view.data)),
                          static_cast<size_t>(view.bytes())});
    });
  }

  void expect_same_bytes_together() {
    const std::vector<std::byte> before = bytes();
    for (const auto& start : starts_) {
      start(gpu_queue());
      gpu_queue().wait();
    }
    const std::vector<std::byte> apart = bytes();
    // More than once: what blocks tell one another must be as it was before.
    for (int i = 0; i < 3; ++i) {
      put(before);
      for (const auto& start : starts_) start(gpu_queue());
      gpu_queue().wait();
      EXPECT_EQ(bytes(), apart);
    }
  }

 private:
  struct Written {
    void* data;
    size_t count;
  };

  static std::vector<std::shared_ptr<void>>& kept() {
    static std::vector<std::shared_ptr<void>> copies;
    return copies;
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out;
    for (const Written& of : written_) {
      out.resize(out.size() + of.count);
      cuda::device_memory().copy(&out[out.size() - of.count], of.data, of.count);
    }
    return out;
  }
  void put(const std::vector<std::byte>& from) const {
    size_t at = 0;
    for (const Written& of : written_) {
      cuda::device_memory().copy(of.data, &from[at], of.count);
      at += of.count;
    }
  }

  std::vector<std::function<void(cuda::Queue&)>> starts_;
  std::vector<Written> written_;
};

class HeldOperation : public testing::TestWithParam<int64_t> {
 protected:
  void TearDown() override { Operations::forget(); }

  int64_t tokens() const { return GetParam(); }
  int32_t rows() const { return static_cast<int32_t>(tokens()); }
  View<bf16> on_device(View<const bf16> host) {
    return Operations::on_device(DraftTapArgs{.taps = {const_cast<bf16*>(host.data), host.shape}})
        .taps;
  }
  LinearArgs linear_args(View<const bf16> x, int64_t out, bool norm) {
    LinearArgs args{.x = x,
                    .weight = random_.fp8_matrix(out, x.extent(1)),
                    .norm_eps = 1e-6f,
                    .y = random_.tensor<bf16>({tokens(), out})};
    if (norm) args.norm = random_.bf16s({out}, 0.1f, 1);
    return args;
  }
  LinearArgs linear_of(View<bf16> x, int64_t out, bool norm) {
    LinearArgs args = Operations::on_device(linear_args(random_.bf16s(x.shape), out, norm));
    args.x = x;
    return args;
  }
  RandomTensors random_{17};
  Operations operations_;
};

TEST_P(HeldOperation, TwoProductsOfTheSameRows) {
  const View<bf16> x = on_device(random_.bf16s({tokens(), kDim}));
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  operations_.add(cuda::linear, linear_of(x, 512, true));
  // Of another kind, and with no norm.
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  operations_.add(cuda::linear, linear_of(x, 128, true));
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  operations_.add(cuda::linear, linear_of(x, 512, false));
  operations_.expect_same_bytes_together();
}

TEST_P(HeldOperation, ProductsOfOtherRows) {
  const View<bf16> x = on_device(random_.bf16s({tokens(), kDim}));
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  const View<bf16> other = on_device(random_.bf16s({tokens(), kDim}));
  operations_.add(cuda::linear, linear_of(other, 512, true));
  operations_.expect_same_bytes_together();
}

TEST_P(HeldOperation, QueriesAndTheirRotation) {
  for (const bool same : {true, false}) {
    Operations operations;
    const View<bf16> x = on_device(random_.bf16s({tokens(), 1280}));
    LinearArgs queries = linear_of(x, 32768, false);
    operations.add(cuda::linear, queries);
    const SequencePart parts[] = {{.slot = 0, .first = 1048560, .count = rows() - rows() / 2},
                                  {.slot = 1, .first = 3, .count = rows() / 2}};
    std::vector<SequencePart> some(parts, parts + (tokens() > 1 ? 2 : 1));
    PrepareQueryArgs rotation{.rows = random_.step(some), .frequencies = random_.frequencies(32)};
    rotation.q = random_.bf16s({tokens(), 64, 512});
    rotation.kv = random_.bf16s({tokens(), 512});
    rotation.window_rows = random_.tensor<uint8_t>({tokens(), window_row_bytes(512)});
    rotation = Operations::on_device(rotation);
    if (same) rotation.q.data = queries.y.data;
    operations.add(cuda::prepare_query, rotation);
    operations.expect_same_bytes_together();
  }
}

TEST_P(HeldOperation, WindowRowsAndTheOutputsProduct) {
  const int64_t row_bytes = window_row_bytes(512);
  WriteWindowArgs window{.rows = random_.step({{.slot = 1, .first = 127, .count = rows()}})};
  window.window_rows = random_.window_rows({tokens(), row_bytes}, 512);
  window.ring = random_.window_rows({2, 136, row_bytes}, 512);
  operations_.add(cuda::write_window, Operations::on_device(window));
  operations_.add(cuda::grouped_linear, Operations::on_device(GroupedLinearArgs{
                                            .x = random_.bf16s({tokens(), 8, 4096}),
                                            .weight = random_.fp8_matrix(8192, 4096),
                                            .y = random_.tensor<bf16>({tokens(), 8, 1024})}));
  operations_.expect_same_bytes_together();
}

INSTANTIATE_TEST_SUITE_P(OfTokens, HeldOperation, testing::Values(1, 2, 5, 8, 9, 30));

}  // namespace
}  // namespace cachalot
