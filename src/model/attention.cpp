#include "model/attention.h"

#include <cmath>

#include "model/compressor.h"
#include "model/indexer.h"
#include "model/prefill_shortcut.h"
#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr Part kQueryLatent{
    .slug = "query-latent",
    .title = "Query down projection",
    .sentence =
        "Compresses the input to a normed latent that all queries, the indexer's too, are "
        "made from.",
    .formula = R"(c_q = \mathrm{norm}(W_{qa}\, x))",
    .dimensions = "x: dim, y: q_lora_rank, -: norm_eps"};

constexpr Part kQueries{.slug = "queries",
                        .title = "Query up projection",
                        .sentence = "Makes every head's query from the query latent.",
                        .formula = R"(q = W_{qb}\, c_q)",
                        .dimensions = "x: q_lora_rank, y: n_heads * head_dim"};

constexpr Part kKeyValue{
    .slug = "key-value",
    .title = "Key-value projection",
    .sentence = "Makes the one vector per token that is key and value for all heads.",
    .formula = R"(u = \mathrm{norm}(W_{kv}\, x))",
    .dimensions = "x: dim, y: head_dim, -: norm_eps"};

constexpr Part kRotation{
    .slug = "rotation",
    .title = "Rotation",
    .sentence =
        "Rotates the last channels of queries and keys by their position and rounds the step's "
        "window rows to FP8.",
    .formula = R"(q \leftarrow R_p\, q, \quad w_p = \mathrm{fp8}(R_p\, u))",
    .dimensions =
        "q: n_heads | head_dim, kv: head_dim, window_rows: head_dim + head_dim / 32, "
        "frequencies: rope_head_dim / 2, -: rope_theta"};

constexpr Part kStretchedRotation{
    .slug = "rotation",
    .title = "Rotation",
    .sentence =
        "Rotates the last channels of queries and keys by their position, at frequencies stretched "
        "for long contexts, and rounds the step's window rows to FP8.",
    .formula = R"(q \leftarrow R_p\, q, \quad w_p = \mathrm{fp8}(R_p\, u))",
    .dimensions =
        "q: n_heads | head_dim, kv: head_dim, window_rows: head_dim + head_dim / 32, "
        "frequencies: rope_head_dim / 2, -: compress_rope_theta, -: rope_factor, -: beta_fast, -: "
        "beta_slow, "
        "-: original_seq_len"};

// Of tokens that only enter a window.
constexpr Part kKeyRotation{
    .slug = "rotation",
    .title = "Rotation",
    .sentence =
        "Rotates the last channels of the keys by their position and rounds the step's window "
        "rows to FP8.",
    .formula = R"(w_p = \mathrm{fp8}(R_p\, u))",
    .dimensions =
        "q: n_heads | head_dim, kv: head_dim, window_rows: head_dim + head_dim / 32, "
        "frequencies: rope_head_dim / 2, -: rope_theta"};

constexpr Part kWindowAttention{
    .slug = "sparse-attention",
    .title = "Attention to the window",
    .sentence =
        "Attends to the window, with a sink per head in the denominator; the output is rotated "
        "back.",
    .formula = R"(o_h = R_p^{-1} \frac{\sum_j e^{\langle q_h, k_j \rangle/\sqrt d}\, k_j})"
               R"({\sum_j e^{\langle q_h, k_j \rangle/\sqrt d} + e^{\mathrm{sink}_h}})",
    .dimensions =
        "q: n_heads | head_dim, window_rows: head_dim + head_dim / 32, "
        "ring: window_size + 8 | head_dim + head_dim / 32, o: n_heads | head_dim, "
        "frequencies: rope_head_dim / 2, -: rope_theta"};

constexpr Part kBlockAttention{
    .slug = "sparse-attention",
    .title = "Attention to window and block",
    .sentence =
        "Attends to the window and to every row of the draft block, later ones too, with a sink "
        "per head in the denominator; the output is rotated back.",
    .formula = R"(o_h = R_p^{-1} \frac{\sum_j e^{\langle q_h, k_j \rangle/\sqrt d}\, k_j})"
               R"({\sum_j e^{\langle q_h, k_j \rangle/\sqrt d} + e^{\mathrm{sink}_h}})",
    .dimensions =
        "q: n_heads | head_dim, window_rows: head_dim + head_dim / 32, "
        "ring: window_size + 8 | head_dim + head_dim / 32, o: n_heads | head_dim, "
        "frequencies: rope_head_dim / 2, -: dspark_block_size, "
        "-: rope_theta"};

constexpr Part kSparseAttention{
    .slug = "sparse-attention",
    .title = "Sparse attention",
    .sentence =
        "Attends to the window and to the chosen compressed entries, with a sink per head in the "
        "denominator; the output is rotated back.",
    .formula = R"(o_h = R_p^{-1} \frac{\sum_j e^{\langle q_h, k_j \rangle/\sqrt d}\, k_j})"
               R"({\sum_j e^{\langle q_h, k_j \rangle/\sqrt d} + e^{\mathrm{sink}_h}})",
    .dimensions =
        "q: n_heads | head_dim, window_rows: head_dim + head_dim / 32, "
        "ring: window_size + 8 | head_dim + head_dim / 32, o: n_heads | head_dim, "
        "frequencies: rope_head_dim / 2, chosen: index_topk, "
        "latents: head_dim / 2 + head_dim / 16, -: compress_rope_theta, -: rope_factor, -: "
        "beta_fast, -: beta_slow, "
        "-: original_seq_len"};

constexpr Part kWindow{.slug = "window",
                       .title = "Window",
                       .sentence = "Writes the step's rows into the ring of the last positions.",
                       .formula = R"(\mathrm{ring}[p \bmod n] = w_p)",
                       .dimensions =
                           "window_rows: head_dim + head_dim / 32, "
                           "ring: window_size + 8 | head_dim + head_dim / 32"};

constexpr Part kOutput{
    .slug = "output",
    .title = "Grouped output",
    .sentence =
        "Projects the heads back to the stream's width in two steps, the first by groups "
        "of heads.",
    .formula = R"(y = W_{ob}\, [W_{oa}^{(1)} o^{(1)};\, \dots;\, W_{oa}^{(G)} o^{(G)}])",
    .dimensions =
        "o_groups, o_lora_rank, o_groups * o_lora_rank, n_heads * head_dim / o_groups, "
        "dim"};

constexpr Part kOutputGroups{
    .slug = "groups",
    .title = "Group projections",
    .sentence =
        "Projects each group of heads to its own low rank, weights expanded exactly and "
        "input not quantized.",
    .formula = R"(l^{(g)} = W_{oa}^{(g)}\, o^{(g)})",
    .dimensions = "x: o_groups | n_heads * head_dim / o_groups, y: o_groups | o_lora_rank"};

constexpr Part kOutputProjection{
    .slug = "projection",
    .title = "Output projection",
    .sentence = "Brings the groups' low-rank outputs together to the stream's width.",
    .formula = R"(y = W_{ob}\, [l^{(1)};\, \dots;\, l^{(G)}])",
    .dimensions = "x: o_groups * o_lora_rank, y: dim"};

const Part& rotation_part(int64_t ratio, bool queries) {
  if (ratio > 0) return kStretchedRotation;
  return queries ? kRotation : kKeyRotation;
}

const Part& attention_part(int64_t ratio, int64_t draft_block) {
  if (ratio > 0) return kSparseAttention;
  return draft_block > 0 ? kBlockAttention : kWindowAttention;
}

// Layers below the cut of the prefill shortcut see every token.
View<const int32_t> window_starts(const Context& context, int64_t layer) {
  const bool below = layer < shortcut_cut(context.config);
  return below ? View<const int32_t>() : context.inputs.window_starts;
}

// What a layer with compressed entries makes of x alone.
template <class Q>
View<const bf16> index_inputs(Q& queue, const Context& context, int64_t layer, View<const bf16> x) {
  const ModelConfig& config = context.config;
  View<const bf16> head_weights;
  if (config.is_index_source(layer)) head_weights = index_weights(queue, context, layer, x);
  // Of an upper step the lower one has compressed every token.
  if (config.is_kv_source(layer) && context.shape.part != StepPart::upper) {
    compress(queue, context, layer, x);
  }
  return head_weights;
}

// Chooses entries or takes over an earlier layer's choice.
template <class Q>
void update_picks(Q& queue, const Context& context, int64_t layer, View<const bf16> query_latent,
                  View<const bf16> head_weights, const Picks& picks) {
  const ModelConfig& config = context.config;
  if (config.is_index_source(layer)) {
    select_entries(queue, context, layer, query_latent, head_weights, picks);
    observe(context.observer, "chosen", layer, picks.chosen);
  } else {
    observe(context.observer, "reused_chosen", config.index_source_of(layer), picks.chosen);
  }
}

// Before its rotation.
template <class Q>
View<bf16> key_value_of(Q& queue, const Context& context, int64_t layer, View<const bf16> x) {
  const ModelConfig& config = context.config;
  const AttentionWeights& weights = context.weights.layers[static_cast<size_t>(layer)].attention;
  const View<bf16> kv = queue.arena().template allocate<bf16>({context.tokens(), config.head_dim});
  linear(Within(queue, kKeyValue).queue(), LinearArgs{.x = x,
                                                      .weight = weights.wkv,
                                                      .norm = weights.kv_norm,
                                                      .norm_eps = config.norm_eps,
                                                      .y = kv});
  return kv;
}

// Rotates q, if there is one, and makes the window rows of `kv`.
template <class Q>
void rotate(Q& queue, const Context& context, int64_t layer, View<const bf16> kv, View<bf16> q,
            View<uint8_t> window_rows) {
  const int64_t ratio = context.config.ratio(layer);
  prepare_query(Within(queue, rotation_part(ratio, q.present())).queue(),
                PrepareQueryArgs{.rows = context.inputs.rows,
                                 .frequencies = context.constants.frequencies(ratio),
                                 .q = q,
                                 .kv = kv,
                                 .window_rows = window_rows});
}

template <class Q>
View<uint8_t> allocate_window_rows(Q& queue, const Context& context) {
  return queue.arena().template allocate<uint8_t>(
      {context.tokens(), window_row_bytes(context.config.head_dim)});
}

}  // namespace

template <class Q>
View<uint8_t> window_rows_of(Q& queue, const Context& context, int64_t layer, View<const bf16> x) {
  const View<uint8_t> window_rows = allocate_window_rows(queue, context);
  ArenaScope scope(queue.arena());
  rotate(queue, context, layer, key_value_of(queue, context, layer, x), {}, window_rows);
  return window_rows;
}

template <class Q>
void attention(Q& queue, const Context& context, int64_t layer, View<const bf16> x,
               const Picks& picks, View<bf16> output) {
  const ModelConfig& config = context.config;
  const AttentionWeights& weights = context.weights.layers[static_cast<size_t>(layer)].attention;
  const StepRows& rows = context.inputs.rows;
  const int64_t n = context.tokens(), heads = config.n_heads, head_dim = config.head_dim;
  const int64_t ratio = config.ratio(layer);
  const View<const float> frequencies = context.constants.frequencies(ratio);
  Arena& arena = queue.arena();
  ArenaScope scope(arena);

  // Before the queries, whose products of the same x it can stand beside.
  View<const bf16> head_weights;
  if (ratio > 0) head_weights = index_inputs(queue, context, layer, x);
  const View<bf16> query_latent = arena.allocate<bf16>({n, config.q_lora_rank});
  linear(Within(queue, kQueryLatent).queue(), LinearArgs{.x = x,
                                                         .weight = weights.wq_a,
                                                         .norm = weights.q_norm,
                                                         .norm_eps = config.norm_eps,
                                                         .y = query_latent});
  // Of the same x: beside one another where a queue can.
  const View<bf16> kv = key_value_of(queue, context, layer, x);
  View<bf16> q = arena.allocate<bf16>({n, heads * head_dim});
  linear(Within(queue, kQueries).queue(),
         LinearArgs{.x = query_latent, .weight = weights.wq_b, .y = q});
  q.shape = {n, heads, head_dim};
  const View<uint8_t> window_rows = allocate_window_rows(queue, context);
  rotate(queue, context, layer, kv, q, window_rows);

  PagedRows<const uint8_t> latents;
  if (ratio > 0) {
    update_picks(queue, context, layer, query_latent, head_weights, picks);
    const View<uint8_t> own = context.caches.latents(config.kv_source_of(layer));
    latents = context.paged(View<const uint8_t>(own));
  }
  View<bf16> o = arena.allocate<bf16>({n, heads, head_dim});
  sparse_attention(Within(queue, attention_part(ratio, context.shape.draft_block)).queue(),
                   SparseAttentionArgs{
                       .rows = rows,
                       .q = q,
                       .window_rows = window_rows,
                       .ring = context.caches.window(layer),
                       .window = config.window_size,
                       .block = context.shape.draft_block,
                       .window_starts = window_starts(context, layer),
                       .chosen = ratio > 0 ? picks.chosen : View<int32_t>(),
                       .latents = latents,
                       .sink = weights.sink,
                       .frequencies = frequencies,
                       .scale = static_cast<float>(std::pow(static_cast<double>(head_dim), -0.5)),
                       .o = o});
  if (context.shape.draft_block == 0) {
    write_window(
        Within(queue, kWindow).queue(),
        WriteWindowArgs{
            .rows = rows, .window_rows = window_rows, .ring = context.caches.window(layer)});
  }

  const Within part(queue, kOutput);
  o.shape = {n, config.o_groups, heads * head_dim / config.o_groups};
  View<bf16> low = arena.allocate<bf16>({n, config.o_groups, config.o_lora_rank});
  grouped_linear(Within(queue, kOutputGroups).queue(),
                 GroupedLinearArgs{.x = o, .weight = weights.wo_a, .y = low});
  low.shape = {n, config.o_groups * config.o_lora_rank};
  linear(Within(queue, kOutputProjection).queue(),
         LinearArgs{.x = low, .weight = weights.wo_b, .y = output});
}

#define CACHALOT_INSTANTIATE(Q)                                                         \
  template View<uint8_t> window_rows_of(Q&, const Context&, int64_t, View<const bf16>); \
  template void attention(Q&, const Context&, int64_t, View<const bf16>, const Picks&, View<bf16>);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
