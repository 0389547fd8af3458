#include "random_arguments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace cachalot {
namespace {

constexpr int64_t kPageTokens = 16;
constexpr int64_t kPages = kRandomPositions / kPageTokens;
constexpr int64_t kExperts = 10, kChoices = 3;
constexpr int64_t kWindow = 8, kRingRows = 11;
constexpr float kNormEps = 1e-20f;

// Multiples of 32, the largest no power of two.
int64_t width_of(const RandomCase& of) { return std::array{32, 64, 96, 160}[of.variant]; }
int64_t head_dim_of(const RandomCase& of) { return std::array{64, 96, 128, 64}[of.variant]; }
int64_t heads_of(const RandomCase& of) { return std::array{3, 4, 2, 8}[of.variant]; }
int64_t copies_of(const RandomCase& of) { return of.variant % 2 ? 2 : 4; }
int64_t ratio_of(const RandomCase& of) { return std::array{1, 2, 4, 2}[of.variant]; }
int64_t rows_per_page(const RandomCase& of) { return kPageTokens / ratio_of(of); }

// Rows of image_rows or -1: two of three tokens are text.
View<const int32_t> image_index(RandomTensors& random, int64_t tokens) {
  const View<int32_t> out = random.integers({tokens}, -4, 1);
  for (int64_t i = 0; i < tokens; ++i) out.data[i] = std::max(out.data[i], -1);
  return out;
}

// Up to `count` distinct values below `below`, ascending, then -1.
void random_list(RandomTensors& random, int64_t below, int64_t count, int32_t* out) {
  std::vector<int32_t> all(static_cast<size_t>(below));
  for (int64_t i = 0; i < below; ++i) all[i] = static_cast<int32_t>(i);
  std::shuffle(all.begin(), all.end(), random.engine());
  all.resize(static_cast<size_t>(std::min(below, count)));
  std::sort(all.begin(), all.end());
  std::fill_n(out, count, -1);
  std::copy(all.begin(), all.end(), out);
}

int64_t visible(const StepRows& rows, int64_t t, int64_t ratio) {
  return (rows.positions.data[t] + int64_t{1}) / ratio;
}

}  // namespace

int64_t RandomCase::tokens() const {
  int64_t sum = 0;
  for (const SequencePart& part : parts) sum += part.count;
  return sum;
}

std::vector<RandomCase> random_cases() {
  std::vector<RandomCase> out;
  for (int variant = 0; variant < kRandomVariants; ++variant) {
    out.push_back({{{.slot = 1, .first = 63, .count = 1}}, variant});
    out.push_back(
        {{{.slot = 2, .first = 17, .count = 5}, {.slot = 0, .first = 0, .count = 3}}, variant});
    out.push_back({{{.slot = 0, .first = 5, .count = 45}}, variant});
  }
  return out;
}

template <>
EmbedArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = width_of(of), copies = copies_of(of);
  return {.ids = random.integers({tokens}, 0, 49),
          .image_index = image_index(random, tokens),
          .image_rows = random.bf16s({2, dim}),
          .table = random.bf16s({50, dim}),
          .stream = random.tensor<bf16>({tokens, copies, dim}),
          .pre = random.tensor<float>({tokens, copies})};
}

template <>
HyperCollapseArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = width_of(of), m = copies_of(of);
  const int64_t mixes = (2 + m) * m;
  HyperCollapseArgs args{.stream = random.bf16s({tokens, m, dim}),
                         .pre_in = random.floats({tokens, m}, 0.2f, 0.5f),
                         .norm_eps = kNormEps,
                         .hc_eps = 1e-6f,
                         .sinkhorn_iterations = 20,
                         .x = random.tensor<bf16>({tokens, dim})};
  if (of.variant != 2) args.norm = random.bf16s({dim}, 0.1f, 1);
  if (of.variant == 3) return args;
  args.fn = random.floats({mixes, m * dim}, 1 / std::sqrt(static_cast<float>(m * dim)));
  args.base = random.floats({mixes});
  args.scale = random.floats({3}, 0.1f, 1);
  args.pre_out = random.tensor<float>({tokens, m});
  args.post = random.tensor<float>({tokens, m});
  args.comb = random.tensor<float>({tokens, m, m});
  return args;
}

template <>
HyperExpandArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = width_of(of), m = copies_of(of);
  return {.y = random.bf16s({tokens, dim}),
          .post = random.floats({tokens, m}, 0.3f, 1),
          .comb = random.floats({tokens, m, m}, 0.1f, 0.25f),
          .stream = random.bf16s({tokens, m, dim})};
}

template <>
DraftTapArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = width_of(of);
  return {.stream = random.bf16s({tokens, copies_of(of), dim}),
          .target = of.variant % 3,
          .taps = random.bf16s({tokens, 3, dim})};
}

template <>
KeepStreamArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = width_of(of), copies = copies_of(of);
  return {.rows = random.step(of.parts),
          .stream = random.bf16s({tokens, copies, dim}),
          .mix = random.floats({tokens, copies}),
          .kept_copies = random.bf16s({kRandomSlots, kRingRows, copies, dim}),
          .kept_mixes = random.floats({kRandomSlots, kRingRows, copies})};
}

template <>
ResumeStreamArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = width_of(of), copies = copies_of(of);
  return {.rows = random.step(of.parts),
          .kept_copies = random.bf16s({kRandomSlots, kRingRows, copies, dim}),
          .kept_mixes = random.floats({kRandomSlots, kRingRows, copies}),
          .stream = random.tensor<bf16>({tokens, copies, dim}),
          .mix = random.tensor<float>({tokens, copies})};
}

template <>
LinearArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), in = width_of(of), out = 64 + 13 * of.variant;
  LinearArgs args{.x = random.bf16s({tokens, in}), .norm_eps = kNormEps};
  args.weight = of.variant < 2 ? random.fp8_matrix(out, in) : random.bf16_matrix(out, in);
  if (of.variant == 3) {
    args.y_f32 = random.tensor<float>({tokens, out});
    return args;
  }
  args.y = random.tensor<bf16>({tokens, out});
  if (of.variant == 1) args.norm = random.bf16s({out}, 0.1f, 1);
  if (of.variant == 2) args.bias = random.bf16s({out});
  return args;
}

template <>
GroupedLinearArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), in = width_of(of), groups = 2, out = 48;
  return {.x = random.bf16s({tokens, groups, in}),
          .weight = of.variant < 3 ? random.fp8_matrix(groups * out, in)
                                   : random.bf16_matrix(groups * out, in),
          .y = random.tensor<bf16>({tokens, groups, out})};
}

template <>
HeadArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = width_of(of), outputs = std::min<int64_t>(tokens, 3);
  return {.x = random.bf16s({tokens, dim}),
          .rows = random.integers({outputs}, 0, static_cast<int32_t>(tokens - 1)),
          .weight = random.bf16s({101, dim}),
          .logits = random.tensor<float>({outputs, 101})};
}

template <>
PrepareQueryArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), head_dim = head_dim_of(of);
  PrepareQueryArgs args{
      .rows = random.step(of.parts),
      .frequencies = random.frequencies(16),
      .kv = random.bf16s({tokens, head_dim}),
      .window_rows = random.tensor<uint8_t>({tokens, window_row_bytes(head_dim)})};
  if (of.variant != 3) args.q = random.bf16s({tokens, heads_of(of), head_dim});
  return args;
}

template <>
SparseAttentionArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), heads = heads_of(of), head_dim = head_dim_of(of);
  const int64_t row_bytes = window_row_bytes(head_dim), chosen = 6;
  SparseAttentionArgs args{
      .rows = random.step(of.parts),
      .q = random.bf16s({tokens, heads, head_dim}),
      .window_rows = random.window_rows({tokens, row_bytes}, head_dim),
      .ring = random.window_rows({kRandomSlots, kRingRows, row_bytes}, head_dim),
      .window = kWindow,
      .sink = random.floats({heads}),
      .frequencies = random.frequencies(16),
      .scale = 1 / std::sqrt(static_cast<float>(head_dim)),
      .o = random.tensor<bf16>({tokens, heads, head_dim})};
  if (of.variant % 2 == 1) {
    const View<int32_t> starts = random.tensor<int32_t>({tokens});
    for (int64_t t = 0; t < tokens; ++t)
      starts.data[t] = std::max(0, args.rows.start_of(t) - of.variant);
    args.window_starts = starts;
  }
  if (of.variant == 3) return args;
  const View<int32_t> lists = random.tensor<int32_t>({tokens, chosen});
  for (int64_t t = 0; t < tokens; ++t)
    random_list(random, visible(args.rows, t, ratio_of(of)), chosen, lists.row(t));
  args.chosen = lists;
  const PagedRows<uint8_t> latents =
      random.latents(kRandomSlots, kPages, rows_per_page(of), head_dim);
  args.latents = {latents.rows, latents.table};
  return args;
}

template <>
WriteWindowArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t head_dim = head_dim_of(of), row_bytes = window_row_bytes(head_dim);
  return {.rows = random.step(of.parts),
          .window_rows = random.window_rows({of.tokens(), row_bytes}, head_dim),
          .ring = random.window_rows({kRandomSlots, kRingRows, row_bytes}, head_dim)};
}

template <>
CompressKvArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), head_dim = head_dim_of(of), ratio = ratio_of(of);
  CompressKvArgs args{.rows = random.step(of.parts),
                      .ratio = ratio,
                      .kv = random.floats({tokens, head_dim}),
                      .norm = random.bf16s({head_dim}, 0.1f, 1),
                      .norm_eps = kNormEps,
                      .frequencies = random.frequencies(16),
                      .latent = random.tensor<bf16>({tokens, head_dim}),
                      .latents = random.latents(kRandomSlots, kPages, rows_per_page(of), head_dim)};
  if (ratio == 1) return args;
  args.gate = random.floats({tokens, head_dim});
  args.open_rows = random.floats({kRandomSlots, ratio + 4, 2, head_dim});
  return args;
}

template <>
IndexKeysArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), head_dim = head_dim_of(of),
                width = 32 + 32 * (of.variant % 2);
  return {.rows = random.step(of.parts),
          .ratio = ratio_of(of),
          .latent = random.bf16s({tokens, head_dim}),
          .weight = random.bf16_matrix(width, head_dim).values,
          .norm = random.bf16s({width}, 0.1f, 1),
          .norm_eps = kNormEps,
          .frequencies = random.frequencies(8),
          .keys = random.index_keys(kRandomSlots, kPages, rows_per_page(of), width)};
}

template <>
IndexSelectArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), heads = heads_of(of), width = 32 + 32 * (of.variant % 2);
  const int64_t ratio = of.variant == 0 ? 1 : ratio_of(of), blocks = 4, block = 4;
  const PagedRows<uint8_t> keys =
      random.index_keys(kRandomSlots, kPages, kPageTokens / ratio, width);
  IndexSelectArgs args{.rows = random.step(of.parts),
                       .ratio = ratio,
                       .q = random.bf16s({tokens, heads, width}),
                       .weights = random.bf16s({tokens, heads}),
                       .weight_scale = 1 / std::sqrt(static_cast<float>(heads * width)),
                       .frequencies = random.frequencies(8),
                       .keys = {keys.rows, keys.table},
                       .chosen = random.tensor<int32_t>({tokens, 7})};
  if (of.variant == 2) return args;
  args.candidate_use = of.variant == 3 ? CandidateUse::use : CandidateUse::build;
  args.candidate_block = block;
  args.candidates = random.tensor<int32_t>({tokens, blocks});
  if (args.candidate_use == CandidateUse::use)
    for (int64_t t = 0; t < tokens; ++t)
      random_list(random, (visible(args.rows, t, ratio) + block - 1) / block, blocks,
                  args.candidates.row(t));
  return args;
}

template <>
EngramHashArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), layers = 2, largest = 2 + of.variant % 3;
  const int64_t columns = (largest - 1) * 3;
  return {.rows = random.step(of.parts),
          .ids = random.integers({tokens}, 0, 49),
          .image_index = image_index(random, tokens),
          .token_map = random.integers({50}, 0, 30),
          .pad_class = 2,
          .multipliers = random.integers<int64_t>({layers, largest}, 1, int64_t{1} << 57),
          .primes = random.integers<int64_t>({layers, columns}, 1000, 2000),
          .offsets = random.integers<int64_t>({layers, columns}, 0, 10000),
          .classes = {random.integers({kRandomSlots * kPages, kPageTokens, 1}, -1, 30),
                      random.page_table(kRandomSlots, kPages)},
          .table_rows = random.tensor<int64_t>({tokens, layers, columns})};
}

template <>
EngramGatherArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), columns = 6, width = width_of(of), table = 70;
  const View<int32_t> exponents = random.integers({table, width / kScaleBlock}, 0, 140);
  const View<uint8_t> scales = random.tensor<uint8_t>(exponents.shape);
  std::copy_n(exponents.data, exponents.elements(), scales.data);
  return {.table_rows = random.integers<int64_t>({tokens, 2, columns}, 0, table - 1),
          .layer = of.variant % 2,
          .codes = random.e4m3_codes({table, width}),
          .scales = scales,
          .values = random.tensor<bf16>({tokens, columns * width})};
}

template <>
EngramMixArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), copies = copies_of(of), dim = width_of(of);
  return {.kv = random.bf16s({tokens, (copies + 1) * dim}),
          .q_weight = random.bf16s({copies, dim}, 0.2f, 1),
          .k_weight = random.bf16s({copies, dim}, 0.2f, 1),
          .image_index = image_index(random, tokens),
          .norm_eps = kNormEps,
          .stream = random.bf16s({tokens, copies, dim})};
}

template <>
RouteArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = width_of(of), k = of.variant == 3 ? 1 : kChoices;
  RouteArgs args{.x = random.bf16s({tokens, dim}),
                 .gate = random.bf16_matrix(kExperts, dim).values,
                 .bias = random.floats({kExperts}, 0.1f),
                 .image_index = image_index(random, tokens),
                 .route_scale = 1.5f,
                 .ids = random.tensor<int32_t>({tokens, k}),
                 .weights = random.tensor<float>({tokens, k})};
  if (of.variant != 1) args.bias_image = random.floats({kExperts});
  return args;
}

template <>
MoeExpertsArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = 32 + width_of(of), width = width_of(of);
  const View<int32_t> ids = random.tensor<int32_t>({tokens, kChoices});
  for (int64_t t = 0; t < tokens; ++t) {
    random_list(random, kExperts, kChoices, ids.row(t));
    std::shuffle(ids.row(t), ids.row(t) + kChoices, random.engine());
  }
  const View<ExpertMatrices> experts = random.tensor<ExpertMatrices>({kExperts});
  for (int64_t e = 0; e < kExperts; ++e)
    experts.data[e] = {.w1 = random.fp4_matrix(width, dim),
                       .w2 = random.fp4_matrix(dim, width),
                       .w3 = random.fp4_matrix(width, dim)};
  return {.x = random.bf16s({tokens, dim}),
          .ids = ids,
          .weights = random.floats({tokens, kChoices}, 0.1f, 0.5f),
          .experts = {experts.data, static_cast<size_t>(kExperts)},
          .shared = {.w1 = random.fp8_matrix(width, dim),
                     .w2 = random.fp8_matrix(dim, width),
                     .w3 = random.fp8_matrix(width, dim)},
          .limit = of.variant % 2 ? 10.0f : 0.0f,
          .input = of.variant == 2 ? ExpertInput::int8 : ExpertInput::fp8,
          .y = random.tensor<bf16>({tokens, dim})};
}

// Rows that mean nothing among others: the best of few different values, so that equal ones meet.
template <>
BestTokensArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t rows = of.tokens(), vocab = of.variant < 2 ? 300 : 9001;
  const View<int32_t> few = random.integers({rows, vocab}, -40, of.variant % 2 == 0 ? 40 : 3000);
  const View<float> logits = random.tensor<float>({rows, vocab});
  for (int64_t i = 0; i < logits.elements(); ++i) {
    logits.data[i] = static_cast<float>(few.data[i]) / 4;
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t row = 0; row < rows; ++row) {
    float* values = logits.row(row);
    const int64_t at = (row * 7 + 3) % vocab;
    if (row % 8 == 1) values[at] = kInfinity;
    if (row % 8 == 2) values[at] = std::numeric_limits<float>::quiet_NaN();
    if (row % 8 == 3) std::fill_n(values, vocab, -kInfinity);
    if (row % 8 == 4) std::fill_n(values, vocab - 1, -kInfinity);
    if (row % 8 == 5) values[at] = -kInfinity;
  }
  return {.logits = logits, .best = random.tensor<int32_t>({rows})};
}

template <>
TakeDraftsArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), drafts = 1 + of.variant * 5;
  return {.given = random.integers({tokens}, 0, 1000),
          .places = random.integers({tokens}, -1, static_cast<int32_t>(drafts) - 1),
          .drafts = random.integers({drafts}, 1001, 2000),
          .ids = random.tensor<int32_t>({tokens})};
}

template <>
MarkovStepArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t sequences = 1 + of.tokens() % 4, block = 5, rank = width_of(of), vocab = 300;
  return {.step = of.variant,
          .ids = random.integers({sequences * block}, 0, static_cast<int32_t>(vocab - 1)),
          .embed = random.bf16s({vocab, rank}),
          .head = random.bf16s({vocab, rank}),
          .chain = random.integers({sequences, block + 1}, 0, static_cast<int32_t>(vocab - 1)),
          .features = random.bf16s({sequences * block, rank}),
          .logits = random.floats({sequences * block, vocab}),
          .drafts = random.integers({sequences, block}, 0, static_cast<int32_t>(vocab - 1))};
}

template <>
DraftConfidenceArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t rows = of.tokens(), dim = width_of(of), rank = 32;
  return {.x = random.bf16s({rows, dim}),
          .features = random.bf16s({rows, rank}),
          .projection = random.bf16s({1, dim + rank}),
          .confidence = random.tensor<float>({rows})};
}

template <>
ResidualNormArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = width_of(of);
  ResidualNormArgs args{.norm = random.bf16s({dim}, 0.1f, 1),
                        .norm_eps = 1e-6f,
                        .stream = random.bf16s({tokens, dim}),
                        .x = random.tensor<bf16>({tokens, dim})};
  if (of.variant != 2) args.update = random.bf16s({tokens, dim});
  return args;
}

namespace {

// Patches of a row: a divisor of `tokens`.
int64_t columns_of(int64_t tokens) { return tokens % 5 == 0 ? 5 : tokens % 4 == 0 ? 4 : 1; }

}  // namespace

template <>
ImageAttentionArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), heads = heads_of(of);
  const int64_t head_dim = std::array{64, 16, 36, 96}[of.variant];
  return {.qkv = random.bf16s({tokens, 3, heads, head_dim}),
          .columns = columns_of(tokens),
          .frequencies = random.frequencies(head_dim / 4),
          .scale = 1 / std::sqrt(static_cast<float>(head_dim)),
          .o = random.tensor<bf16>({tokens, heads, head_dim})};
}

template <>
GatedUnitArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), width = width_of(of) + of.variant;
  return {.gate_up = random.bf16s({tokens, 2 * width}), .h = random.tensor<bf16>({tokens, width})};
}

template <>
UnfoldCellsArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  const int64_t tokens = of.tokens(), dim = width_of(of), ratio = 1 + of.variant;
  const int64_t columns = columns_of(tokens), rows = tokens / columns;
  const int64_t cells = (rows + ratio - 1) / ratio * ((columns + ratio - 1) / ratio);
  return {.x = random.bf16s({tokens, dim}),
          .columns = columns,
          .ratio = ratio,
          .cells = random.tensor<bf16>({cells, dim * ratio * ratio})};
}

template <>
GeluArgs random_arguments(RandomTensors& random, const RandomCase& of) {
  return {.x = random.bf16s({of.tokens(), width_of(of) + of.variant})};
}

}  // namespace cachalot
