#include "model/indexer.h"

#include <cmath>

#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr Part kIndexer{
    .slug = "indexer",
    .title = "Indexer",
    .sentence =
        "Chooses which compressed entries a token attends to; the layers up to the next "
        "index source take the choice over.",
    .formula = R"(\mathcal{C} = \mathrm{top}_k \sum_h w_h\, [\langle q_h, k_j \rangle]_+)",
    .dimensions = "index_n_heads, index_head_dim, index_topk, -: index_source_layers"};

constexpr Part kIndexQueries{
    .slug = "queries",
    .title = "Index queries",
    .sentence = "Makes the indexer's queries from the attention's query latent.",
    .formula = R"(q^I = W_{qb}^I\, c_q)",
    .dimensions = "x: q_lora_rank, y: index_n_heads * index_head_dim"};

constexpr Part kIndexWeights{
    .slug = "index-head-weights",
    .title = "Index head weights",
    .sentence = "Says per token how much each of the indexer's heads counts.",
    .formula = R"(w = W_w\, x)",
    .dimensions = "x: dim, y: index_n_heads"};

// Three kinds, by what they have to do with candidates (ops/indexer.h).
constexpr Part kSelection{
    .slug = "selection",
    .title = "Selection of entries",
    .sentence =
        "Scores the index keys of the layer's own KV source and keeps the best; of equal ones "
        "the earlier.",
    .formula = R"(I_j = \sum_h \frac{w_h}{\sqrt{d_I n_I}}\, [\langle \mathrm{fp4}(R\, q_h^I),\, )"
               R"(k_j^I \rangle]_+, \quad \mathcal{C} = \mathrm{top}_k(I))",
    .dimensions =
        "chosen: index_topk, q: index_n_heads | "
        "index_head_dim, weights: index_n_heads, frequencies: rope_head_dim / 2, "
        "keys: index_head_dim / 2 + index_head_dim / 32, -: compress_rope_theta"};

constexpr Part kSelectionAndCandidates{
    .slug = "selection",
    .title = "Selection of entries and candidates",
    .sentence =
        "Scores the index keys of the layer's own KV source and keeps the best. For the index "
        "sources above it also keeps the best blocks of entries as candidates: a block counts as "
        "much as its best entry, and the one that holds the newest is always among them. The "
        "layer's own choice is not bound to candidates.",
    .formula = R"(I_j = \sum_h \frac{w_h}{\sqrt{d_I n_I}}\, [\langle \mathrm{fp4}(R\, q_h^I),\, )"
               R"(k_j^I \rangle]_+, \quad \mathcal{C} = \mathrm{top}_k(I), \quad )"
               R"(\mathcal{B} = \mathrm{top}_m\Big(\max_{j \in b} I_j\Big)_b)",
    .dimensions =
        "chosen: index_topk, candidates: candidate_topk_blocks, q: index_n_heads | "
        "index_head_dim, weights: index_n_heads, frequencies: rope_head_dim / 2, "
        "keys: index_head_dim / 2 + index_head_dim / 32, -: compress_rope_theta, "
        "-: candidate_block_size, -: candidate_source_layer"};

constexpr Part kSelectionAmongCandidates{
    .slug = "selection",
    .title = "Selection among candidates",
    .sentence =
        "Scores the index keys of the entries in the blocks that the candidate source kept for "
        "the same token, and keeps the best.",
    .formula = R"(I_j = \sum_h \frac{w_h}{\sqrt{d_I n_I}}\, [\langle \mathrm{fp4}(R\, q_h^I),\, )"
               R"(k_j^I \rangle]_+, \quad \mathcal{C} = )"
               R"(\mathrm{top}_k\Big(I_j : j \in \bigcup \mathcal{B}\Big))",
    .dimensions =
        "chosen: index_topk, candidates: candidate_topk_blocks, q: index_n_heads | "
        "index_head_dim, weights: index_n_heads, frequencies: rope_head_dim / 2, "
        "keys: index_head_dim / 2 + index_head_dim / 32, -: compress_rope_theta, "
        "-: candidate_block_size, -: candidate_source_layer"};

CandidateUse candidate_use(const ModelConfig& config, int64_t layer) {
  if (!config.has_candidates() || layer < config.candidate_source_layer) return CandidateUse::none;
  return layer == config.candidate_source_layer ? CandidateUse::build : CandidateUse::use;
}

const Part& selection_part(CandidateUse use) {
  if (use == CandidateUse::none) return kSelection;
  return use == CandidateUse::build ? kSelectionAndCandidates : kSelectionAmongCandidates;
}

}  // namespace

template <class Q>
View<const bf16> index_weights(Q& queue, const Context& context, int64_t layer,
                               View<const bf16> x) {
  const IndexerWeights& weights =
      *context.weights.layers[static_cast<size_t>(layer)].attention.indexer;
  const View<bf16> head_weights =
      queue.arena().template allocate<bf16>({context.tokens(), context.config.index_n_heads});
  linear(Within(queue, kIndexWeights).queue(),
         LinearArgs{.x = x, .weight = weights.weights_proj, .y = head_weights});
  return head_weights;
}

template <class Q>
void select_entries(Q& queue, const Context& context, int64_t layer, View<const bf16> query_latent,
                    View<const bf16> head_weights, const Picks& picks) {
  const ModelConfig& config = context.config;
  const IndexerWeights& weights =
      *context.weights.layers[static_cast<size_t>(layer)].attention.indexer;
  const int64_t n = context.tokens(), heads = config.index_n_heads, width = config.index_head_dim;
  const CandidateUse use = candidate_use(config, layer);
  const Within part(queue, kIndexer);
  ArenaScope scope(queue.arena());

  View<bf16> q = queue.arena().template allocate<bf16>({n, heads * width});
  linear(Within(queue, kIndexQueries).queue(),
         LinearArgs{.x = query_latent, .weight = weights.wq_b, .y = q});
  q.shape = {n, heads, width};
  // width^-0.5 * heads^-0.5, in double as the release's Python computes it, then FP32.
  const double scale =
      std::pow(static_cast<double>(width), -0.5) * std::pow(static_cast<double>(heads), -0.5);
  // An indexer scores the keys of its own KV source, in prefill and in decode alike.
  const View<uint8_t> keys = context.caches.index_keys(config.kv_source_of(layer));
  index_select(Within(queue, selection_part(use)).queue(),
               IndexSelectArgs{
                   .rows = context.inputs.rows,
                   .ratio = config.ratio(layer),
                   .q = q,
                   .weights = head_weights,
                   .weight_scale = static_cast<float>(scale),
                   .frequencies = context.constants.frequencies(config.ratio(layer)),
                   .keys = context.paged(View<const uint8_t>(keys)),
                   .candidate_use = use,
                   .candidate_block = use == CandidateUse::none ? 0 : config.candidate_block_size,
                   .candidates = use == CandidateUse::none ? View<int32_t>() : picks.candidates,
                   .chosen = picks.chosen});
}

#define CACHALOT_INSTANTIATE(Q)                                                                 \
  template View<const bf16> index_weights(Q&, const Context&, int64_t, View<const bf16>);       \
  template void select_entries(Q&, const Context&, int64_t, View<const bf16>, View<const bf16>, \
                               const Picks&);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
