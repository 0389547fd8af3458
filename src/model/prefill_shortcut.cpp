#include "model/prefill_shortcut.h"

#include <algorithm>

#include "model/compressor.h"
#include "model/queues.h"

namespace cachalot {
namespace {

constexpr Part kShortcut{
    .slug = "shortcut",
    .title = "Prefill shortcut",
    .sentence =
        "What steps of the prefill shortcut do at the cut between lower and upper layers, "
        "beside the layers themselves.",
    .dimensions = "dim, hc_mult, head_dim, -: kv_source_layers",
    .account = "backbone",
    .cost_unit = "step of the shortcut",
    .top = true,
    .borrows = true};

constexpr Part kKeep{
    .slug = "keep",
    .title = "Keep the stream",
    .sentence = "Copies the cut's input into the ring that the upper layers go on from.",
    .formula = R"(\mathrm{ring}[p \bmod n] = (h, \alpha))",
    .dimensions = "dim, hc_mult, window_size + 8"};

constexpr Part kCutInput{
    .slug = "collapse",
    .title = "Collapse at the cut",
    .sentence = "Sums the copies of the stream to the input of the cut's compressor.",
    .formula = R"(x = \mathrm{norm}\Big(\sum_j \alpha_j h_j\Big))",
    .dimensions = "stream: hc_mult | dim, pre_in: hc_mult, x: dim, -: norm_eps"};

constexpr Part kResume{.slug = "resume",
                       .title = "Resume the stream",
                       .sentence = "Takes the tail's rows back from the ring.",
                       .formula = R"((h, \alpha) = \mathrm{ring}[p \bmod n])",
                       .dimensions = "dim, hc_mult, window_size + 8"};

}  // namespace

const Part& shortcut_part() { return kShortcut; }

int64_t shortcut_cut(const ModelConfig& config) {
  return config.kv_source_layers.empty() ? -1 : config.kv_source_layers.back();
}

Status check_shortcut(const ModelConfig& config) {
  const int64_t cut = shortcut_cut(config);
  if (cut < 0) {
    return fail("the prefill shortcut cuts a model at its last KV source: this one has none");
  }
  for (int64_t layer : config.engram_layer_ids) {
    if (layer > cut) {
      return fail(
          "the prefill shortcut needs all engram layers at or below the last KV source, layer {}; "
          "this model has one at layer {}",
          cut, layer);
    }
  }
  if (config.has_candidates() && config.candidate_source_layer < cut) {
    return fail(
        "the prefill shortcut needs the candidate source at or above the last KV source, layer {}; "
        "this model has it at layer {}",
        cut, config.candidate_source_layer);
  }
  return {};
}

bool shortcut_feeds_drafts(const ModelConfig& config) {
  return std::ranges::all_of(config.dspark_target_layer_ids,
                             [&](int64_t layer) { return layer >= shortcut_cut(config); });
}

template <class Q>
void finish_lower(Q& queue, const Context& context, const Stream& stream) {
  const int64_t cut = shortcut_cut(context.config);
  const Within shortcut(queue, kShortcut);
  keep_stream(Within(queue, kKeep).queue(),
              KeepStreamArgs{.rows = context.inputs.rows,
                             .stream = stream.copies,
                             .mix = stream.mix,
                             .kept_copies = context.caches.kept_copies(),
                             .kept_mixes = context.caches.kept_mixes()});
  ArenaScope scope(queue.arena());
  const View<bf16> x =
      queue.arena().template allocate<bf16>({context.tokens(), context.config.dim});
  hyper_collapse(
      Within(queue, kCutInput).queue(),
      HyperCollapseArgs{.stream = stream.copies,
                        .pre_in = stream.mix,
                        .norm = context.weights.layers[static_cast<size_t>(cut)].attention_norm,
                        .norm_eps = context.config.norm_eps,
                        .x = x});
  compress(queue, context, cut, x);
}

template <class Q>
Stream resume_upper(Q& queue, const Context& context) {
  const ModelConfig& config = context.config;
  const int64_t n = context.tokens();
  const Stream stream{
      .copies = queue.arena().template allocate<bf16>({n, config.hc_mult, config.dim}),
      .mix = queue.arena().template allocate<float>({n, config.hc_mult})};
  const Within shortcut(queue, kShortcut);
  resume_stream(Within(queue, kResume).queue(),
                ResumeStreamArgs{.rows = context.inputs.rows,
                                 .kept_copies = context.caches.kept_copies(),
                                 .kept_mixes = context.caches.kept_mixes(),
                                 .stream = stream.copies,
                                 .mix = stream.mix});
  return stream;
}

#define CACHALOT_INSTANTIATE(Q)                                  \
  template void finish_lower(Q&, const Context&, const Stream&); \
  template Stream resume_upper(Q&, const Context&);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
