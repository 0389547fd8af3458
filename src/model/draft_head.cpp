#include "model/draft_head.h"

#include <deque>
#include <vector>

#include "model/attention.h"
#include "model/embedding.h"
#include "model/layer.h"
#include "model/queues.h"
#include "ops/host_access.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr Part kDrafts{
    .slug = "drafts",
    .title = "DSpark draft head",
    .sentence =
        "Small layers that see what the upper backbone layers saw and propose a block of "
        "tokens at once, which the backbone then verifies in one step.",
    .dimensions = "dim, -: n_mtp_layers, -: dspark_block_size, -: dspark_target_layer_ids",
    .account = "DSpark",
    .cost_unit = "step with drafts",
    .top = true};

constexpr Part kTap{
    .slug = "tap",
    .title = "Draft tap",
    .sentence = "Averages the copies of a target layer's input for the draft stages.",
    .formula = R"(t = \frac{1}{m} \sum_c h_c)",
    .dimensions = "taps: dspark_target_layer_ids.size | dim, stream: hc_mult | dim",
    .unit = "tap"};

constexpr Part kWindows{
    .slug = "windows",
    .title = "Draft windows",
    .sentence =
        "Takes every token of a step into the draft stages' windows: what they attend to "
        "when they propose.",
    .formula = R"(w_s = \mathrm{fp8}\big(R_p\, \mathrm{norm}(W_{kv}^{(s)} x)\big))",
    .dimensions = "dim, head_dim, -: window_size",
    .borrows = true};

constexpr Part kMain{
    .slug = "main",
    .title = "Main projection",
    .sentence = "Brings the taps of all target layers to one input for the draft stages.",
    .formula = R"(x = \mathrm{norm}(W_{\mathrm{main}}\, [t_1;\, t_2;\, \dots]))",
    .dimensions = "x: dim * dspark_target_layer_ids.size, y: dim, -: norm_eps"};

constexpr Part kStageWindow{
    .slug = "stage",
    .title = "Stage window",
    .sentence = "Makes the stage's key-value row of every token and writes it into its ring.",
    .dimensions = "head_dim, dim, head_dim + head_dim / 32",
    .unit = "stage"};

constexpr Part kStageRing{
    .slug = "window",
    .title = "Stage ring",
    .sentence = "Writes the step's rows into the ring of the stage's last positions.",
    .formula = R"(\mathrm{ring}_s[p \bmod n] = w_s)",
    .dimensions =
        "window_rows: head_dim + head_dim / 32, "
        "ring: window_size + 8 | head_dim + head_dim / 32"};

constexpr Part kProposal{
    .slug = "proposal",
    .title = "Proposal",
    .sentence =
        "Proposes the block of tokens after a sequence's last one: draft stages, the shared "
        "head, and a chain that makes each draft depend on the one before.",
    .dimensions = "dspark_block_size, dim, hc_mult, vocab_size, -: dspark_noise_token_id",
    .cost_unit = "proposal"};

constexpr Part kStage{
    .slug = "stage",
    .title = "Draft stage",
    .sentence = "A layer with few experts whose rows see the window and the whole block.",
    .dimensions = "dspark_block_size, dim, hc_mult, -: dspark_n_routed_experts, -: n_mtp_layers",
    .unit = "stage"};

constexpr Part kPlain{
    .slug = "collapse",
    .title = "Last collapse",
    .sentence = "Sums the copies of the stream with the last stage's mix, for the confidence.",
    .formula = R"(x = \sum_j \alpha_j h_j)",
    .dimensions =
        "stream: dspark_block_size | hc_mult | dim, pre_in: dspark_block_size | hc_mult, "
        "x: dspark_block_size | dim"};

constexpr Part kNormed{.slug = "norm",
                       .title = "Last collapse and norm",
                       .sentence = "The same sum, normed for the head.",
                       .formula = R"(\hat x = \mathrm{norm}\Big(\sum_j \alpha_j h_j\Big))",
                       .dimensions =
                           "stream: dspark_block_size | hc_mult | dim, pre_in: "
                           "dspark_block_size | hc_mult, x: dspark_block_size | dim, "
                           "-: norm_eps"};

constexpr Part kSharedHead{.slug = "head",
                           .title = "Head of the drafts",
                           .sentence = "The backbone's head, for every row of the block.",
                           .formula = R"(\mathrm{logits} = W_{\mathrm{head}}\, \hat x)",
                           .dimensions =
                               "x: dspark_block_size | dim, logits: dspark_block_size | "
                               "vocab_size"};

constexpr Part kChain{
    .slug = "chain",
    .title = "Markov chain",
    .sentence =
        "Adds to each row's logits a bias that follows from the token before and takes the "
        "best token: one link per draft.",
    .formula = R"(f = E_M[t_{i-1}], \quad t_i = \arg\max(\mathrm{logits}_i + W_M f))",
    .dimensions =
        "chain: dspark_block_size + 1, features: dspark_block_size | dspark_markov_rank, "
        "logits: dspark_block_size | vocab_size, drafts: dspark_block_size"};

constexpr Part kConfidence{.slug = "confidence",
                           .title = "Confidence",
                           .sentence =
                               "Says how sure the draft head is of each draft: the sigmoid of "
                               "c is the probability that it is accepted.",
                           .formula = R"(c = W_c\, [x;\, f])",
                           .dimensions =
                               "x: dspark_block_size | dim, features: dspark_block_size | "
                               "dspark_markov_rank, confidence: dspark_block_size"};

constexpr Part kTake{
    .slug = "take",
    .title = "Drafts to check",
    .sentence = "Puts the drafts of a block behind the tokens they follow, for one step to check.",
    .formula = R"(\mathrm{id}_t = d_{p_t})",
    .dimensions = "-: dspark_block_size"};

int64_t target_index(const ModelConfig& config, int64_t layer) {
  const auto& targets = config.dspark_target_layer_ids;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == layer) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace

template <class Q>
void tap(Q& queue, const Context& context, int64_t layer, const Stream& stream, View<bf16> taps) {
  const int64_t target = target_index(context.config, layer);
  if (target < 0) return;
  const Within drafts(queue, kDrafts);
  draft_tap(Within(queue, kTap, layer).queue(),
            DraftTapArgs{.stream = stream.copies, .target = target, .taps = taps});
}

template <class Q>
void absorb(Q& queue, const Context& context, View<const bf16> taps) {
  const ModelConfig& config = context.config;
  const DraftWeights& weights = *context.weights.draft;
  queue.label("draft windows");
  const Within drafts(queue, kDrafts);
  const Within windows(queue, kWindows);
  ArenaScope scope(queue.arena());
  const View<bf16> x = queue.arena().template allocate<bf16>({context.tokens(), config.dim});
  taps.shape = {context.tokens(), taps.extent(1) * taps.extent(2)};  // targets side by side
  linear(Within(queue, kMain).queue(), LinearArgs{.x = taps,
                                                  .weight = weights.main_proj,
                                                  .norm = weights.main_norm,
                                                  .norm_eps = config.norm_eps,
                                                  .y = x});
  for (int64_t layer = config.n_layers; layer < config.n_layers + config.n_mtp_layers; ++layer) {
    const Within stage_part(queue, kStageWindow, layer);
    ArenaScope stage(queue.arena());
    const View<uint8_t> rows = window_rows_of(queue, context, layer, x);
    write_window(Within(queue, kStageRing).queue(),
                 WriteWindowArgs{.rows = context.inputs.rows,
                                 .window_rows = rows,
                                 .ring = context.caches.window(layer)});
  }
}

template <class Q>
View<const int32_t> ids_with_drafts(Q& queue, const Context& context) {
  const Within drafts(queue, kDrafts);
  const View<int32_t> ids = queue.arena().template allocate<int32_t>({context.tokens()});
  take_drafts(Within(queue, kTake).queue(), TakeDraftsArgs{.given = context.inputs.ids,
                                                           .places = context.inputs.draft_places,
                                                           .drafts = context.inputs.drafts,
                                                           .ids = ids});
  return ids;
}

namespace {

// The last stage's stream, collapsed: un-normed for the confidence, normed for the shared head.
template <class Q>
View<bf16> collapsed(Q& queue, const Context& context, const Stream& stream,
                     View<const bf16> norm) {
  const Within part(queue, norm.present() ? kNormed : kPlain);
  const View<bf16> x =
      queue.arena().template allocate<bf16>({context.tokens(), context.config.dim});
  hyper_collapse(queue, HyperCollapseArgs{.stream = stream.copies,
                                          .pre_in = stream.mix,
                                          .norm = norm,
                                          .norm_eps = context.config.norm_eps,
                                          .x = x});
  return x;
}

template <class Q>
void choose_drafts(Q& queue, const DraftChooser& choose, int64_t step, View<int32_t> chain,
                   const DraftOutputs& outputs) {
  const int64_t block = outputs.tokens.extent(1), vocabulary = outputs.logits.extent(1);
  const int64_t sequences = outputs.tokens.extent(0);
  std::deque<HostCopy<float>> copies;  // which cannot be moved
  std::vector<std::span<const float>> logits;
  std::vector<int32_t> drafts;
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const float* row = outputs.logits.row(sequence * block + step);
    const HostCopy<float>& copy = copies.emplace_back(queue, row, vocabulary);
    logits.emplace_back(copy.data(), static_cast<size_t>(vocabulary));
    drafts.push_back(*HostCopy<int32_t>(queue, outputs.tokens.row(sequence) + step, 1).data());
  }
  choose(step, logits, drafts);
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const int32_t chosen = drafts[static_cast<size_t>(sequence)];
    write_from_host(queue, outputs.tokens.row(sequence) + step, chosen);
    write_from_host(queue, chain.row(sequence) + step + 1, chosen);
  }
}

// Each token's bias follows from the token before it: one link at a time.
template <class Q>
void run_chain(Q& queue, const Context& context, View<bf16> features, const DraftOutputs& outputs,
               const DraftChooser& choose) {
  const DraftWeights& weights = *context.weights.draft;
  const int64_t sequences = outputs.tokens.extent(0), block = outputs.tokens.extent(1);
  const Within part(queue, kChain);
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
    if (choose) choose_drafts(queue, choose, step, chain, outputs);
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
  const Within drafts(queue, kDrafts);
  const Within part(queue, kProposal);
  const Stream stream = embed_tokens(queue, context);
  for (int64_t layer = config.n_layers; layer < config.n_layers + config.n_mtp_layers; ++layer) {
    const Within stage(queue, kStage, layer);
    observe_inputs(context, layer, stream);
    block(queue, context, layer, {}, stream);
    observe_outputs(context, layer, stream);
  }
  const View<bf16> x = collapsed(queue, context, stream, {});
  const View<bf16> normed = collapsed(queue, context, stream, weights.norm);
  head(Within(queue, kSharedHead).queue(), HeadArgs{.x = normed,
                                                    .rows = context.inputs.output_rows,
                                                    .weight = context.weights.head,
                                                    .logits = outputs.logits});
  const View<bf16> features = arena.allocate<bf16>({n, config.dspark_markov_rank});
  run_chain(queue, context, features, outputs, choose);
  draft_confidence(Within(queue, kConfidence).queue(),
                   DraftConfidenceArgs{.x = x,
                                       .features = features,
                                       .projection = weights.confidence,
                                       .confidence = outputs.confidence});
  observe(context.observer, "draft.tokens", -1, outputs.tokens);
  observe(context.observer, "draft.logits", -1, outputs.logits);
  observe(context.observer, "draft.confidence", -1, outputs.confidence);
  return outputs;
}

#define CACHALOT_INSTANTIATE(Q)                                              \
  template void tap(Q&, const Context&, int64_t, const Stream&, View<bf16>); \
  template void absorb(Q&, const Context&, View<const bf16>);                \
  template View<const int32_t> ids_with_drafts(Q&, const Context&);          \
  template DraftOutputs propose(Q&, const Context&, const DraftChooser&);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
