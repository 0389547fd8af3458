#include "model/draft_head.h"

#include "model/attention.h"
#include "model/embedding.h"
#include "model/layer.h"
#include "model/queues.h"

namespace cachalot {

template <class Q>
void absorb(Q& queue, const Context& context, View<const bf16> taps) {
  const ModelConfig& config = context.config;
  const DraftWeights& weights = *context.weights.draft;
  queue.label("draft windows");
  ArenaScope scope(queue.arena());
  const View<bf16> x = queue.arena().template allocate<bf16>({context.tokens(), config.dim});
  taps.shape = {context.tokens(), taps.extent(1) * taps.extent(2)};  // targets side by side
  linear(queue, LinearArgs{.x = taps,
                           .weight = weights.main_proj,
                           .norm = weights.main_norm,
                           .norm_eps = config.norm_eps,
                           .y = x});
  for (int64_t layer = config.n_layers; layer < config.n_layers + config.n_mtp_layers; ++layer) {
    ArenaScope stage(queue.arena());
    const View<uint8_t> rows = window_rows_of(queue, context, layer, x, {});
    write_window(queue, WriteWindowArgs{.rows = context.inputs.rows,
                                        .window_rows = rows,
                                        .ring = context.caches.window(layer)});
  }
}

namespace {

// The last stage's stream, collapsed: un-normed for the confidence, normed for the shared head.
template <class Q>
View<bf16> collapsed(Q& queue, const Context& context, const Stream& stream,
                     View<const bf16> norm) {
  const View<bf16> x =
      queue.arena().template allocate<bf16>({context.tokens(), context.config.dim});
  hyper_collapse(queue, HyperCollapseArgs{.stream = stream.copies,
                                          .pre_in = stream.mix,
                                          .norm = norm,
                                          .norm_eps = context.config.norm_eps,
                                          .x = x});
  return x;
}

void choose_drafts(const DraftChooser& choose, int64_t step, View<int32_t> chain,
                   const DraftOutputs& outputs) {
  const int64_t block = outputs.tokens.extent(1), vocabulary = outputs.logits.extent(1);
  for (int64_t sequence = 0; sequence < outputs.tokens.extent(0); ++sequence) {
    int32_t& draft = outputs.tokens.row(sequence)[step];
    const float* logits = outputs.logits.row(sequence * block + step);
    draft = choose(sequence, step, {logits, static_cast<size_t>(vocabulary)}, draft);
    chain.row(sequence)[step + 1] = draft;
  }
}

// Each token's bias follows from the token before it: one link at a time.
template <class Q>
void run_chain(Q& queue, const Context& context, View<bf16> features, const DraftOutputs& outputs,
               const DraftChooser& choose) {
  const DraftWeights& weights = *context.weights.draft;
  const int64_t sequences = outputs.tokens.extent(0), block = outputs.tokens.extent(1);
  const View<int32_t> chain = queue.arena().template allocate<int32_t>({sequences, block + 1});
  for (int64_t step = 0; step < block; ++step) {
    markov_step(queue, MarkovStepArgs{.step = step,
                                      .ids = context.inputs.ids,
                                      .embed = weights.markov_embed,
                                      .head = weights.markov_head,
                                      .chain = chain,
                                      .features = features,
                                      .logits = outputs.logits,
                                      .drafts = outputs.tokens});
    if (choose) choose_drafts(choose, step, chain, outputs);
    observe(context.observer, "chain", step, chain);
  }
}

}  // namespace

template <class Q>
DraftOutputs propose(Q& queue, const Context& context, const DraftChooser& choose) {
  const ModelConfig& config = context.config;
  const DraftWeights& weights = *context.weights.draft;
  const int64_t n = context.tokens(), rows = context.shape.draft_block;
  Arena& arena = queue.arena();
  const DraftOutputs outputs{.tokens = arena.allocate<int32_t>({n / rows, rows}),
                             .logits = arena.allocate<float>({n, config.vocab_size}),
                             .confidence = arena.allocate<float>({n})};
  ArenaScope scope(arena);
  queue.label("drafts");
  const Stream stream = embed_tokens(queue, context);
  for (int64_t layer = config.n_layers; layer < config.n_layers + config.n_mtp_layers; ++layer) {
    observe_inputs(context, layer, stream);
    block(queue, context, layer, {}, stream);
    observe_outputs(context, layer, stream);
  }
  const View<bf16> x = collapsed(queue, context, stream, {});
  const View<bf16> normed = collapsed(queue, context, stream, weights.norm);
  head(queue, HeadArgs{.x = normed,
                       .rows = context.inputs.output_rows,
                       .weight = context.weights.head,
                       .logits = outputs.logits});
  const View<bf16> features = arena.allocate<bf16>({n, config.dspark_markov_rank});
  run_chain(queue, context, features, outputs, choose);
  draft_confidence(queue, DraftConfidenceArgs{.x = x,
                                              .features = features,
                                              .projection = weights.confidence,
                                              .confidence = outputs.confidence});
  observe(context.observer, "draft.tokens", -1, outputs.tokens);
  observe(context.observer, "draft.logits", -1, outputs.logits);
  observe(context.observer, "draft.confidence", -1, outputs.confidence);
  return outputs;
}

#define CACHALOT_INSTANTIATE(Q)                               \
  template void absorb(Q&, const Context&, View<const bf16>); \
  template DraftOutputs propose(Q&, const Context&, const DraftChooser&);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
