#include "bench/report_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/table.h"

namespace cachalot::bench {
namespace {

Row row(std::string name, double seconds) {
  return {.name = std::move(name),
          .shape = "mean of 4 calls",
          .seconds = 1.5 * seconds,
          .best_seconds = seconds,
          .repetitions = 3,
          .bytes = 1e9,
          .flops = 2e9,
          .percent_of_limit = 87.5,
          .limit = "memory",
          .tokens_per_second = 12.5,
          .outside_streaming = 0.25};
}

Report report() {
  Report out;
  out.machine = {.processor = "some processor", .isa = Isa::avx2, .threads = 2};
  out.machine.read_bytes_per_second = 1e10;
  out.machine.peaks = {{"fp32_fma", Isa::avx2, 2e11}};
  out.machine.caches = {{1, "Data", 32768, 2}};
  out.model = "models/nano";
  out.rows = {row("experts/decode/tokens1", 1e-3), row("step/decode/tokens1/ctx0", 1e-2)};
  out.notes = {"a note"};
  return out;
}

TEST(ReportJson, HoldsTheMachineAndEveryRow) {
  const auto json = nlohmann::json::parse(json_of(report()));
  EXPECT_EQ(json["machine"]["read_bytes_per_second"], 1e10);
  EXPECT_EQ(json["machine"]["peaks"][0]["path"], "fp32_fma");
  EXPECT_EQ(json["machine"]["peaks"][0]["isa"], "avx2");
  EXPECT_EQ(json["machine"]["caches"][0]["bytes"], 32768);
  ASSERT_EQ(json["rows"].size(), 2u);
  const auto& first = json["rows"][0];
  EXPECT_EQ(first["name"], "experts/decode/tokens1");
  EXPECT_EQ(first["shape"], "mean of 4 calls");
  EXPECT_EQ(first["seconds"], 1.5e-3);
  EXPECT_EQ(first["best_seconds"], 1e-3);
  EXPECT_EQ(first["bytes"], 1e9);
  EXPECT_EQ(first["flops"], 2e9);
  EXPECT_EQ(first["percent_of_limit"], 87.5);
  EXPECT_EQ(first["limit"], "memory");
  EXPECT_EQ(json["notes"][0], "a note");
}

TEST(ReportJson, HoldsAGpu) {
  Report gpu = report();
  gpu.machine.multiprocessors = 132;
  gpu.machine.copy_bytes_per_second = 4e12;
  gpu.machine.launch_seconds = 5e-7;
  gpu.rows[1].between_operations = 0.05;
  const auto json = nlohmann::json::parse(json_of(gpu));
  EXPECT_EQ(json["machine"]["multiprocessors"], 132);
  EXPECT_EQ(json["machine"]["copy_bytes_per_second"], 4e12);
  EXPECT_EQ(json["machine"]["launch_seconds"], 5e-7);
  EXPECT_FALSE(json["machine"].contains("threads"));
  EXPECT_EQ(json["rows"][1]["between_operations"], 0.05);
  EXPECT_FALSE(json["rows"][0].contains("between_operations"));
}

TEST(ReportJson, SaysHowWeightsAreReadWhereThatWasMeasured) {
  const auto without = nlohmann::json::parse(json_of(report()));
  EXPECT_FALSE(without["machine"].contains("weights_bytes_per_second"));
  EXPECT_FALSE(without["rows"][0].contains("percent_of_weights_limit"));
  Report uneven = report();
  uneven.machine.weights_bytes_per_second = 5e9;
  uneven.rows[0].percent_of_weights_limit = 175;
  const auto json = nlohmann::json::parse(json_of(uneven));
  EXPECT_EQ(json["machine"]["weights_bytes_per_second"], 5e9);
  EXPECT_EQ(json["rows"][0]["percent_of_weights_limit"], 175);
  EXPECT_NE(machine_text(uneven.machine).find("weights, where they lie 5.00 GB/s"),
            std::string::npos);
}

TEST(Table, SaysAnotherShareOfReadingWeightsOnlyWhereItDiffers) {
  Row same = row("experts/decode/tokens1", 1e-3), other = same;
  same.percent_of_weights_limit = 89;
  other.percent_of_weights_limit = 60.4;
  EXPECT_EQ(table_line(same, Columns::limits).find("weights can"), std::string::npos);
  EXPECT_NE(table_line(other, Columns::limits).find(", 60% of what the weights can be read at\n"),
            std::string::npos);
}

TEST(ReportJson, IsReadBackForAComparison) {
  const auto rows = parse_report(json_of(report()), "old.json");
  ASSERT_TRUE(rows.has_value()) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[1].name, "step/decode/tokens1/ctx0");
  EXPECT_EQ((*rows)[1].best_seconds, 1e-2);
}

TEST(ReportJson, SaysWhatIsWrongWithAFile) {
  for (const char* text :
       {"", "{", "[]", "7", "{}", R"({"rows": 3})", R"({"rows": [3]})", R"({"rows": [{}]})",
        R"({"rows": [{"name": "a"}]})", R"({"rows": [{"name": "a", "best_seconds": "1"}]})",
        R"({"rows": [{"name": "a", "best_seconds": 0}]})",
        R"({"rows": [{"name": 1, "best_seconds": 1}]})"}) {
    const auto rows = parse_report(text, "old.json");
    ASSERT_FALSE(rows.has_value()) << text;
    EXPECT_TRUE(rows.error().message.starts_with("old.json: ")) << rows.error().message;
  }
  EXPECT_FALSE(read_report("/nowhere/old.json").has_value());
}

// Any change of a byte gives rows or an error, never a crash.
TEST(ReportJson, SurvivesDamage) {
  const std::string text = json_of(report());
  for (size_t at = 0; at < text.size(); ++at) {
    for (char c : {'\0', '"', '{', '9', '\xff'}) {
      std::string damaged = text;
      damaged[at] = c;
      (void)parse_report(damaged, "old.json");
    }
    (void)parse_report(text.substr(0, at), "old.json");
  }
}

TEST(Table, MarksWhatChangedByMoreThanFivePercent) {
  const std::vector<OldRow> old{{"a", 1e-3}, {"b", 1e-3}, {"c", 1e-3}, {"gone", 1}};
  const std::vector<Row> rows{row("a", 1.04e-3), row("b", 1.2e-3), row("c", 0.5e-3), row("new", 1)};
  const std::string text = comparison_text(compare(old, rows), rows);
  std::istringstream lines(text);
  std::string header, a, b, c, added, gone, last;
  std::getline(lines, header);
  std::getline(lines, a);
  std::getline(lines, b);
  std::getline(lines, c);
  std::getline(lines, added);
  std::getline(lines, gone);
  std::getline(lines, last);
  EXPECT_EQ(added, "new: new");
  EXPECT_EQ(gone, "gone: gone");
  EXPECT_TRUE(a.ends_with("1.040")) << a;
  EXPECT_TRUE(b.ends_with("1.200  slower")) << b;
  EXPECT_TRUE(c.ends_with("0.500  faster")) << c;
  EXPECT_EQ(last, "1 slower, 1 faster by more than 5 %; 1 new, 1 gone");
}

TEST(Table, FitsAHundredColumns) {
  const Row longest = row("sparse_attention.chosen/prefill/tokens2048/ctx128K", 123e-3);
  std::istringstream lines(table_header(Columns::limits) + table_line(longest, Columns::limits) +
                           machine_text(report().machine));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

// An engine's cycles: bytes and operations are not counted, so there is no floor.
TEST(Rows, WithoutAFloorSayNothingOfOne) {
  const Row cycle{.name = "cycle/greedy/answers1",
                  .shape = "3 cycles",
                  .seconds = 2e-3,
                  .best_seconds = 1e-3,
                  .repetitions = 3,
                  .tokens_per_second = 500};
  Report cycles = report();
  cycles.rows = {cycle};
  const auto json = nlohmann::json::parse(json_of(cycles))["rows"][0];
  EXPECT_EQ(json["tokens_per_second"], 500);
  for (const char* absent : {"bytes", "flops", "percent_of_limit", "limit"}) {
    EXPECT_FALSE(json.contains(absent)) << absent;
  }
  const std::string blanks(48 - cycle.name.size(), ' ');
  EXPECT_EQ(table_line(cycle, Columns::times),
            cycle.name + blanks + " 2.00 ms 1.00 ms\n   500 tok/s\n");
  EXPECT_EQ(table_header(Columns::times).find("limit"), std::string::npos);
}

}  // namespace
}  // namespace cachalot::bench
