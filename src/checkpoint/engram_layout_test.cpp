#include "checkpoint/engram_layout.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"

namespace cachalot {
namespace {

const std::filesystem::path kSource = CACHALOT_SOURCE_DIR;

EngramLayout layout_of(const char* folder) {
  const auto config = load_config(kSource / folder);
  CACHALOT_CHECK(config.has_value(), "{}", config.error().message);
  return engram_layout(*config);
}

// The rows of one position, straight from the specification (model, 9.4); no image spans.
std::vector<int64_t> rows_at(const EngramLayout& layout, size_t layer,
                             const std::vector<int64_t>& classes, size_t position, int64_t pad) {
  std::vector<int64_t> rows;
  int64_t hash = 0;
  for (size_t back = 0; back < layout.multipliers[layer].size(); ++back) {
    const int64_t id = back > position ? pad : classes[position - back];
    hash ^= id * layout.multipliers[layer][back];
    if (back == 0) continue;
    for (int64_t prime : layout.primes[layer][back - 1]) {
      rows.push_back(hash % prime + layout.offsets[layer][rows.size()]);
    }
  }
  return rows;
}

TEST(EngramLayout, GivesTheReleasedConstants) {
  const EngramLayout layout = layout_of("tests/data/released");
  using Row = std::vector<int64_t>;
  EXPECT_EQ(layout.multipliers[0],
            (Row{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(layout.multipliers[1],
            (Row{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
  EXPECT_EQ(layout.primes[0][0],
            (Row{16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183}));
  EXPECT_EQ(layout.primes[0][1],
            (Row{16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321}));
  EXPECT_EQ(layout.primes[0][2],
            (Row{16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463}));
  EXPECT_EQ(layout.primes[1][0],
            (Row{16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627}));
  EXPECT_EQ(layout.primes[1][1],
            (Row{16000667, 16000669, 16000693, 16000697, 16000711, 16000729, 16000759, 16000769}));
  EXPECT_EQ(layout.primes[1][2],
            (Row{16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889}));
  EXPECT_EQ(layout.rows, (Row{384006168, 384016682}));
}

TEST(EngramLayout, HashesToTheReleasedRows) {
  const EngramLayout layout = layout_of("tests/data/released");
  // Classes of the ids 0, 671, 6102, 294, 8760, 344 under the released token map.
  const std::vector<int64_t> classes = {0, 237, 5095, 251, 7208, 242};
  const std::vector<int64_t> expected[2][2] = {
      {{5702652,   24393184,  39183301,  61503783,  78984481,  90144770,  103724983, 121476532,
        131476717, 152385926, 164143652, 191599181, 198145581, 217419202, 238329687, 247482304,
        257520185, 283540304, 288689443, 315264704, 322314652, 348890037, 367865216, 380066193},
       {14361964,  29977809,  32716444,  61209771,  67456205,  84275051,  108494439, 120604547,
        132225184, 150270452, 174805952, 178895254, 193207923, 211610196, 226280582, 252505246,
        261362261, 279862797, 301364059, 312864848, 328367036, 349372619, 363873742, 372375971}},
      {{8434518,   28335418,  33056762,  54845833,  79590735,  82522014,  107990915, 114522034,
        130425857, 150965795, 160866148, 176873966, 204352630, 218104334, 238747352, 249482421,
        265625474, 283863772, 292296123, 304668435, 328974802, 341520388, 359388308, 379106837},
       {15511642,  19799350,  44525188,  61239392,  69665586,  94157954,  98489139,  126054713,
        139053356, 149796646, 167594211, 189386395, 202012761, 221347336, 228940866, 253372258,
        257015096, 287916013, 294274728, 315314213, 323264185, 338209388, 366614273, 380659356}}};
  for (size_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(rows_at(layout, layer, classes, 0, 2), expected[0][layer]);
    EXPECT_EQ(rows_at(layout, layer, classes, 5, 2), expected[1][layer]);
  }
}

TEST(EngramLayout, KeepsTheLargestClassBelowTwoToThe63) {
  const EngramLayout layout = layout_of("tests/data/released");
  const std::vector<int64_t> classes(4, 99091);
  for (size_t layer = 0; layer < 2; ++layer) {
    for (int64_t factor : layout.multipliers[layer]) {
      int64_t product = 0;
      EXPECT_FALSE(__builtin_mul_overflow(factor, int64_t{99091}, &product));
    }
    const auto rows = rows_at(layout, layer, classes, 3, 2);
    for (size_t column = 0; column < rows.size(); ++column) {
      EXPECT_GE(rows[column], layout.offsets[layer][column]);
      EXPECT_LT(rows[column],
                column + 1 < rows.size() ? layout.offsets[layer][column + 1] : layout.rows[layer]);
    }
  }
}

TEST(EngramLayout, EqualsNumPyForTheToyModels) {
  const EngramLayout a = layout_of("tests/data/tiny-a");
  using Row = std::vector<int64_t>;
  EXPECT_EQ(a.primes[0], (std::vector<Row>{{503, 509}, {521, 523}, {541, 547}}));
  EXPECT_EQ(a.primes[1], (std::vector<Row>{{557, 563}, {569, 571}, {577, 587}}));
  EXPECT_EQ(a.offsets[1], (Row{0, 557, 1120, 1689, 2260, 2837}));
  EXPECT_EQ(a.multipliers[0],
            (Row{18566326800524775, 1172599026500301, 8712263690633163, 17925558052388815}));
  EXPECT_EQ(a.multipliers[1],
            (Row{6669200759484987, 19784297145356767, 2635491338951491, 17031454172102919}));
  const EngramLayout b = layout_of("tests/data/tiny-b");  // layer 0: seed 0
  EXPECT_EQ(b.multipliers[0], (Row{14364143313908403, 6083968781527203, 923995244314177}));
}

// As many buckets as a configuration may ask for, or half of them: a matter of a second.
TEST(EngramLayout, FindsAHundredThousandPrimes) {
  ModelConfig config;
  config.engram_vocab_size = int64_t{1} << 30;
  config.engram_max_ngram_size = 16;
  config.engram_n_heads = 256;
  config.engram_compressed_vocab_size = 1000;
  for (int64_t layer = 0; layer < 32; ++layer) config.engram_layer_ids.push_back(layer);
  const EngramLayout layout = engram_layout(config);
  int64_t last = config.engram_vocab_size;
  for (const auto& layer : layout.primes) {
    for (const auto& size : layer) {
      for (const int64_t prime : size) {
        ASSERT_GT(prime, last);
        last = prime;
      }
    }
  }
  EXPECT_EQ(layout.rows.size(), 32u);
}

TEST(NumpyIntegers, EqualNumPysDrawsOnBothSidesOf32Bits) {
  struct Case {
    uint64_t seed;
    int64_t bound;
    std::vector<int64_t> draws;
  };
  // numpy.random.default_rng(seed).integers(0, bound, size, dtype=numpy.int64) of NumPy 1.24.
  const Case cases[] = {
      {0, 1000, {850, 636, 511, 269}},
      {10007, 4294967296, {644226611, 3536058432, 2662691893, 223327894, 2352731947}},
      {10007, 4294967295, {644226610, 3536058431, 2662691892, 223327893, 2352731946}},
      {30021,
       3000000000,
       {2666977490, 887214490, 2631936833, 1320241792, 350603646, 2016668315, 209916001}},
      {70049, 4294967297, {3801034713, 3219680832, 3452583857, 319665461}},
      {40978665,
       4611686018427387904,
       {2474629753175592919, 3059338474922984292, 778059823417322037, 2587028733291215217}},
      {5, 9223372036854775807, {7424841456459477715, 7451938487489940729, 4753039369592592095}},
      {9, 1, {0, 0, 0}},
      {1099511627776, 1000003, {922458, 360810, 379604, 628242}},
      {123456,
       3458764513820540933,
       {2201551170570914440, 1330972931020806008, 164102539974915373, 3303994277512919544,
        3133816827236750139, 1580550080225063456}},
      {7,
       3221225472,
       {3043751912, 2013573438, 2203897839, 1862810377, 2498658503, 2685377905, 725443136,
        178879731}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(numpy_integers(c.seed, c.bound, static_cast<int64_t>(c.draws.size())), c.draws)
        << "seed " << c.seed << ", bound " << c.bound;
  }
}

}  // namespace
}  // namespace cachalot
