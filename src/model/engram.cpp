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
        "the engram tables, for all engram layers, n-gram sizes n and hash heads at once, each "
        "with a prime P of its own. From the sequence's begin or an image's last row backwards the "
        "class of the padding token stands.",
    .formula = R"(r = \Big(\bigoplus_{s<n} c_{p-s}\, a_s\Big) \bmod P + o)",
    .dimensions =
        "token_map: vocab_size, multipliers: engram_layer_ids.size | engram_max_ngram_size, "
        "primes: engram_layer_ids.size | (engram_max_ngram_size - 1) * engram_n_heads, "
        "offsets: engram_layer_ids.size | (engram_max_ngram_size - 1) * engram_n_heads, "
        "table_rows: engram_layer_ids.size | (engram_max_ngram_size - 1) * engram_n_heads, "
        "classes: 'class', -: engram_compressed_vocab_size, -: engram_vocab_size, -: "
        "engram_num_embeddings, "
        "-: engram_pad_id"};

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
        "table_rows: engram_layer_ids.size | (engram_max_ngram_size - 1) * engram_n_heads, "
        "values: (engram_max_ngram_size - 1) * engram_n_heads * engram_head_dim, "
        "-: engram_num_embeddings",
    .account = "engram tables"};

constexpr Part kProjection{
    .slug = "projection",
    .title = "Engram projection",
    .sentence = "Turns the rows into one key per copy of the stream and one value for all.",
    .formula = R"([k_1; \dots; k_m; v] = W_{kv}\, e)",
    .dimensions =
        "x: (engram_max_ngram_size - 1) * engram_n_heads * engram_head_dim, y: (hc_mult + 1) * "
        "dim"};

constexpr Part kGate{
    .slug = "gate",
    .title = "Engram gate",
    .sentence =
        "Compares each copy of the stream with its key and adds the value to it, weighted "
        "by how well they agree; nothing is added inside an image span. Each copy has weights of "
        "its own: q_weight is a, k_weight is b.",
    .formula =
        R"(g_c = \sigma\Big(\mathrm{sign}(s_c) \sqrt{\max(|s_c|, 10^{-6})}\Big), \quad )"
        R"(s_c = \frac{\langle a_c \odot h_c,\, b_c \odot k_c\rangle}{\|h_c\|_{\mathrm{rms}}\, )"
        R"(\|k_c\|_{\mathrm{rms}} \sqrt d}, \quad h_c \leftarrow h_c + g_c\, v)",
    .dimensions = "kv: (hc_mult + 1) * dim, stream: hc_mult | dim, -: norm_eps"};

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
