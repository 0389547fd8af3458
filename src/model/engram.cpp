#include "model/engram.h"

#include "model/queues.h"
#include "ops/part.h"

namespace cachalot {
namespace {

constexpr Part kHash{
    .slug = "ngrams",
    .title = "N-gram hashes",
    .sentence =
        "Maps every token to its class and hashes the n-grams that end at it to rows of "
        "the engram tables, for all engram layers at once.",
    .formula = R"(r = \Big(\bigoplus_{s<n} c_{p-s}\, a_s\Big) \bmod P + o)",
    .dimensions =
        "vocab_size, engram_max_ngram_size, engram_n_heads, (engram_max_ngram_size - 1) "
        "* engram_n_heads, engram_compressed_vocab_size, engram_pad_id, engram_layer_ids.size"};

constexpr Part kEngram{
    .slug = "engram",
    .title = "Engram",
    .sentence =
        "Memory looked up by the last tokens: rows of a table, projected and added to each "
        "copy of the stream as far as the copy's gate lets them.",
    .formula = R"(h_c \leftarrow h_c + g_c\, v)",
    .dimensions = "dim, hc_mult, engram_head_dim, engram_n_heads",
    .account = "engram projections"};

constexpr Part kRows{
    .slug = "table",
    .title = "Engram table",
    .sentence =
        "Fetches one FP8 row per n-gram size and hash head from the layer's table and lays "
        "them side by side in BF16.",
    .formula = R"(e = [T[r_1];\, T[r_2];\, \dots])",
    .dimensions =
        "engram_layer_ids.size, engram_head_dim, (engram_max_ngram_size - 1) * engram_n_heads, "
        "(engram_max_ngram_size - 1) * engram_n_heads * engram_head_dim",
    .account = "engram tables"};

constexpr Part kProjection{
    .slug = "projection",
    .title = "Engram projection",
    .sentence = "Turns the rows into one key per copy of the stream and one value for all.",
    .formula = R"([k_1; \dots; k_m; v] = W_{kv}\, e)",
    .dimensions =
        "(hc_mult + 1) * dim, (engram_max_ngram_size - 1) * engram_n_heads * "
        "engram_head_dim"};

constexpr Part kGate{
    .slug = "gate",
    .title = "Engram gate",
    .sentence =
        "Compares each copy of the stream with its key and adds the value to it, weighted "
        "by how well they agree; nothing is added inside an image span.",
    .formula = R"(g_c = \sigma\big(\pm\sqrt{|s_c|}\big), \quad s_c = \frac{\langle q \odot h_c,\, )"
               R"(k \odot k_c\rangle}{\|h_c\|_{\mathrm{rms}}\, \|k_c\|_{\mathrm{rms}} \sqrt d})",
    .dimensions = "hc_mult, dim, (hc_mult + 1) * dim, norm_eps"};

}  // namespace

template <class Q>
View<int64_t> hash_ngrams(Q& queue, const Context& context) {
  const ModelConfig& config = context.config;
  const int64_t layers = static_cast<int64_t>(config.engram_layer_ids.size());
  const int64_t columns = (config.engram_max_ngram_size - 1) * config.engram_n_heads;
  const View<int64_t> table_rows =
      queue.arena().template allocate<int64_t>({context.tokens(), layers, columns});
  engram_hash(Within(queue, kHash).queue(),
              EngramHashArgs{.rows = context.inputs.rows,
                             .ids = context.inputs.ids,
                             .image_index = context.inputs.image_index,
                             .token_map = context.constants.token_map(),
                             .pad_class = context.constants.pad_class,
                             .multipliers = context.constants.multipliers(),
                             .primes = context.constants.primes(),
                             .offsets = context.constants.offsets(),
                             .classes = context.paged(context.caches.token_classes()),
                             .table_rows = table_rows});
  observe(context.observer, "engram_rows", -1, table_rows);
  return table_rows;
}

template <class Q>
void recall(Q& queue, const Context& context, int64_t layer, View<const int64_t> table_rows,
            View<bf16> stream) {
  const ModelConfig& config = context.config;
  const EngramWeights& weights = *context.weights.layers[static_cast<size_t>(layer)].engram;
  const int64_t n = context.tokens();
  const Within part(queue, kEngram);
  ArenaScope scope(queue.arena());
  const View<bf16> values =
      queue.arena().template allocate<bf16>({n, table_rows.extent(2) * config.engram_head_dim});
  engram_gather(Within(queue, kRows).queue(), EngramGatherArgs{.table_rows = table_rows,
                                                               .layer = config.engram_index(layer),
                                                               .codes = weights.codes,
                                                               .scales = weights.scales,
                                                               .values = values});
  const View<bf16> kv =
      queue.arena().template allocate<bf16>({n, (config.hc_mult + 1) * config.dim});
  linear(Within(queue, kProjection).queue(),
         LinearArgs{.x = values, .weight = weights.wkv, .y = kv});
  engram_mix(Within(queue, kGate).queue(), EngramMixArgs{.kv = kv,
                                                         .q_weight = weights.q_weight,
                                                         .k_weight = weights.k_weight,
                                                         .image_index = context.inputs.image_index,
                                                         .norm_eps = config.norm_eps,
                                                         .stream = stream});
}

#define CACHALOT_INSTANTIATE(Q)                           \
  template View<int64_t> hash_ngrams(Q&, const Context&); \
  template void recall(Q&, const Context&, int64_t, View<const int64_t>, View<bf16>);
CACHALOT_FOR_EACH_QUEUE(CACHALOT_INSTANTIATE)
#undef CACHALOT_INSTANTIATE

}  // namespace cachalot
