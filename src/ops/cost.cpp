#include "ops/cost.h"

#include <algorithm>

namespace cachalot {
namespace {

template <class... Views>
int64_t bytes_of(const Views&... views) {
  return (views.bytes() + ... + 0);
}

int64_t bytes_of(const StepRows& rows) {
  return bytes_of(rows.positions, rows.slots, rows.first_rows);
}

// Groups of `ratio` that `tokens` consecutive positions can end.
int64_t most_entries(int64_t tokens, int64_t ratio) { return (tokens + ratio - 1) / ratio; }

int64_t product_flops(int64_t tokens, int64_t rows, int64_t columns) {
  return 2 * tokens * rows * columns;
}

// Six operations turn a pair: four products, two sums.
int64_t rotation_flops(int64_t rotations, View<const float> frequencies) {
  return 6 * rotations * frequencies.extent(0);
}

template <class T>
int64_t most_rows_per_sequence(const PagedRows<T>& paged) {
  return paged.table.extent(1) * paged.rows.extent(1);
}

template <class Expert>
int64_t expert_weights(const Expert& expert) {
  return expert.w1.rows * expert.w1.columns + expert.w2.rows * expert.w2.columns +
         expert.w3.rows * expert.w3.columns;
}

template <class Expert>
int64_t expert_bytes(const Expert& expert) {
  return expert.w1.bytes() + expert.w2.bytes() + expert.w3.bytes();
}

}  // namespace

Cost cost_of(const EmbedArgs& args) {
  const int64_t row = args.stream.extent(2) * static_cast<int64_t>(sizeof(bf16));
  return {.bytes_read = bytes_of(args.ids, args.image_index) + args.ids.extent(0) * row,
          .bytes_written = bytes_of(args.stream, args.pre)};
}

Cost cost_of(const HyperCollapseArgs& args) {
  const int64_t elements = args.stream.elements();
  Cost cost{.bytes_read = bytes_of(args.stream, args.pre_in, args.norm),
            .bytes_written = bytes_of(args.x),
            .flops = 2 * elements + (args.norm.present() ? 4 * args.x.elements() : 0)};
  if (args.fn.absent()) return cost;
  const int64_t m = args.stream.extent(1), tokens = args.stream.extent(0);
  // Per Sinkhorn pass m * m sums and as many quotients, in both directions.
  cost += {.bytes_read = bytes_of(args.fn, args.base, args.scale),
           .bytes_written = bytes_of(args.pre_out, args.post, args.comb),
           .flops = product_flops(tokens, args.fn.extent(0), args.fn.extent(1)) + 2 * elements +
                    tokens * 4 * m * m * args.sinkhorn_iterations};
  return cost;
}

Cost cost_of(const HyperExpandArgs& args) {
  const int64_t m = args.stream.extent(1);
  return {.bytes_read = bytes_of(args.y, args.post, args.comb) + bytes_of(args.stream),
          .bytes_written = bytes_of(args.stream),
          .flops = 2 * (m + 1) * args.stream.elements()};
}

Cost cost_of(const DraftTapArgs& args) {
  const int64_t written = args.stream.extent(0) * args.stream.extent(2);
  return {.bytes_read = bytes_of(args.stream),
          .bytes_written = written * static_cast<int64_t>(sizeof(bf16)),
          .flops = args.stream.elements() + written};
}

Cost cost_of(const KeepStreamArgs& args) {
  const int64_t moved = bytes_of(args.stream, args.mix);
  return {.bytes_read = bytes_of(args.rows) + moved, .bytes_written = moved};
}

Cost cost_of(const ResumeStreamArgs& args) {
  const int64_t moved = bytes_of(args.stream, args.mix);
  return {.bytes_read = bytes_of(args.rows) + moved, .bytes_written = moved};
}

Cost cost_of(const LinearArgs& args) {
  const int64_t tokens = args.x.extent(0), out = args.weight.rows;
  return {.bytes_read = bytes_of(args.x, args.bias, args.norm) + args.weight.bytes(),
          .bytes_written = bytes_of(args.y) + bytes_of(args.y_f32),
          .flops = product_flops(tokens, out, args.weight.columns) +
                   (args.bias.present() ? tokens * out : 0) +
                   (args.norm.present() ? 4 * tokens * out : 0)};
}

Cost cost_of(const GroupedLinearArgs& args) {
  return {.bytes_read = bytes_of(args.x) + args.weight.bytes(),
          .bytes_written = bytes_of(args.y),
          .flops = product_flops(args.x.extent(0), args.weight.rows, args.weight.columns)};
}

Cost cost_of(const HeadArgs& args) {
  const int64_t outputs = args.rows.extent(0), dim = args.x.extent(1);
  return {.bytes_read = bytes_of(args.rows) + bytes_of(args.weight) +
                        outputs * dim * static_cast<int64_t>(sizeof(bf16)),
          .bytes_written = bytes_of(args.logits),
          .flops = product_flops(outputs, args.weight.extent(0), dim)};
}

Cost cost_of(const BestTokensArgs& args) {
  return {.bytes_read = bytes_of(args.logits),
          .bytes_written = bytes_of(args.best),
          .flops = args.logits.elements()};
}

Cost cost_of(const PrepareQueryArgs& args) {
  const int64_t tokens = args.rows.tokens(), heads = args.q.present() ? args.q.extent(1) : 0;
  const int64_t rotated = 2 * args.frequencies.extent(0);
  // Of q only the rotated channels are touched.
  const int64_t q_bytes = tokens * heads * rotated * static_cast<int64_t>(sizeof(bf16));
  return {
      .bytes_read = bytes_of(args.rows) + bytes_of(args.kv) + bytes_of(args.frequencies) + q_bytes,
      .bytes_written = q_bytes + bytes_of(args.window_rows),
      .flops = rotation_flops(tokens * (heads + 1), args.frequencies) + 2 * args.kv.elements()};
}

Cost cost_of(const SparseAttentionArgs& args) {
  const int64_t tokens = args.rows.tokens();
  const int64_t heads = args.q.extent(1), head_dim = args.q.extent(2);
  const int64_t chosen = args.chosen.present() ? args.chosen.extent(1) : 0;
  const int64_t keys = args.window + args.block + chosen;
  return {.bytes_read = bytes_of(args.rows) + bytes_of(args.q, args.sink, args.frequencies) +
                        bytes_of(args.chosen, args.window_starts) +
                        tokens * ((args.window + args.block) * args.ring.extent(2) +
                                  chosen * args.latents.rows.extent(2)),
          .bytes_written = bytes_of(args.o),
          // q . K, sum p K; per score a scale, an exponential and a sum.
          .flops = tokens * heads * keys * (4 * head_dim + 3) +
                   rotation_flops(tokens * heads, args.frequencies)};
}

Cost cost_of(const WriteWindowArgs& args) {
  const int64_t kept = std::min(args.rows.tokens(), args.ring.extent(0) * args.ring.extent(1));
  const int64_t moved = kept * args.ring.extent(2);
  return {.bytes_read = bytes_of(args.rows) + moved, .bytes_written = moved};
}

Cost cost_of(const CompressKvArgs& args) {
  const int64_t tokens = args.rows.tokens(), entries = most_entries(tokens, args.ratio);
  return {.bytes_read = bytes_of(args.rows) + bytes_of(args.kv, args.gate) + bytes_of(args.norm) +
                        bytes_of(args.frequencies),
          .bytes_written = entries * (args.kv.extent(1) * static_cast<int64_t>(sizeof(bf16)) +
                                      args.latents.rows.extent(2)) +
                           (args.ratio > 1 ? bytes_of(args.kv, args.gate) : 0),
          .flops = (args.ratio > 1 ? 5 * args.kv.elements() : 0) + entries * 6 * args.kv.extent(1) +
                   rotation_flops(entries, args.frequencies)};
}

Cost cost_of(const IndexKeysArgs& args) {
  const int64_t entries = most_entries(args.rows.tokens(), args.ratio),
                width = args.weight.extent(0);
  return {.bytes_read = bytes_of(args.rows) + bytes_of(args.weight, args.norm) +
                        bytes_of(args.frequencies) +
                        entries * args.latent.extent(1) * static_cast<int64_t>(sizeof(bf16)),
          .bytes_written = entries * args.keys.rows.extent(2),
          .flops = product_flops(entries, width, args.weight.extent(1)) + entries * 6 * width +
                   rotation_flops(entries, args.frequencies)};
}

Cost cost_of(const IndexSelectArgs& args) {
  const int64_t tokens = args.rows.tokens(), heads = args.q.extent(1), width = args.q.extent(2);
  const bool reads = args.candidate_use == CandidateUse::use;
  const int64_t mapped = most_rows_per_sequence(args.keys);
  const int64_t keys =
      reads ? std::min(mapped, args.candidates.extent(1) * args.candidate_block) : mapped;
  // Tokens of a sequence have candidates of their own, but share the keys.
  const int64_t sequences = std::min(tokens, args.keys.table.extent(0));
  const int64_t keys_read = std::min(sequences * mapped, tokens * keys);
  const int64_t candidate_bytes = bytes_of(args.candidates);
  return {.bytes_read = bytes_of(args.rows) + bytes_of(args.q, args.weights) +
                        bytes_of(args.frequencies) + keys_read * args.keys.rows.extent(2) +
                        (reads ? candidate_bytes : 0),
          .bytes_written = bytes_of(args.chosen) + (reads ? 0 : candidate_bytes),
          // Per head a product, then ReLU, weight and sum.
          .flops = tokens * keys * heads * (2 * width + 3) +
                   rotation_flops(tokens * heads, args.frequencies)};
}

Cost cost_of(const EngramHashArgs& args) {
  return {.bytes_read = bytes_of(args.rows) + bytes_of(args.ids, args.image_index) +
                        args.ids.bytes() /* their map entries */ +
                        bytes_of(args.multipliers, args.primes, args.offsets),
          .bytes_written = args.ids.bytes() /* their classes */ + bytes_of(args.table_rows)};
}

Cost cost_of(const EngramGatherArgs& args) {
  const int64_t lookups = args.table_rows.extent(0) * args.table_rows.extent(2);
  return {.bytes_read = lookups * (static_cast<int64_t>(sizeof(int64_t)) + args.codes.extent(1) +
                                   args.scales.extent(1)),
          .bytes_written = bytes_of(args.values),
          .flops = args.values.elements()};
}

Cost cost_of(const EngramMixArgs& args) {
  return {.bytes_read = bytes_of(args.kv, args.q_weight, args.k_weight) +
                        bytes_of(args.image_index) + bytes_of(args.stream),
          .bytes_written = bytes_of(args.stream),
          // Three sums of products (the dot has two more factors), then h + gate * value.
          .flops = 10 * args.stream.elements()};
}

Cost cost_of(const RouteArgs& args) {
  return {.bytes_read = bytes_of(args.x, args.gate) + bytes_of(args.bias, args.bias_image) +
                        bytes_of(args.image_index),
          .bytes_written = bytes_of(args.ids) + bytes_of(args.weights),
          .flops = product_flops(args.x.extent(0), args.gate.extent(0), args.gate.extent(1))};
}

Cost cost_of(const MoeExpertsArgs& args) {
  const int64_t tokens = args.x.extent(0), rows = args.ids.elements();
  const int64_t experts = static_cast<int64_t>(args.experts.size());
  Cost cost{.bytes_read = bytes_of(args.x) + bytes_of(args.ids) + bytes_of(args.weights) +
                          expert_bytes(args.shared),
            .bytes_written = bytes_of(args.y),
            .flops = 2 * tokens * expert_weights(args.shared) + rows * args.x.extent(1)};
  if (experts == 0) return cost;
  cost.bytes_read += std::min(rows, experts) * expert_bytes(args.experts[0]);
  cost.flops += 2 * rows * expert_weights(args.experts[0]);
  return cost;
}

Cost cost_of(const TakeDraftsArgs& args) {
  return {.bytes_read = bytes_of(args.given, args.places) + bytes_of(args.ids),
          .bytes_written = bytes_of(args.ids)};
}

Cost cost_of(const MarkovStepArgs& args) {
  const int64_t sequences = args.drafts.extent(0), vocab = args.embed.extent(0);
  const int64_t rank = args.embed.extent(1);
  const int64_t rows = sequences * rank * static_cast<int64_t>(sizeof(bf16));
  const int64_t logits = sequences * vocab * static_cast<int64_t>(sizeof(float));
  return {.bytes_read = rows + bytes_of(args.head) + logits,
          .bytes_written = rows + logits,
          .flops = product_flops(sequences, vocab, rank) + 2 * sequences * vocab};
}

Cost cost_of(const DraftConfidenceArgs& args) {
  return {.bytes_read = bytes_of(args.x, args.features, args.projection),
          .bytes_written = bytes_of(args.confidence),
          .flops = product_flops(args.x.extent(0), 1, args.projection.extent(1))};
}

Cost cost_of(const ResidualNormArgs& args) {
  const int64_t elements = args.stream.elements();
  const bool added = args.update.present();
  return {.bytes_read = bytes_of(args.update, args.norm) + bytes_of(args.stream),
          .bytes_written = bytes_of(args.x) + (added ? bytes_of(args.stream) : 0),
          .flops = (added ? 5 : 4) * elements};
}

// Two products per pair of patches; of the softmax, a product, a difference, an exponential and a
// sum per score; six operations turn a pair of channels.
Cost cost_of(const ImageAttentionArgs& args) {
  const int64_t tokens = args.o.extent(0), heads = args.o.extent(1), width = args.o.extent(2);
  return {.bytes_read = bytes_of(args.qkv, args.frequencies),
          .bytes_written = bytes_of(args.o),
          .flops = 4 * tokens * tokens * heads * width + 4 * tokens * tokens * heads +
                   6 * tokens * heads * width};
}

Cost cost_of(const GatedUnitArgs& args) {
  return {.bytes_read = bytes_of(args.gate_up),
          .bytes_written = bytes_of(args.h),
          .flops = 5 * args.h.elements()};
}

Cost cost_of(const UnfoldCellsArgs& args) {
  return {.bytes_read = bytes_of(args.x), .bytes_written = bytes_of(args.cells)};
}

Cost cost_of(const GeluArgs& args) {
  return {.bytes_read = bytes_of(args.x),
          .bytes_written = bytes_of(args.x),
          .flops = 5 * args.x.elements()};
}

}  // namespace cachalot
