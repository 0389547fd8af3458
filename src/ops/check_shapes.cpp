// check_shapes of every operation. Only shapes are looked at: a planning run has no data.
#include <fmt/format.h>

#include "ops/queue.h"

namespace cachalot {
namespace {

// Compares fields with what the operation's other fields make of them.
class Expectations {
 public:
  explicit Expectations(const char* operation) : operation_(operation) {}

  template <class T>
  void shape(const char* field, const View<T>& view, Shape expected) const {
    CACHALOT_CHECK(view.shape == expected, "{}: {} is {}, expected {}", operation_, field,
                   view.absent() ? "absent" : view.shape.text(), expected.text());
  }
  template <class T>
  void optional_shape(const char* field, const View<T>& view, Shape expected) const {
    if (view.present()) shape(field, view, expected);
  }
  template <class T>
  void rank(const char* field, const View<T>& view, int expected) const {
    CACHALOT_CHECK(view.shape.rank() == expected, "{}: {} is {}, expected {} dimensions",
                   operation_, field, view.absent() ? "absent" : view.shape.text(), expected);
  }
  template <class T>
  void absent(const char* field, const View<T>& view) const {
    CACHALOT_CHECK(view.absent(), "{}: {} is {}, expected absent", operation_, field,
                   view.shape.text());
  }
  void divisible(const char* extent, int64_t found, int64_t by) const {
    CACHALOT_CHECK(found % by == 0, "{}: {} is {}, expected a multiple of {}", operation_, extent,
                   found, by);
  }
  void range(const char* value, int64_t found, int64_t lowest, int64_t highest) const {
    CACHALOT_CHECK(found >= lowest && found <= highest, "{}: {} is {}, expected {} to {}",
                   operation_, value, found, lowest, highest);
  }
  void at_least(const char* value, int64_t found, int64_t lowest) const {
    CACHALOT_CHECK(found >= lowest, "{}: {} is {}, expected at least {}", operation_, value, found,
                   lowest);
  }

  void rows(const StepRows& rows) const {
    rank("positions", rows.positions, 1);
    shape("slots", rows.slots, {rows.tokens()});
    shape("first_rows", rows.first_rows, {rows.tokens()});
  }
  template <class T>
  void paged(const char* field, const PagedRows<T>& paged, int64_t row_elements) const {
    rank(field, paged.rows, 3);
    shape(field, paged.rows, {paged.rows.extent(0), paged.rows.extent(1), row_elements});
    at_least("rows per page", paged.rows.extent(1), 1);
    rank("page_table", paged.table, 2);
  }
  void frequencies(View<const float> frequencies, int64_t width) const {
    rank("frequencies", frequencies, 1);
    range("rotated channels", 2 * frequencies.extent(0), 0, width);
  }
  void matrix(const char* field, const DenseMatrix& matrix, int64_t rows, int64_t columns) const {
    const Shape expected{rows, columns};
    CACHALOT_CHECK((Shape{matrix.rows, matrix.columns} == expected), "{}: {} is {}, expected {}",
                   operation_, field, Shape({matrix.rows, matrix.columns}).text(), expected.text());
    CACHALOT_CHECK(matrix.codes.present() != matrix.values.present(),
                   "{}: {} has {}, expected either FP8 codes or BF16 values", operation_, field,
                   matrix.codes.present() ? "both" : "neither");
    optional_shape(field, matrix.values, expected);
    if (!matrix.quantized()) return;
    shape(field, matrix.codes, expected);
    shape(field, matrix.scales, {blocks_of(rows), blocks_of(columns)});
  }
  void matrix(const char* field, const Fp4Matrix& matrix, int64_t rows, int64_t columns) const {
    const Shape expected{rows, columns};
    CACHALOT_CHECK((Shape{matrix.rows, matrix.columns} == expected), "{}: {} is {}, expected {}",
                   operation_, field, Shape({matrix.rows, matrix.columns}).text(), expected.text());
    shape(field, matrix.codes, {rows, columns / 2});
    shape(field, matrix.scales, {rows, columns / kScaleBlock});
  }

 private:
  const char* operation_;
};

}  // namespace

void check_shapes(const EmbedArgs& args) {
  const Expectations expect("embed");
  expect.rank("stream", args.stream, 3);
  const int64_t tokens = args.stream.extent(0), dim = args.stream.extent(2);
  expect.shape("ids", args.ids, {tokens});
  expect.shape("image_index", args.image_index, {tokens});
  expect.optional_shape("image_rows", args.image_rows, {args.image_rows.extent(0), dim});
  expect.shape("table", args.table, {args.table.extent(0), dim});
  expect.shape("pre", args.pre, {tokens, args.stream.extent(1)});
}

void check_shapes(const HyperCollapseArgs& args) {
  const Expectations expect("hyper_collapse");
  expect.rank("stream", args.stream, 3);
  const int64_t tokens = args.stream.extent(0), m = args.stream.extent(1);
  const int64_t dim = args.stream.extent(2), mixes = (2 + m) * m;
  expect.shape("pre_in", args.pre_in, {tokens, m});
  expect.optional_shape("norm", args.norm, {dim});
  expect.shape("x", args.x, {tokens, dim});
  if (args.fn.absent()) {
    expect.absent("pre_out", args.pre_out);
    expect.absent("post", args.post);
    expect.absent("comb", args.comb);
    return;
  }
  expect.shape("fn", args.fn, {mixes, m * dim});
  expect.shape("base", args.base, {mixes});
  expect.shape("scale", args.scale, {3});
  expect.at_least("sinkhorn_iterations", args.sinkhorn_iterations, 1);
  expect.shape("pre_out", args.pre_out, {tokens, m});
  expect.shape("post", args.post, {tokens, m});
  expect.shape("comb", args.comb, {tokens, m, m});
}

void check_shapes(const HyperExpandArgs& args) {
  const Expectations expect("hyper_expand");
  expect.rank("stream", args.stream, 3);
  const int64_t tokens = args.stream.extent(0), m = args.stream.extent(1);
  expect.shape("y", args.y, {tokens, args.stream.extent(2)});
  expect.shape("post", args.post, {tokens, m});
  expect.shape("comb", args.comb, {tokens, m, m});
}

void check_shapes(const DraftTapArgs& args) {
  const Expectations expect("draft_tap");
  expect.rank("stream", args.stream, 3);
  expect.shape("taps", args.taps,
               {args.stream.extent(0), args.taps.extent(1), args.stream.extent(2)});
  expect.range("target", args.target, 0, args.taps.extent(1) - 1);
}

namespace {

// Both directions between a step's stream and the ring.
template <class Args>
void check_stream_ring(const Expectations& expect, const Args& args) {
  expect.rows(args.rows);
  expect.rank("stream", args.stream, 3);
  const int64_t tokens = args.rows.tokens(), copies = args.stream.extent(1);
  const int64_t dim = args.stream.extent(2);
  expect.shape("stream", args.stream, {tokens, copies, dim});
  expect.shape("mix", args.mix, {tokens, copies});
  expect.rank("kept_copies", args.kept_copies, 4);
  const int64_t slots = args.kept_copies.extent(0), ring_rows = args.kept_copies.extent(1);
  expect.at_least("ring rows", ring_rows, 1);
  expect.shape("kept_copies", args.kept_copies, {slots, ring_rows, copies, dim});
  expect.shape("kept_mixes", args.kept_mixes, {slots, ring_rows, copies});
}

}  // namespace

void check_shapes(const KeepStreamArgs& args) {
  check_stream_ring(Expectations("keep_stream"), args);
}

void check_shapes(const ResumeStreamArgs& args) {
  check_stream_ring(Expectations("resume_stream"), args);
}

void check_shapes(const LinearArgs& args) {
  const Expectations expect("linear");
  expect.rank("x", args.x, 2);
  const int64_t tokens = args.x.extent(0), out = args.weight.rows;
  expect.matrix("weight", args.weight, out, args.x.extent(1));
  if (args.weight.quantized()) expect.divisible("x's width", args.x.extent(1), kScaleBlock);
  expect.optional_shape("bias", args.bias, {out});
  expect.optional_shape("norm", args.norm, {out});
  if (args.y_f32.present()) {
    expect.absent("y (y_f32 is present)", args.y);
    expect.absent("norm (y_f32 is present)", args.norm);
    expect.absent("bias (y_f32 is present)", args.bias);
    expect.shape("y_f32", args.y_f32, {tokens, out});
  } else {
    expect.shape("y", args.y, {tokens, out});
  }
}

void check_shapes(const GroupedLinearArgs& args) {
  const Expectations expect("grouped_linear");
  expect.rank("x", args.x, 3);
  expect.rank("y", args.y, 3);
  const int64_t tokens = args.x.extent(0), groups = args.x.extent(1);
  expect.shape("y", args.y, {tokens, groups, args.y.extent(2)});
  expect.matrix("weight", args.weight, groups * args.y.extent(2), args.x.extent(2));
}

void check_shapes(const HeadArgs& args) {
  const Expectations expect("head");
  expect.rank("x", args.x, 2);
  expect.rank("rows", args.rows, 1);
  expect.rank("weight", args.weight, 2);
  expect.shape("weight", args.weight, {args.weight.extent(0), args.x.extent(1)});
  expect.shape("logits", args.logits, {args.rows.extent(0), args.weight.extent(0)});
}

void check_shapes(const BestTokensArgs& args) {
  const Expectations expect("best_tokens");
  expect.rank("logits", args.logits, 2);
  expect.at_least("vocab", args.logits.extent(1), 1);
  expect.shape("best", args.best, {args.logits.extent(0)});
}

void check_shapes(const PrepareQueryArgs& args) {
  const Expectations expect("prepare_query");
  expect.rows(args.rows);
  expect.rank("kv", args.kv, 2);
  const int64_t tokens = args.rows.tokens(), head_dim = args.kv.extent(1);
  expect.divisible("head_dim", head_dim, 32);
  expect.frequencies(args.frequencies, head_dim);
  expect.optional_shape("q", args.q, {tokens, args.q.extent(1), head_dim});
  expect.shape("kv", args.kv, {tokens, head_dim});
  expect.shape("window_rows", args.window_rows, {tokens, window_row_bytes(head_dim)});
}

void check_shapes(const SparseAttentionArgs& args) {
  const Expectations expect("sparse_attention");
  expect.rows(args.rows);
  expect.rank("q", args.q, 3);
  const int64_t tokens = args.rows.tokens();
  const int64_t heads = args.q.extent(1), head_dim = args.q.extent(2);
  const int64_t row_bytes = window_row_bytes(head_dim);
  expect.divisible("head_dim", head_dim, 32);
  expect.shape("q", args.q, {tokens, heads, head_dim});
  expect.shape("window_rows", args.window_rows, {tokens, row_bytes});
  expect.rank("ring", args.ring, 3);
  expect.shape("ring", args.ring, {args.ring.extent(0), args.ring.extent(1), row_bytes});
  expect.at_least("window", args.window, 1);
  // The first row of a step needs the window - 1 rows before it.
  expect.at_least("ring rows", args.ring.extent(1), args.block > 0 ? args.window : args.window - 1);
  if (args.block > 0) expect.divisible("tokens", tokens, args.block);
  expect.optional_shape("window_starts", args.window_starts, {tokens});
  if (args.chosen.present()) {
    expect.shape("chosen", args.chosen, {tokens, args.chosen.extent(1)});
    expect.paged("latents", args.latents, latent_row_bytes(head_dim));
  } else {
    expect.absent("latents (chosen is absent)", args.latents.rows);
  }
  expect.shape("sink", args.sink, {heads});
  expect.frequencies(args.frequencies, head_dim);
  expect.shape("o", args.o, {tokens, heads, head_dim});
}

void check_shapes(const WriteWindowArgs& args) {
  const Expectations expect("write_window");
  expect.rows(args.rows);
  expect.rank("ring", args.ring, 3);
  expect.at_least("ring rows", args.ring.extent(1), 1);
  expect.shape("window_rows", args.window_rows, {args.rows.tokens(), args.ring.extent(2)});
}

void check_shapes(const CompressKvArgs& args) {
  const Expectations expect("compress_kv");
  expect.rows(args.rows);
  expect.at_least("ratio", args.ratio, 1);
  expect.rank("kv", args.kv, 2);
  const int64_t tokens = args.rows.tokens(), head_dim = args.kv.extent(1);
  expect.divisible("head_dim", head_dim, 16);
  expect.shape("kv", args.kv, {tokens, head_dim});
  if (args.ratio == 1) {
    expect.absent("gate (ratio 1)", args.gate);
    expect.absent("open_rows (ratio 1)", args.open_rows);
  } else {
    expect.shape("gate", args.gate, {tokens, head_dim});
    expect.rank("open_rows", args.open_rows, 4);
    expect.shape("open_rows", args.open_rows,
                 {args.open_rows.extent(0), args.open_rows.extent(1), 2, head_dim});
    expect.at_least("open rows", args.open_rows.extent(1), args.ratio - 1);
  }
  expect.shape("norm", args.norm, {head_dim});
  expect.frequencies(args.frequencies, head_dim);
  expect.shape("latent", args.latent, {tokens, head_dim});
  expect.paged("latents", args.latents, latent_row_bytes(head_dim));
}

void check_shapes(const IndexKeysArgs& args) {
  const Expectations expect("index_keys");
  expect.rows(args.rows);
  expect.at_least("ratio", args.ratio, 1);
  expect.rank("weight", args.weight, 2);
  const int64_t width = args.weight.extent(0), head_dim = args.weight.extent(1);
  expect.divisible("width", width, 32);
  expect.shape("latent", args.latent, {args.rows.tokens(), head_dim});
  expect.shape("norm", args.norm, {width});
  expect.frequencies(args.frequencies, width);
  expect.paged("keys", args.keys, index_key_row_bytes(width));
}

void check_shapes(const IndexSelectArgs& args) {
  const Expectations expect("index_select");
  expect.rows(args.rows);
  expect.at_least("ratio", args.ratio, 1);
  expect.rank("q", args.q, 3);
  const int64_t tokens = args.rows.tokens(), heads = args.q.extent(1), width = args.q.extent(2);
  expect.divisible("width", width, 32);
  expect.shape("q", args.q, {tokens, heads, width});
  expect.shape("weights", args.weights, {tokens, heads});
  expect.frequencies(args.frequencies, width);
  expect.paged("keys", args.keys, index_key_row_bytes(width));
  if (args.candidate_use == CandidateUse::none) {
    expect.absent("candidates (none in use)", args.candidates);
  } else {
    expect.shape("candidates", args.candidates, {tokens, args.candidates.extent(1)});
    expect.at_least("candidate_block", args.candidate_block, 1);
  }
  expect.shape("chosen", args.chosen, {tokens, args.chosen.extent(1)});
}

void check_shapes(const EngramHashArgs& args) {
  const Expectations expect("engram_hash");
  expect.rows(args.rows);
  const int64_t tokens = args.rows.tokens();
  expect.shape("ids", args.ids, {tokens});
  expect.shape("image_index", args.image_index, {tokens});
  expect.rank("token_map", args.token_map, 1);
  expect.rank("multipliers", args.multipliers, 2);
  expect.rank("primes", args.primes, 2);
  const int64_t layers = args.primes.extent(0), columns = args.primes.extent(1);
  expect.at_least("largest n-gram", args.multipliers.extent(1), 2);
  expect.divisible("columns", columns, args.multipliers.extent(1) - 1);
  expect.shape("multipliers", args.multipliers, {layers, args.multipliers.extent(1)});
  expect.shape("offsets", args.offsets, {layers, columns});
  expect.paged("classes", args.classes, 1);
  expect.shape("table_rows", args.table_rows, {tokens, layers, columns});
}

void check_shapes(const EngramGatherArgs& args) {
  const Expectations expect("engram_gather");
  expect.rank("table_rows", args.table_rows, 3);
  expect.rank("codes", args.codes, 2);
  const int64_t width = args.codes.extent(1);
  expect.range("layer", args.layer, 0, args.table_rows.extent(1) - 1);
  expect.divisible("width", width, kScaleBlock);
  expect.shape("scales", args.scales, {args.codes.extent(0), width / kScaleBlock});
  expect.shape("values", args.values,
               {args.table_rows.extent(0), args.table_rows.extent(2) * width});
}

void check_shapes(const EngramMixArgs& args) {
  const Expectations expect("engram_mix");
  expect.rank("stream", args.stream, 3);
  const int64_t tokens = args.stream.extent(0), copies = args.stream.extent(1);
  const int64_t dim = args.stream.extent(2);
  expect.shape("kv", args.kv, {tokens, (copies + 1) * dim});
  expect.shape("q_weight", args.q_weight, {copies, dim});
  expect.shape("k_weight", args.k_weight, {copies, dim});
  expect.shape("image_index", args.image_index, {tokens});
}

void check_shapes(const RouteArgs& args) {
  const Expectations expect("route");
  expect.rank("x", args.x, 2);
  expect.rank("gate", args.gate, 2);
  expect.rank("ids", args.ids, 2);
  const int64_t tokens = args.x.extent(0), experts = args.gate.extent(0);
  expect.shape("gate", args.gate, {experts, args.x.extent(1)});
  expect.shape("bias", args.bias, {experts});
  expect.optional_shape("bias_image", args.bias_image, {experts});
  expect.shape("image_index", args.image_index, {tokens});
  expect.range("k", args.ids.extent(1), 1, experts);
  expect.shape("ids", args.ids, {tokens, args.ids.extent(1)});
  expect.shape("weights", args.weights, args.ids.shape);
}

void check_shapes(const MoeExpertsArgs& args) {
  const Expectations expect("moe_experts");
  expect.rank("x", args.x, 2);
  const int64_t tokens = args.x.extent(0), dim = args.x.extent(1);
  expect.divisible("dim", dim, kScaleBlock);
  expect.rank("ids", args.ids, 2);
  expect.shape("ids", args.ids, {tokens, args.ids.extent(1)});
  expect.shape("weights", args.weights, args.ids.shape);
  for (const ExpertMatrices& expert : args.experts) {
    const int64_t width = expert.w1.rows;
    expect.divisible("expert width", width, kScaleBlock);
    expect.matrix("experts w1", expert.w1, width, dim);
    expect.matrix("experts w3", expert.w3, width, dim);
    expect.matrix("experts w2", expert.w2, dim, width);
  }
  const int64_t width = args.shared.w1.rows;
  expect.divisible("shared width", width, kScaleBlock);
  expect.matrix("shared w1", args.shared.w1, width, dim);
  expect.matrix("shared w3", args.shared.w3, width, dim);
  expect.matrix("shared w2", args.shared.w2, dim, width);
  expect.shape("y", args.y, {tokens, dim});
}

void check_shapes(const TakeDraftsArgs& args) {
  const Expectations expect("take_drafts");
  expect.rank("given", args.given, 1);
  expect.rank("drafts", args.drafts, 1);
  expect.shape("places", args.places, args.given.shape);
  expect.shape("ids", args.ids, args.given.shape);
}

void check_shapes(const MarkovStepArgs& args) {
  const Expectations expect("markov_step");
  expect.rank("drafts", args.drafts, 2);
  expect.rank("embed", args.embed, 2);
  const int64_t sequences = args.drafts.extent(0), block = args.drafts.extent(1);
  const int64_t vocab = args.embed.extent(0), rank = args.embed.extent(1);
  expect.range("step", args.step, 0, block - 1);
  expect.shape("ids", args.ids, {sequences * block});
  expect.shape("head", args.head, {vocab, rank});
  expect.shape("chain", args.chain, {sequences, block + 1});
  expect.shape("features", args.features, {sequences * block, rank});
  expect.shape("logits", args.logits, {sequences * block, vocab});
}

void check_shapes(const DraftConfidenceArgs& args) {
  const Expectations expect("draft_confidence");
  expect.rank("x", args.x, 2);
  expect.rank("features", args.features, 2);
  const int64_t rows = args.x.extent(0);
  expect.shape("features", args.features, {rows, args.features.extent(1)});
  expect.shape("projection", args.projection, {1, args.x.extent(1) + args.features.extent(1)});
  expect.shape("confidence", args.confidence, {rows});
}

void check_shapes(const ResidualNormArgs& args) {
  const Expectations expect("residual_norm");
  expect.rank("stream", args.stream, 2);
  expect.optional_shape("update", args.update, args.stream.shape);
  expect.shape("norm", args.norm, {args.stream.extent(1)});
  expect.shape("x", args.x, args.stream.shape);
}

void check_shapes(const ImageAttentionArgs& args) {
  const Expectations expect("image_attention");
  expect.rank("o", args.o, 3);
  const int64_t tokens = args.o.extent(0), heads = args.o.extent(1), head_dim = args.o.extent(2);
  expect.shape("qkv", args.qkv, {tokens, 3, heads, head_dim});
  expect.divisible("head_dim", head_dim, 4);
  expect.shape("frequencies", args.frequencies, {head_dim / 4});
  expect.at_least("columns", args.columns, 1);
  expect.divisible("tokens", tokens, args.columns);
}

void check_shapes(const GatedUnitArgs& args) {
  const Expectations expect("gated_unit");
  expect.rank("h", args.h, 2);
  expect.shape("gate_up", args.gate_up, {args.h.extent(0), 2 * args.h.extent(1)});
}

void check_shapes(const UnfoldCellsArgs& args) {
  const Expectations expect("unfold_cells");
  expect.rank("x", args.x, 2);
  expect.at_least("columns", args.columns, 1);
  expect.at_least("ratio", args.ratio, 1);
  expect.divisible("tokens", args.x.extent(0), args.columns);
  const int64_t rows = args.x.extent(0) / args.columns, ratio = args.ratio;
  const int64_t cells = (rows + ratio - 1) / ratio * ((args.columns + ratio - 1) / ratio);
  expect.shape("cells", args.cells, {cells, args.x.extent(1) * ratio * ratio});
}

void check_shapes(const GeluArgs& args) { Expectations("gelu").rank("x", args.x, 2); }

}  // namespace cachalot
