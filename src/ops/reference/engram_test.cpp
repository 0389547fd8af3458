// The hash vectors of the specification (model, 9.4), with the released multipliers and primes.
#include <gtest/gtest.h>

#include "ops/reference/queue.h"
#include "tensor/buffer.h"

namespace cachalot {
namespace {

constexpr int64_t kLayers = 2, kColumns = 24;

const std::vector<int64_t> kMultipliers = {76632096046245, 4839876093313,  35959672319349,
                                           73987337458391, 67716810739261, 51510806800915,
                                           30921347202721, 82619226485591};
const std::vector<int64_t> kPrimes = {
    16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183,
    16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321,
    16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463,
    16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627,
    16000667, 16000669, 16000693, 16000697, 16000711, 16000729, 16000759, 16000769,
    16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889};

// Rows of position 0 and of position 5 of ids [0, 671, 6102, 294, 8760, 344].
const std::vector<int64_t> kFirstRows = {
    5702652,   24393184,  39183301,  61503783,  78984481,  90144770,  103724983, 121476532,
    131476717, 152385926, 164143652, 191599181, 198145581, 217419202, 238329687, 247482304,
    257520185, 283540304, 288689443, 315264704, 322314652, 348890037, 367865216, 380066193,
    14361964,  29977809,  32716444,  61209771,  67456205,  84275051,  108494439, 120604547,
    132225184, 150270452, 174805952, 178895254, 193207923, 211610196, 226280582, 252505246,
    261362261, 279862797, 301364059, 312864848, 328367036, 349372619, 363873742, 372375971};
const std::vector<int64_t> kLastRows = {
    8434518,   28335418,  33056762,  54845833,  79590735,  82522014,  107990915, 114522034,
    130425857, 150965795, 160866148, 176873966, 204352630, 218104334, 238747352, 249482421,
    265625474, 283863772, 292296123, 304668435, 328974802, 341520388, 359388308, 379106837,
    15511642,  19799350,  44525188,  61239392,  69665586,  94157954,  98489139,  126054713,
    139053356, 149796646, 167594211, 189386395, 202012761, 221347336, 228940866, 253372258,
    257015096, 287916013, 294274728, 315314213, 323264185, 338209388, 366614273, 380659356};

// The classes of those ids (9.1) and the map's identity on them.
const std::vector<int32_t> kClasses = {0, 237, 5095, 251, 7208, 242};

std::vector<int64_t> offsets() {
  std::vector<int64_t> out;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    int64_t sum = 0;
    for (int64_t column = 0; column < kColumns; ++column) {
      out.push_back(sum);
      sum += kPrimes[layer * kColumns + column];
    }
  }
  return out;
}

// Table rows of all tokens, [tokens, layers, columns], computed in steps of these sizes.
std::vector<int64_t> hash(const std::vector<int32_t>& classes, const std::vector<int64_t>& steps,
                          const std::vector<int32_t>& image_index = {}) {
  reference::Queue queue{Arena(0)};
  const Buffer<int64_t> multipliers({kLayers, 4}, kMultipliers),
      primes({kLayers, kColumns}, kPrimes);
  const Buffer<int64_t> table_offsets({kLayers, kColumns}, offsets());
  Buffer<int32_t> map({99092}), history({8, 4, 1});
  for (size_t i = 0; i < map.values().size(); ++i) map.values()[i] = static_cast<int32_t>(i);
  const Buffer<int32_t> table({1, 8}, {7, 6, 5, 4, 3, 2, 1, 0});
  std::vector<int64_t> out;
  int64_t at = 0;
  for (const int64_t count : steps) {
    Buffer<int32_t> positions({count}), slots({count}), first({count}), ids({count}),
        image({count});
    Buffer<int64_t> rows({count, kLayers, kColumns});
    for (int64_t i = 0; i < count; ++i) {
      positions.values()[i] = static_cast<int32_t>(at + i);
      ids.values()[i] = classes[at + i];
      image.values()[i] = image_index.empty() ? -1 : image_index[at + i];
    }
    engram_hash(queue, EngramHashArgs{.rows = {positions.view(), slots.view(), first.view()},
                                      .ids = ids.view(),
                                      .image_index = image.view(),
                                      .token_map = map.view(),
                                      .pad_class = 2,
                                      .multipliers = multipliers.view(),
                                      .primes = primes.view(),
                                      .offsets = table_offsets.view(),
                                      .classes = {history.view(), table.view()},
                                      .table_rows = rows.view()});
    out.insert(out.end(), rows.values().begin(), rows.values().end());
    at += count;
  }
  return out;
}

std::vector<int64_t> rows_of(const std::vector<int64_t>& all, int64_t position) {
  const auto begin = all.begin() + position * kLayers * kColumns;
  return {begin, begin + kLayers * kColumns};
}

TEST(ReferenceEngramHash, ReproducesTheSpecificationsVectors) {
  const std::vector<int64_t> rows = hash(kClasses, {6});
  EXPECT_EQ(rows_of(rows, 0), kFirstRows);
  EXPECT_EQ(rows_of(rows, 5), kLastRows);
}

TEST(ReferenceEngramHash, IsTheSameForEveryCut) {
  std::vector<int32_t> classes;
  for (int32_t i = 0; i < 23; ++i) classes.push_back(3 + 41 * i);
  const std::vector<int64_t> whole = hash(classes, {23});
  for (int64_t cut = 1; cut < 23; ++cut) EXPECT_EQ(hash(classes, {cut, 23 - cut}), whole) << cut;
  EXPECT_EQ(hash(classes, std::vector<int64_t>(23, 1)), whole);
}

TEST(ReferenceEngramHash, StaysExactForTheLargestClass) {
  const std::vector<int64_t> rows = hash(std::vector<int32_t>(4, 99091), {4});
  const int64_t product = int64_t{99091} * kMultipliers[0] ^ int64_t { 99091 } * kMultipliers[1];
  EXPECT_EQ(rows_of(rows, 3)[0], product % kPrimes[0]);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_GE(rows[i], offsets()[i % 48]);
}

// A position behind an image, and one inside it, reads what lies further back as padding.
TEST(ReferenceEngramHash, StopsAtImages) {
  const std::vector<int64_t> rows = hash({10, 11, 12, 13}, {4}, {-1, 0, -1, -1});
  const std::vector<int64_t> padded = hash({2, 2, 12, 13}, {4});
  EXPECT_EQ(rows_of(rows, 2), rows_of(padded, 2));
  EXPECT_EQ(rows_of(rows, 3), rows_of(padded, 3));
  EXPECT_EQ(rows_of(rows, 1), rows_of(padded, 1));
}

TEST(ReferenceEngramGather, ExpandsTheRowsInColumnOrder) {
  reference::Queue queue{Arena(0)};
  Buffer<uint8_t> codes({3, 32}), scales({3, 1}, {127, 128, 0});
  codes.values()[32] = 0x38;  // row 1: 1.0
  codes.values()[64] = 0x40;  // row 2: 2.0
  const Buffer<int64_t> rows({1, 2, 2}, {0, 0, 2, 1});
  Buffer<bf16> values({1, 64});
  engram_gather(queue, EngramGatherArgs{.table_rows = rows.view(),
                                        .layer = 1,
                                        .codes = codes.view(),
                                        .scales = scales.view(),
                                        .values = values.view()});
  EXPECT_EQ(to_float(values.values()[0]), 0x1p-126f);
  EXPECT_EQ(to_float(values.values()[32]), 2.0f);
}

}  // namespace
}  // namespace cachalot
