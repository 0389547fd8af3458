// Operations that a queue runs in one kernel give the bytes that each gives alone.
#include "held_operations.h"

namespace cachalot {
namespace {

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
class HeldStream : public HeldOperation {};

TEST_P(HeldStream, BetweenSublayers) {
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
// Coefficients have a kernel beside the router up to 256 tokens, which are several rounds of it.
INSTANTIATE_TEST_SUITE_P(OfTokens, HeldStream,
                         testing::Values(1, 2, 5, 8, 9, 17, 30, 64, 65, 129, 200, 257));

}  // namespace
}  // namespace cachalot
