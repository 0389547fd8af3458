#include "model/decoder.h"

#include <string>

#include "model/draft_head.h"
#include "model/embedding.h"
#include "model/engram.h"
#include "model/layer.h"
#include "model/prefill_shortcut.h"
#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr Part kBackbone{
    .slug = "backbone",
    .title = "Backbone",
    .sentence = "The text model: from token ids to the logits of the next token.",
    .dimensions = "dim, hc_mult, vocab_size, -: n_layers",
    .account = "backbone",
    .top = true};

// A layer by its place in the hand-offs between layers.
constexpr Part kWindowLayer{.slug = "window",
                            .title = "Window layer",
                            .sentence = "A layer that attends to the last positions alone.",
                            .dimensions = "dim, hc_mult, -: window_size",
                            .unit = "layer"};

constexpr Part kSourceLayer{
    .slug = "source",
    .title = "Source layer",
    .sentence =
        "A layer that compresses the sequence and chooses entries of it, for itself and for "
        "the layers that follow.",
    .dimensions = "dim, hc_mult, -: kv_source_layers, -: index_source_layers",
    .unit = "layer",
    .place = PartPlace::leads};

constexpr Part kIndexLayer{
    .slug = "index-source",
    .title = "Index source layer",
    .sentence =
        "A layer that chooses anew among the entries an earlier layer compressed, for "
        "itself and for the layers that follow.",
    .dimensions = "dim, hc_mult, -: index_source_layers",
    .unit = "layer",
    .place = PartPlace::leads};

constexpr Part kReusingLayer{
    .slug = "reusing",
    .title = "Reusing layer",
    .sentence = "A layer that attends to the entries an earlier layer compressed and chose.",
    .dimensions = "dim, hc_mult",
    .unit = "layer",
    .place = PartPlace::follows};

const Part& part_of(const ModelConfig& config, int64_t layer) {
  if (config.ratio(layer) == 0) return kWindowLayer;
  if (config.is_kv_source(layer)) return kSourceLayer;
  return config.is_index_source(layer) ? kIndexLayer : kReusingLayer;
}

constexpr Part kReadOut{
    .slug = "read-out",
    .title = "Read-out",
    .sentence = "The end of the stack, for the rows whose next token is wanted.",
    .formula =
        R"(\mathrm{logits} = W_{\mathrm{head}}\, \mathrm{norm}\Big(\sum_j \alpha_j h_j\Big))",
    .dimensions = "dim, vocab_size, hc_mult"};

constexpr Part kFinalNorm{
    .slug = "norm",
    .title = "Last collapse and norm",
    .sentence = "Sums the copies of the stream with the last layer's mix and norms the result.",
    .formula = R"(x = \mathrm{norm}\Big(\sum_j \alpha_j h_j\Big))",
    .dimensions = "stream: hc_mult | dim, pre_in: hc_mult, x: dim, -: norm_eps"};

constexpr Part kHead{
    .slug = "head",
    .title = "Head",
    .sentence = "Multiplies with a row per word of the vocabulary: the logits, in FP32.",
    .formula = R"(\mathrm{logits} = W_{\mathrm{head}}\, x)",
    .dimensions = "x: dim, logits: vocab_size"};

constexpr Part kBest{
    .slug = "best",
    .title = "Best token",
    .sentence = "The token with the largest logit: all that greedy decoding needs.",
    .formula = R"(t = \arg\max_v \mathrm{logits}_v)",
    .dimensions = "logits: vocab_size"};

template <class Q>
Picks allocate_picks(Q& queue, const Context& context) {
  const ModelConfig& config = context.config;
  Picks picks;
  if (config.index_source_layers.empty()) return picks;
  picks.chosen = queue.arena().template allocate<int32_t>({context.tokens(), config.index_topk});
  if (config.has_candidates()) {
    picks.candidates =
        queue.arena().template allocate<int32_t>({context.tokens(), config.candidate_topk_blocks});
  }
  return picks;
}

// Logits of the wanted rows from the last layer's stream, and their best tokens.
template <class Q>
void read_out(Q& queue, const Context& context, const Stream& stream, const StepOutputs& outputs) {
  const ModelConfig& config = context.config;
  const Within part(queue, kReadOut);
  ArenaScope scope(queue.arena());
  const View<bf16> x = queue.arena().template allocate<bf16>({context.tokens(), config.dim});
  hyper_collapse(Within(queue, kFinalNorm).queue(), HyperCollapseArgs{.stream = stream.copies,
                                                                      .pre_in = stream.mix,
                                                                      .norm = context.weights.norm,
                                                                      .norm_eps = config.norm_eps,
                                                                      .x = x});
  head(Within(queue, kHead).queue(), HeadArgs{.x = x,
                                              .rows = context.inputs.output_rows,
                                              .weight = context.weights.head,
                                              .logits = outputs.logits});
  best_tokens(Within(queue, kBest).queue(),
              BestTokensArgs{.logits = outputs.logits, .best = outputs.best});
}

}  // namespace

template <class Q>
StepOutputs forward(Q& queue, const Context& given) {
  const ModelConfig& config = given.config;
  Arena& arena = queue.arena();
  StepOutputs outputs;
  outputs.logits = arena.allocate<float>({given.shape.outputs, config.vocab_size});
  outputs.best = arena.allocate<int32_t>({given.shape.outputs});
  if (given.shape.draft_taps) {
    const auto targets = static_cast<int64_t>(config.dspark_target_layer_ids.size());
    outputs.taps = arena.allocate<bf16>({given.tokens(), targets, config.dim});
  }
  ArenaScope scope(arena);
  StepInputs inputs = given.inputs;
  if (given.shape.takes_drafts) inputs.ids = ids_with_drafts(queue, given);
  const Context context{config,      given.weights, given.constants, given.caches,
                        given.shape, inputs,        given.observer};
  const Within backbone(queue, kBackbone);

  const StepPart part = context.shape.part;
  const int64_t cut = part == StepPart::whole ? -1 : shortcut_cut(config);
  queue.label("embed");
  const Stream stream =
      part == StepPart::upper ? resume_upper(queue, context) : embed_tokens(queue, context);
  const bool recalls = part != StepPart::upper && !config.engram_layer_ids.empty();
  View<int64_t> table_rows;
  if (recalls) table_rows = hash_ngrams(queue, context);
  const Picks picks = allocate_picks(queue, context);

  for (int64_t layer = part == StepPart::upper ? cut : 0; layer < config.n_layers; ++layer) {
    queue.label("layer " + std::to_string(layer));
    const Within layer_part(queue, part_of(config, layer), layer);
    if (recalls && config.engram_index(layer) >= 0) {
      observe(context.observer, "engram_in", layer, stream.copies);
      recall(queue, context, layer, table_rows, stream.copies);
      observe(context.observer, "engram_out", layer, stream.copies);
    }
    observe_inputs(context, layer, stream);
    if (part == StepPart::lower && layer == cut) {
      finish_lower(queue, context, stream);
      return outputs;
    }
    if (context.shape.draft_taps) tap(queue, context, layer, stream, outputs.taps);
    block(queue, context, layer, picks, stream);
    observe_outputs(context, layer, stream);
  }

  queue.label("head");
  if (context.shape.outputs > 0) read_out(queue, context, stream, outputs);
  observe(context.observer, "logits", -1, outputs.logits);
  if (context.shape.draft_taps) {
    observe(context.observer, "taps", -1, outputs.taps);
    observe(context.observer, "taps_in", -1, outputs.taps);
    absorb(queue, context, outputs.taps);
  }
  return outputs;
}

StepInputs planned_inputs(const StepShape& shape, const Caches& caches) {
  return {.rows = {.positions = {nullptr, {shape.tokens}},
                   .slots = {nullptr, {shape.tokens}},
                   .first_rows = {nullptr, {shape.tokens}}},
          .ids = {nullptr, {shape.tokens}},
          .image_index = {nullptr, {shape.tokens}},
          .image_rows = {},
          .output_rows = {nullptr, {shape.outputs}},
          .page_table = {nullptr, {caches.options().slots, caches.pages_per_slot()}},
          .draft_places = {nullptr, {shape.tokens}},
          .drafts = {nullptr, {shape.tokens}},
          .window_starts = caches.options().shortcut_tail > 0
                               ? View<const int32_t>(nullptr, {shape.tokens})
                               : View<const int32_t>()};
}

size_t plan_workspace(const ModelConfig& config, const ModelWeights& weights,
                      const ModelConstants& constants, const Caches& caches, int64_t tokens,
                      int64_t outputs) {
  meta::Queue queue;
  const StepShape step{.tokens = tokens,
                       .outputs = outputs,
                       .draft_taps = config.has_drafts(),
                       .takes_drafts = config.has_drafts()};
  const StepInputs inputs = planned_inputs(step, caches);
  forward(queue, Context{config, weights, constants, caches, step, inputs});
  if (config.has_drafts()) {
    queue.arena().release_to(0);
    const int64_t rows = caches.options().slots * config.dspark_block_size;
    const StepShape block{.tokens = rows, .outputs = rows, .draft_block = config.dspark_block_size};
    const StepInputs block_inputs = planned_inputs(block, caches);
    propose(queue, Context{config, weights, constants, caches, block, block_inputs});
  }
  return queue.arena().peak();
}

#define CACHALOT_INSTANTIATE(Q) template StepOutputs forward(Q&, const Context&);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
