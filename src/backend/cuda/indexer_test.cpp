// index_select on shapes of the released model, and that no token's choice depends on the others.
#include <cmath>

#include "on_gpu.h"
#include "tensor/block_quantizers.h"

namespace cachalot {
namespace {

constexpr int64_t kHeads = 32, kWidth = 128, kChosen = 512;

struct Case {
  std::vector<SequencePart> parts;
  int64_t ratio = 2;
  CandidateUse use = CandidateUse::none;
  int64_t candidate_blocks = 2048, chosen = kChosen, pages = 24, heads = kHeads, width = kWidth;
  int scales_apart = 0;  // powers of two between the groups of a key or query
  int64_t page_tokens = 256;
};

// A list of candidate blocks as a row that builds one would leave.
void fill_candidates(RandomTensors& random, const IndexSelectArgs& args) {
  for (int64_t t = 0; t < args.rows.tokens(); ++t) {
    const int64_t visible = (args.rows.positions.data[t] + int64_t{1}) / args.ratio;
    std::vector<int32_t> all((visible + args.candidate_block - 1) / args.candidate_block);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    std::shuffle(all.begin(), all.end(), random.engine());
    const size_t most = static_cast<size_t>(args.candidates.extent(1));
    if (all.size() > most) all.resize(most);
    std::sort(all.begin(), all.end());
    std::fill_n(args.candidates.row(t), most, -1);
    std::copy(all.begin(), all.end(), args.candidates.row(t));
  }
}

IndexSelectArgs arguments(RandomTensors& random, const Case& of) {
  int64_t tokens = 0, slots = 1;
  for (const SequencePart& part : of.parts) {
    tokens += part.count;
    slots = std::max<int64_t>(slots, part.slot + 1);
  }
  const PagedRows<uint8_t> keys =
      random.index_keys(slots, of.pages, of.page_tokens / of.ratio, of.width);
  const View<bf16> q = random.bf16s({tokens, of.heads, of.width});
  if (of.scales_apart > 0) {
    std::uniform_int_distribution<int> apart(0, of.scales_apart);
    const int64_t row_bytes = index_key_row_bytes(of.width), groups = of.width / kIndexGroup;
    for (int64_t at = of.width / 2; at < keys.rows.elements(); at += row_bytes) {
      for (int64_t g = 0; g < groups; ++g) {
        keys.rows.data[at + g] =
            static_cast<uint8_t>(keys.rows.data[at + g] - apart(random.engine()));
      }
    }
    for (int64_t i = 0; i < q.elements(); i += kIndexGroup) {
      const float scale = std::ldexp(1.0f, -apart(random.engine()));
      for (int64_t c = 0; c < kIndexGroup; ++c)
        q.data[i + c] = to_bf16(to_float(q.data[i + c]) * scale);
    }
  }
  IndexSelectArgs args{.rows = random.step(of.parts),
                       .ratio = of.ratio,
                       .q = q,
                       .weights = random.bf16s({tokens, of.heads}),
                       .weight_scale = 1 / std::sqrt(static_cast<float>(of.heads * of.width)),
                       .frequencies = random.frequencies(of.width / 4),
                       .keys = {keys.rows, keys.table},
                       .candidate_use = of.use,
                       .chosen = random.tensor<int32_t>({tokens, of.chosen})};
  if (of.use == CandidateUse::none) return args;
  args.candidate_block = 8;
  args.candidates = random.tensor<int32_t>({tokens, of.candidate_blocks});
  if (of.use == CandidateUse::use) fill_candidates(random, args);
  return args;
}

TEST(IndexSelect, AgreesOnReleasedShapes) {
  const std::vector<SequencePart> parts{{.slot = 1, .first = 5000, .count = 3},
                                        {.slot = 0, .first = 6000, .count = 1},
                                        {.slot = 2, .first = 0, .count = 2},
                                        {.slot = 3, .first = 1021, .count = 6}};
  for (const CandidateUse use : {CandidateUse::none, CandidateUse::build, CandidateUse::use}) {
    for (const int64_t ratio : {1, 2}) {
      SCOPED_TRACE(fmt::format("use {}, ratio {}", static_cast<int>(use), ratio));
      RandomTensors random(static_cast<uint32_t>(ratio));
      const IndexSelectArgs args = arguments(
          random,
          {.parts = parts, .ratio = ratio, .use = use, .candidate_blocks = ratio == 1 ? 512 : 200});
      CACHALOT_EXPECT_GPU_AGREES(index_select, args);
    }
  }
}

TEST(IndexSelect, AgreesWhereScalesLieFarApart) {
  for (const CandidateUse use : {CandidateUse::none, CandidateUse::use}) {
    for (const int apart : {2, 5, 7, 11, 14, 40}) {
      SCOPED_TRACE(fmt::format("use {}, apart {}", static_cast<int>(use), apart));
      // A step of one token makes its query elsewhere.
      for (const std::vector<SequencePart>& parts :
           {std::vector<SequencePart>{{.first = 4000, .count = 4}, {.slot = 1, .first = 3000}},
            {{.first = 4000}}}) {
        RandomTensors random(3);
        const IndexSelectArgs args = arguments(
            random, {.parts = parts, .use = use, .candidate_blocks = 100, .scales_apart = apart});
        CACHALOT_EXPECT_GPU_AGREES(index_select, args);
      }
    }
  }
}

// What is scored together then lies in two pages, of which a row's last one may be no page yet.
TEST(IndexSelect, AgreesWherePagesAreShort) {
  for (const CandidateUse use : {CandidateUse::none, CandidateUse::build, CandidateUse::use}) {
    for (const int32_t first : {127, 1150, 4095}) {
      SCOPED_TRACE(fmt::format("use {}, first {}", static_cast<int>(use), first));
      RandomTensors random(7);
      IndexSelectArgs args =
          arguments(random, {.parts = {{.slot = 1, .first = first}, {.first = first, .count = 3}},
                             .use = use,
                             .candidate_blocks = 32,
                             .pages = 40,
                             .page_tokens = 128});
      auto* table = const_cast<int32_t*>(args.keys.table.data);
      for (int64_t slot = 0; slot < args.keys.table.extent(0); ++slot) {
        for (int64_t page = (first + 3) / 128 + 1; page < args.keys.table.extent(1); ++page) {
          table[slot * args.keys.table.extent(1) + page] = -1;
        }
      }
      CACHALOT_EXPECT_GPU_AGREES(index_select, args);
    }
  }
}

// As many scores as the selection has in registers, one more and many more, and just so many as a
// smaller number of them.
TEST(IndexSelect, AgreesWhereRowsAreLong) {
  for (const CandidateUse use : {CandidateUse::none, CandidateUse::build}) {
    for (const int32_t entries : {4096, 16384, 32768, 32769, 40960, 40961, 45000}) {
      SCOPED_TRACE(fmt::format("use {}, {} entries", static_cast<int>(use), entries));
      RandomTensors random(8);
      const IndexSelectArgs args = arguments(random, {.parts = {{.first = entries - 1}},
                                                      .ratio = 1,
                                                      .use = use,
                                                      .candidate_blocks = 600,
                                                      .pages = (entries + 255) / 256});
      CACHALOT_EXPECT_GPU_AGREES(index_select, args);
    }
  }
}

// Far more of them begin with the same bits than a list has room for.
TEST(IndexSelect, AgreesWhereScoresAreAlike) {
  for (const CandidateUse use : {CandidateUse::none, CandidateUse::build}) {
    for (const int32_t entries : {5000, 32769, 45000}) {
      SCOPED_TRACE(fmt::format("use {}, {} entries", static_cast<int>(use), entries));
      RandomTensors random(9);
      const IndexSelectArgs args = arguments(random, {.parts = {{.first = entries - 1}},
                                                      .ratio = 1,
                                                      .use = use,
                                                      .candidate_blocks = 600,
                                                      .pages = (entries + 255) / 256});
      // Nothing is negative or turned: sums of many terms lie close to their mean.
      auto* keys = const_cast<uint8_t*>(args.keys.rows.data);
      const int64_t row_bytes = index_key_row_bytes(kWidth);
      for (int64_t at = 0; at < args.keys.rows.elements(); ++at) {
        if (at % row_bytes < kWidth / 2) keys[at] &= 0x77;
      }
      for (const View<const bf16>& view : {args.q, args.weights}) {
        auto* values = const_cast<bf16*>(view.data);
        for (int64_t i = 0; i < view.elements(); ++i) {
          values[i] = to_bf16(std::abs(to_float(values[i])));
        }
      }
      auto* frequencies = const_cast<float*>(args.frequencies.data);
      std::fill_n(frequencies, args.frequencies.elements(), 0.0f);
      CACHALOT_EXPECT_GPU_AGREES(index_select, args);
    }
  }
}

TEST(IndexSelect, TiesGoToTheLowerEntry) {
  RandomTensors random(4);
  const IndexSelectArgs args = arguments(
      random,
      {.parts = {{.first = 4100, .count = 3}}, .use = CandidateUse::build, .candidate_blocks = 64});
  // Few distinct keys, and queries that score many of them 0.
  const int64_t row_bytes = index_key_row_bytes(kWidth),
                keys = args.keys.rows.elements() / row_bytes;
  auto* bytes = const_cast<uint8_t*>(args.keys.rows.data);
  for (int64_t i = 7; i < keys; ++i)
    std::copy_n(bytes + i % 7 * row_bytes, row_bytes, bytes + i * row_bytes);
  CACHALOT_EXPECT_GPU_AGREES(index_select, args);
}

TEST(IndexSelect, AgreesOnNanoShapes) {
  RandomTensors random(5);
  for (const CandidateUse use : {CandidateUse::none, CandidateUse::build, CandidateUse::use}) {
    const IndexSelectArgs args = arguments(
        random, {.parts = {{.first = 900, .count = 5}, {.slot = 1, .first = 300, .count = 9}},
                 .use = use,
                 .candidate_blocks = 16,
                 .chosen = 64,
                 .pages = 5,
                 .heads = 4,
                 .width = 32});
    CACHALOT_EXPECT_GPU_AGREES(index_select, args);
  }
}

// Rows `first` .. of a step by themselves, in another step.
IndexSelectArgs part_of(RandomTensors& random, const IndexSelectArgs& whole, int64_t first,
                        int64_t count) {
  IndexSelectArgs part = whole;
  const int64_t sequence = whole.rows.first_rows.data[first];
  std::vector<int32_t> first_rows(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start = whole.rows.first_rows.data[first + i];
    first_rows[i] = static_cast<int32_t>(start == sequence ? 0 : start - first);
  }
  part.rows.positions = {whole.rows.positions.data + first, {count}};
  part.rows.slots = {whole.rows.slots.data + first, {count}};
  part.rows.first_rows = random.tensor<int32_t>({count}, first_rows);
  part.q = {whole.q.row(first), {count, whole.q.extent(1), whole.q.extent(2)}};
  part.weights = {whole.weights.row(first), {count, whole.weights.extent(1)}};
  part.chosen = random.tensor<int32_t>({count, whole.chosen.extent(1)});
  if (whole.candidate_use == CandidateUse::build)
    part.candidates = random.tensor<int32_t>({count, whole.candidates.extent(1)});
  if (whole.candidate_use == CandidateUse::use)
    part.candidates = {whole.candidates.row(first), {count, whole.candidates.extent(1)}};
  return part;
}

TEST(IndexSelect, ATokenAloneChoosesAsInAnyBatch) {
  mirrored::Queue queue(gpu_queue());
  for (const CandidateUse use : {CandidateUse::none, CandidateUse::build, CandidateUse::use}) {
    RandomTensors random(6);
    const IndexSelectArgs whole =
        arguments(random, {.parts = {{.first = 3000, .count = 140},
                                     {.slot = 1, .first = 5900, .count = 7},
                                     {.slot = 2, .first = 2047},
                                     {.slot = 3, .first = 600, .count = 30}},
                           .use = use,
                           .candidate_blocks = 128,
                           .chosen = 100});
    index_select(queue, whole);
    for (const auto& [first, count] :
         {std::pair{0, 1}, {139, 1}, {140, 7}, {146, 1}, {3, 64}, {100, 60}, {147, 20}}) {
      SCOPED_TRACE(fmt::format("use {}, rows {} .. {}", static_cast<int>(use), first, count));
      const IndexSelectArgs part = part_of(random, whole, first, count);
      index_select(queue, part);
      EXPECT_TRUE(std::equal(part.chosen.data, part.chosen.data + part.chosen.elements(),
                             whole.chosen.row(first)));
      if (use == CandidateUse::build) {
        EXPECT_TRUE(std::equal(part.candidates.data,
                               part.candidates.data + part.candidates.elements(),
                               whole.candidates.row(first)));
      }
    }
  }
}

}  // namespace
}  // namespace cachalot
