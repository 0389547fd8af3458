// Operations that a queue may run in one kernel, for tests that they give the bytes that each gives
// alone.
#pragma once

#include <cmath>
#include <deque>
#include <functional>

#include "on_gpu.h"
#include "placed_experts.h"

namespace cachalot {

inline constexpr int64_t kDim = 5120, kCopies = 4, kMixes = (2 + kCopies) * kCopies;

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
    gpu_queue().begin_capture();
    for (const auto& start : starts_) start(gpu_queue());
    const auto graph = gpu_queue().end_capture();
    for (int i = 0; i < 3; ++i) {
      put(before);
      gpu_queue().launch(*graph);
      gpu_queue().wait();
      EXPECT_EQ(bytes(), apart);
    }
  }

  // Of a queue that has had each by itself when it captures all of them: memory that only they
  // together need cannot be allocated then.
  void expect_same_bytes_in_a_first_graph() {
    cuda::Queue queue{Arena::planning()};
    const std::vector<std::byte> before = bytes();
    for (const auto& start : starts_) {
      start(queue);
      queue.wait();
    }
    const std::vector<std::byte> apart = bytes();
    put(before);
    queue.begin_capture();
    for (const auto& start : starts_) start(queue);
    const auto graph = queue.end_capture();
    queue.launch(*graph);
    queue.wait();
    EXPECT_EQ(bytes(), apart);
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
  HyperExpandArgs expand_args() {
    return Operations::on_device(
        HyperExpandArgs{.y = random_.bf16s({tokens(), kDim}),
                        .post = random_.floats({tokens(), kCopies}, 0.3f, 1),
                        .comb = random_.floats({tokens(), kCopies, kCopies}, 0.1f, 0.25f),
                        .stream = random_.bf16s({tokens(), kCopies, kDim})});
  }
  HyperCollapseArgs collapse_of(View<const bf16> stream) {
    HyperCollapseArgs args = Operations::on_device(
        HyperCollapseArgs{.stream = random_.bf16s(stream.shape),
                          .pre_in = random_.floats({tokens(), kCopies}, 0.2f, 0.5f),
                          .fn = random_.floats({kMixes, kCopies * kDim}, 0.01f),
                          .base = random_.floats({kMixes}),
                          .scale = random_.floats({3}, 0.1f, 1),
                          .norm = random_.bf16s({kDim}, 0.1f, 1),
                          .norm_eps = 1e-20f,
                          .hc_eps = 1e-6f,
                          .sinkhorn_iterations = 20,
                          .x = random_.tensor<bf16>({tokens(), kDim}),
                          .pre_out = random_.tensor<float>({tokens(), kCopies}),
                          .post = random_.tensor<float>({tokens(), kCopies}),
                          .comb = random_.tensor<float>({tokens(), kCopies, kCopies})});
    args.stream = stream;
    return args;
  }
  RouteArgs route_of(View<const bf16> x, int64_t experts) {
    RouteArgs args =
        Operations::on_device(RouteArgs{.x = random_.bf16s(x.shape),
                                        .gate = random_.bf16s({experts, kDim}, 0.02f),
                                        .bias = random_.floats({experts}, 0.1f),
                                        .image_index = random_.integers({tokens()}, -1, -1),
                                        .route_scale = 1.5f,
                                        .ids = random_.tensor<int32_t>({tokens(), 6}),
                                        .weights = random_.tensor<float>({tokens(), 6})});
    args.x = x;
    return args;
  }

  SparseAttentionArgs attention_args(int32_t first, int64_t top_k, int64_t rows_per_page) {
    constexpr int64_t kSlots = 2, kPages = 30;
    const int64_t row_bytes = window_row_bytes(512);
    SparseAttentionArgs args{.rows = random_.step({{.slot = 1, .first = first, .count = rows()}})};
    args.q = random_.bf16s({tokens(), 64, 512});
    args.window_rows = random_.window_rows({tokens(), row_bytes}, 512);
    args.ring = random_.window_rows({kSlots, 133, row_bytes}, 512);
    if (top_k > 0) {
      const View<int32_t> chosen = random_.tensor<int32_t>({tokens(), top_k});
      for (int64_t t = 0; t < tokens(); ++t) {
        const int64_t visible = std::min((first + t + 1) / 2, kPages * rows_per_page - 1);
        for (int64_t i = 0; i < top_k; ++i) {
          chosen.row(t)[i] =
              i < visible ? static_cast<int32_t>(visible > top_k ? i * visible / top_k : i) : -1;
        }
      }
      args.chosen = chosen;
      const PagedRows<uint8_t> latents = random_.latents(kSlots, kPages, rows_per_page, 512);
      args.latents = {latents.rows, latents.table};
    }
    args.sink = random_.floats({64});
    args.frequencies = random_.frequencies(32);
    args.scale = 1 / std::sqrt(512.0f);
    args.o = random_.tensor<bf16>({tokens(), 64, 512});
    return args;
  }

  // Of the positions before `first`.
  WriteWindowArgs window_before(int32_t first, View<const uint8_t> ring) {
    WriteWindowArgs window{
        .rows = random_.step({{.slot = 1, .first = first - rows(), .count = rows()}})};
    window.window_rows = random_.window_rows({tokens(), window_row_bytes(512)}, 512);
    window.ring = random_.window_rows(ring.shape, 512);
    window = Operations::on_device(window);
    window.ring.data = const_cast<uint8_t*>(ring.data);
    return window;
  }

  // What a layer with compressed entries does before it chooses among them.
  struct Source {
    LinearArgs weights, values, gates;
    CompressKvArgs entries;
    IndexKeysArgs keys;
    LinearArgs latent, key_value, queries;
    PrepareQueryArgs rotation;
    LinearArgs index_queries;
  };
  LinearArgs plain_of(View<bf16> x, int64_t out, bool f32) {
    LinearArgs args{.x = random_.bf16s(x.shape), .weight = random_.bf16_matrix(out, kDim)};
    if (f32) {
      args.y_f32 = random_.tensor<float>({tokens(), out});
    } else {
      args.y = random_.tensor<bf16>({tokens(), out});
    }
    args = Operations::on_device(args);
    args.x = x;
    return args;
  }
  Source source(View<bf16> x, int64_t ratio) {
    constexpr int64_t kHeadDim = 512, kPages = 4, kPageTokens = 256;
    // Weights take long to make up.
    if (source_.values.x.absent()) {
      source_ = {.weights = plain_of(x, 32, false),
                 .values = plain_of(x, kHeadDim, true),
                 .gates = plain_of(x, kHeadDim, true),
                 .latent = linear_of(x, 1280, true),
                 .key_value = linear_of(x, kHeadDim, true)};
      source_.queries = linear_of(source_.latent.y, 16384, false);
      source_.index_queries = linear_of(source_.latent.y, 4096, false);
    }
    Source of = source_;
    for (LinearArgs* args : {&of.weights, &of.values, &of.gates, &of.latent, &of.key_value}) {
      args->x = x;
    }
    const SequencePart parts[] = {{.slot = 2, .first = 513, .count = rows() - rows() / 2},
                                  {.slot = 1, .first = 3, .count = rows() / 2}};
    const StepRows step =
        random_.step(std::vector<SequencePart>(parts, parts + (tokens() > 1 ? 2 : 1)));
    CompressKvArgs entries{.rows = step,
                           .ratio = ratio,
                           .kv = random_.floats({tokens(), kHeadDim}),
                           .norm = random_.bf16s({kHeadDim}, 0.1f, 1),
                           .norm_eps = 1e-20f,
                           .frequencies = random_.frequencies(32),
                           .latent = random_.tensor<bf16>({tokens(), kHeadDim}),
                           .latents = random_.latents(3, kPages, kPageTokens / ratio, kHeadDim)};
    if (ratio > 1) {
      entries.gate = random_.floats({tokens(), kHeadDim});
      entries.open_rows = random_.floats({3, ratio - 1 + 8, 2, kHeadDim});
    }
    of.entries = Operations::on_device(entries);
    of.entries.kv = of.values.y_f32;
    if (ratio > 1) of.entries.gate = of.gates.y_f32;
    of.keys = Operations::on_device(
        IndexKeysArgs{.rows = step,
                      .ratio = ratio,
                      .latent = random_.bf16s({tokens(), kHeadDim}),
                      .weight = random_.bf16_matrix(128, kHeadDim).values,
                      .norm = random_.bf16s({128}, 0.1f, 1),
                      .norm_eps = 1e-20f,
                      .frequencies = random_.frequencies(32),
                      .keys = random_.index_keys(3, kPages, kPageTokens / ratio, 128)});
    of.keys.rows = of.entries.rows;
    of.keys.latent = of.entries.latent;
    PrepareQueryArgs rotation{.rows = step, .frequencies = random_.frequencies(32)};
    rotation.q = random_.bf16s({tokens(), 32, kHeadDim});
    rotation.kv = random_.bf16s({tokens(), kHeadDim});
    rotation.window_rows = random_.tensor<uint8_t>({tokens(), window_row_bytes(kHeadDim)});
    of.rotation = Operations::on_device(rotation);
    of.rotation.q.data = of.queries.y.data;
    of.rotation.kv = of.key_value.y;
    return of;
  }
  void add(const Source& of) {
    operations_.add(cuda::linear, of.weights);
    operations_.add(cuda::linear, of.values);
    if (of.entries.ratio > 1) operations_.add(cuda::linear, of.gates);
    operations_.add(cuda::compress_kv, of.entries);
    operations_.add(cuda::index_keys, of.keys);
    operations_.add(cuda::linear, of.latent);
    operations_.add(cuda::linear, of.key_value);
    operations_.add(cuda::linear, of.queries);
    operations_.add(cuda::prepare_query, of.rotation);
    operations_.add(cuda::linear, of.index_queries);
  }

  // `of_route` are all two experts by turns.
  MoeExpertsArgs experts_of(const RouteArgs& route, int64_t of_route, int64_t width) {
    MoeExpertsArgs args =
        Operations::on_device(random_experts(random_, kDim, width, tokens(), 2, 2));
    cuda::arrange_experts(gpu_queue(), args.experts, args.shared);
    auto& list = lists_.emplace_back();
    for (int64_t i = 0; i < of_route; ++i) list.push_back(args.experts[static_cast<size_t>(i % 2)]);
    args.experts = list;
    args.x = route.x;
    args.ids = route.ids;
    args.weights = route.weights;
    return args;
  }

  RandomTensors random_{17};
  Operations operations_;
  Source source_;
  std::deque<std::vector<ExpertMatrices>> lists_;
};

}  // namespace cachalot
