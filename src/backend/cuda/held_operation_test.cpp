// Operations that a queue runs in one kernel give the bytes that each gives alone.
#include <cmath>
#include <deque>
#include <functional>

#include "on_gpu.h"
#include "placed_experts.h"

namespace cachalot {
namespace {

constexpr int64_t kDim = 5120, kCopies = 4, kMixes = (2 + kCopies) * kCopies;

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

TEST_P(HeldOperation, CompressionBesideQueries) {
  for (const int64_t ratio : {1, 2, 4}) {
    const HyperExpandArgs expand = expand_args();
    operations_.add(cuda::hyper_expand, expand);
    const HyperCollapseArgs collapse = collapse_of(expand.stream);
    operations_.add(cuda::hyper_collapse, collapse);
    add(source(collapse.x, ratio));
  }
  operations_.expect_same_bytes_together();
}

// Memory that one of them is done with may be another's before the first has been started.
TEST_P(HeldOperation, CompressionWhoseMemoryTheNextOverwrites) {
  const View<bf16> x = on_device(random_.bf16s({tokens(), kDim}));
  Source of = source(x, 2);
  of.key_value.y.data = reinterpret_cast<bf16*>(of.values.y_f32.data);
  of.rotation.kv = of.key_value.y;
  add(of);
  of = source(x, 2);
  of.queries.y.data = of.rotation.q.data =
      reinterpret_cast<bf16*>(const_cast<uint8_t*>(of.entries.latents.rows.data));
  if (of.queries.y.bytes() <= of.entries.latents.rows.bytes()) add(of);
  of = source(x, 2);
  of.rotation.window_rows.data = reinterpret_cast<uint8_t*>(of.entries.latent.data);
  add(of);
  of = source(x, 2);
  of.key_value.y.data = of.weights.y.data = of.entries.latent.data;
  of.rotation.kv = of.key_value.y;
  add(of);
  operations_.expect_same_bytes_together();
}

TEST_P(HeldOperation, PartsOfACompression) {
  const View<bf16> x = on_device(random_.bf16s({tokens(), kDim}));
  const View<bf16> other = on_device(random_.bf16s({tokens(), kDim}));
  Source of = source(x, 2);
  // The weights alone, as where a layer only chooses; products of other rows; no keys; no queries.
  operations_.add(cuda::linear, of.weights);
  operations_.add(cuda::linear, of.latent);
  operations_.add(cuda::linear, of.key_value);
  operations_.add(cuda::linear, plain_of(other, 512, true));
  operations_.add(cuda::linear, of.values);
  operations_.add(cuda::linear, of.gates);
  operations_.add(cuda::compress_kv, of.entries);
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  operations_.add(cuda::linear, linear_of(x, 512, true));
  operations_.add(cuda::index_keys, of.keys);
  of = source(x, 4);
  operations_.add(cuda::linear, of.values);
  operations_.add(cuda::linear, of.gates);
  operations_.add(cuda::compress_kv, of.entries);
  operations_.add(cuda::index_keys, of.keys);
  operations_.add(cuda::route, route_of(x, 384));
  // More than fit, and one that is cut in another way.
  for (int i = 0; i < 5; ++i) operations_.add(cuda::linear, plain_of(x, 128, i % 2 == 0));
  operations_.add(cuda::linear, plain_of(x, 1024, true));
  operations_.expect_same_bytes_together();
}

class HeldProducts : public HeldOperation {};

TEST_P(HeldProducts, OfTheSameRows) {
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

// Whose rows are left quantized for what follows, unless that is of something else.
TEST_P(HeldProducts, AndAProductOfTheirRows) {
  const View<bf16> x = on_device(random_.bf16s({tokens(), kDim}));
  const auto add_two = [&] {
    const LinearArgs first = linear_of(x, 1280, true);
    operations_.add(cuda::linear, first);
    const LinearArgs second = linear_of(x, 512, true);
    operations_.add(cuda::linear, second);
    return std::pair(first.y, second.y);
  };
  View<bf16> latent = add_two().first;
  operations_.add(cuda::linear, linear_of(latent, 1024, false));
  operations_.add(cuda::linear, linear_of(latent, 256, false));
  operations_.add(cuda::linear, linear_of(add_two().second, 1024, false));
  // Another product has overwritten them.
  latent = add_two().first;
  LinearArgs between = plain_of(on_device(random_.bf16s({tokens(), kDim})), 128, false);
  between.y.data = latent.data;
  operations_.add(cuda::linear, between);
  operations_.add(cuda::linear, linear_of(latent, 1024, false));
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

// The keys that one token attends to are packed beside its queries.
TEST_P(HeldOperation, QueriesAndAttention) {
  const View<bf16> x = on_device(random_.bf16s({tokens(), 1280}));
  const LinearArgs queries = linear_of(x, 32768, false);
  struct Case {
    int32_t first;
    int64_t window = 128, top_k = 512, rows_per_page = 32;
    bool window_starts = false, other_rows = false, written = false;
  };
  for (const Case& of :
       {Case{.first = 1500}, Case{.first = 0}, Case{.first = 40},
        Case{.first = 127, .rows_per_page = 24}, Case{.first = 1203, .top_k = 0},
        Case{.first = 5, .top_k = 0}, Case{.first = 700, .window = 100, .top_k = 300},
        Case{.first = 900, .window_starts = true}, Case{.first = 900, .window = 130},
        Case{.first = 1000, .other_rows = true}, Case{.first = 1100, .written = true}}) {
    SCOPED_TRACE(of.first);
    Operations operations;
    operations.add(cuda::linear, queries);
    SparseAttentionArgs attention = attention_args(of.first, of.top_k, of.rows_per_page);
    attention.window = of.window;
    if (of.window_starts) {
      attention.window_starts = random_.integers({tokens()}, of.first - 21, of.first - 21);
    }
    attention = Operations::on_device(attention);
    attention.q.data = queries.y.data;
    PrepareQueryArgs turn{.rows = attention.rows, .frequencies = random_.frequencies(32)};
    turn.q = random_.bf16s({tokens(), 64, 512});
    turn.kv = random_.bf16s({tokens(), 512});
    turn.window_rows = random_.tensor<uint8_t>({tokens(), window_row_bytes(512)});
    turn.rows = random_.step({{.slot = 1, .first = of.first, .count = rows()}});
    turn = Operations::on_device(turn);
    turn.rows = attention.rows;
    turn.q.data = queries.y.data;
    if (!of.other_rows) attention.window_rows = turn.window_rows;
    operations.add(cuda::prepare_query, turn);
    operations.add(cuda::sparse_attention, attention);
    // Behind an attention what it reads need not be waited for, unless it has been written since.
    if (of.written) operations.add(cuda::write_window, window_before(of.first, attention.ring));
    operations.add(cuda::linear, queries);
    operations.add(cuda::prepare_query, turn);
    operations.add(cuda::sparse_attention, attention);
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

// As in a layer: the coefficients of one collapse are computed beside two products, those of the
// other beside the router, and both are what expands the stream.
TEST_P(HeldOperation, TheStreamBetweenSublayers) {
  const HyperExpandArgs before = expand_args();
  operations_.add(cuda::hyper_expand, before);
  const HyperCollapseArgs attention = collapse_of(before.stream);
  operations_.add(cuda::hyper_collapse, attention);
  operations_.add(cuda::linear, linear_of(attention.x, 1280, true));
  operations_.add(cuda::linear, linear_of(attention.x, 512, true));
  HyperExpandArgs expand = expand_args();
  expand.post = attention.post;
  expand.comb = attention.comb;
  expand.stream = before.stream;
  operations_.add(cuda::hyper_expand, expand);
  HyperCollapseArgs experts = collapse_of(before.stream);
  experts.pre_in = attention.pre_out;
  operations_.add(cuda::hyper_collapse, experts);
  operations_.add(cuda::route, route_of(experts.x, 384));
  expand.post = experts.post;
  expand.comb = experts.comb;
  operations_.add(cuda::hyper_expand, expand);
  operations_.add(cuda::draft_tap, Operations::on_device(DraftTapArgs{
                                       .stream = random_.bf16s({tokens(), kCopies, kDim}),
                                       .taps = random_.tensor<bf16>({tokens(), 1, kDim})}));
  operations_.expect_same_bytes_together();
}

// Experts that need not wait for the router's end, one behind the other; some behind another router
// than theirs, or behind one that nobody listened to.
TEST_P(HeldOperation, ExpertsBehindTheirRouter) {
  HyperExpandArgs expand = expand_args();
  const auto add_route = [&] {
    operations_.add(cuda::hyper_expand, expand);
    HyperCollapseArgs collapse = collapse_of(expand.stream);
    operations_.add(cuda::hyper_collapse, collapse);
    const RouteArgs route = route_of(collapse.x, 128);
    operations_.add(cuda::route, route);
    expand.post = collapse.post;
    expand.comb = collapse.comb;
    return route;
  };
  const auto add_experts = [&](const MoeExpertsArgs& args) {
    operations_.add(cuda::moe_experts, args);
    expand.y = args.y;
  };
  const RouteArgs first = add_route();
  for (const int64_t width : {2304, 512}) {
    const MoeExpertsArgs experts = experts_of(first, 128, width);
    add_experts(experts);
    for (int i = 0; i < 2; ++i) {
      const RouteArgs route = add_route();
      MoeExpertsArgs next = experts;
      next.x = route.x;
      next.ids = route.ids;
      next.weights = route.weights;
      next.y = on_device(random_.bf16s({tokens(), kDim}));
      add_experts(next);
    }
    add_route();
    add_experts(experts);
  }
  operations_.expect_same_bytes_together();
}

TEST_P(HeldOperation, ACollapseThatOverwritesWhatIsExpanded) {
  const HyperExpandArgs expand = expand_args();
  operations_.add(cuda::hyper_expand, expand);
  HyperCollapseArgs collapse = collapse_of(expand.stream);
  collapse.x.data = const_cast<bf16*>(expand.y.data);
  collapse.post.data = const_cast<float*>(expand.post.data);
  operations_.add(cuda::hyper_collapse, collapse);
  operations_.add(cuda::route, route_of(collapse.x, 128));
  operations_.expect_same_bytes_together();
}

TEST_P(HeldOperation, ACollapseWhoseInputsTheNextOverwrites) {
  const auto add_expand_and_collapse = [&] {
    const HyperExpandArgs expand = expand_args();
    operations_.add(cuda::hyper_expand, expand);
    const HyperCollapseArgs collapse = collapse_of(expand.stream);
    operations_.add(cuda::hyper_collapse, collapse);
    return std::pair{expand, collapse};
  };
  {
    const auto [expand, collapse] = add_expand_and_collapse();
    RouteArgs route = route_of(collapse.x, 384);
    route.ids.data = reinterpret_cast<int32_t*>(const_cast<bf16*>(expand.y.data));
    operations_.add(cuda::route, route);
  }
  {
    const auto [expand, collapse] = add_expand_and_collapse();
    operations_.add(cuda::linear, linear_of(collapse.x, 1280, true));
    LinearArgs second = linear_of(collapse.x, 512, true);
    second.y.data = const_cast<bf16*>(expand.y.data);
    operations_.add(cuda::linear, second);
  }
  operations_.expect_same_bytes_together();
}

// The coefficients are made of the stream as it was before.
TEST_P(HeldOperation, ACollapseWhoseStreamAHeldProductOverwrites) {
  const auto add_collapse_and_product = [&] {
    const HyperExpandArgs expand = expand_args();
    operations_.add(cuda::hyper_expand, expand);
    // Which is not held back with the collapse.
    operations_.add(cuda::draft_tap, Operations::on_device(DraftTapArgs{
                                         .stream = random_.bf16s({tokens(), kCopies, kDim}),
                                         .taps = random_.tensor<bf16>({tokens(), 1, kDim})}));
    const HyperCollapseArgs collapse = collapse_of(expand.stream);
    operations_.add(cuda::hyper_collapse, collapse);
    LinearArgs product = plain_of(on_device(random_.bf16s({tokens(), kDim})), 128, false);
    product.y.data = expand.stream.data;
    operations_.add(cuda::linear, product);
    return View<bf16>(collapse.x);
  };
  operations_.add(cuda::route, route_of(add_collapse_and_product(), 384));
  const View<bf16> x = add_collapse_and_product();
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  operations_.add(cuda::linear, linear_of(x, 512, true));
  operations_.expect_same_bytes_together();
}

TEST_P(HeldOperation, ACollapseBeforeOtherProducts) {
  const auto add_collapsed = [&] {
    const HyperExpandArgs expand = expand_args();
    operations_.add(cuda::hyper_expand, expand);
    const HyperCollapseArgs collapse = collapse_of(expand.stream);
    operations_.add(cuda::hyper_collapse, collapse);
    return View<bf16>(collapse.x);
  };
  // One, of another x, of another width, and none.
  operations_.add(cuda::linear, linear_of(add_collapsed(), 1280, true));
  View<bf16> x = add_collapsed();
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  operations_.add(cuda::linear, linear_of(on_device(random_.bf16s({tokens(), kDim})), 512, true));
  x = add_collapsed();
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  operations_.add(cuda::linear, linear_of(x, 128, true));
  // A router of another kind.
  operations_.add(cuda::route, route_of(add_collapsed(), 96));
  add_collapsed();
  operations_.expect_same_bytes_together();
}

INSTANTIATE_TEST_SUITE_P(OfTokens, HeldOperation, testing::Values(1, 2, 5, 8, 9, 30, 64));
INSTANTIATE_TEST_SUITE_P(OfTokens, HeldProducts, testing::Values(1, 2, 5, 8, 9, 30, 64, 200));

}  // namespace
}  // namespace cachalot
