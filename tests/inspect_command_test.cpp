// The real program's inspect command.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "program_test.h"

namespace cachalot {
namespace {

using test::ProgramResult;

class InspectCommand : public test::ProgramTest {
 protected:
  std::string shown(const std::string& arguments) {
    const ProgramResult result = program("inspect " + arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return result.out;
  }
  void expect_shown(const std::string& arguments, const std::string& part) {
    const std::string out = shown(arguments);
    EXPECT_NE(out.find(part), std::string::npos) << arguments << "\n" << out;
  }
};

TEST_F(InspectCommand, PrintsATreeThatFitsAHundredColumns) {
  const std::string out = shown("tests/data/released --depth 0");
  EXPECT_NE(out.find("2 groups of 6 layers: 1 source + 5 reusing"), std::string::npos);
  EXPECT_NE(out.find("\n763,205,315,794 parameters, 510,286,023,000 bytes, 96,085 tensors\nrec"),
            std::string::npos);
  EXPECT_EQ(out.find('\033'), std::string::npos);  // no terminal, no colour
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    // A byte that goes on with a character takes no column.
    const auto columns = std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; });
    EXPECT_LE(columns, 100) << line;
  }
}

TEST_F(InspectCommand, PrintsOnePartAsAPage) {
  const std::string path = "groups-2x6/reusing/attention/output/projection";
  const std::string out = shown("tests/data/released " + path);
  for (const char* part :
       {"Output projection", "x 2 groups x 5 layers", "419,430,400", "[B, T, 8192]",
        "o_groups * o_lora_rank", "[B, T, 5120]", "layers.{layer}.attn.wo_b.weight",
        "src/model/attention.cpp:", "struct LinearArgs", "o_lora_rank = 1024"}) {
    EXPECT_NE(out.find(part), std::string::npos) << part << "\n" << out;
  }
  expect_shown("models/nano drafts/proposal/chain", "model-00003-of-00003.safetensors bytes ");
}

TEST_F(InspectCommand, WritesItsPageAsOneFile) {
  const std::string path = ::testing::TempDir() + "inspect_command_test.html";
  EXPECT_EQ(shown("tests/data/released --html " + path), "");
  std::ifstream file(path, std::ios::binary);
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_LT(page.size(), 3'000'000u);
  EXPECT_NE(page.find("id=\"model-data\">{\"schema\":1"), std::string::npos);
  std::filesystem::remove(path);
  const ProgramResult refused = program("inspect models/nano --html /no/such/folder/page.html");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("--html: /no/such/folder"), std::string::npos) << refused.err;
}

TEST_F(InspectCommand, PrintsTheTreeForProgramsAndDocuments) {
  const auto json = nlohmann::json::parse(shown("models/nano --json"));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["totals"]["reconciled"], true);
  EXPECT_EQ(json["root"]["parameters"]["total"], json["totals"]["parameters"]);
  const auto node = nlohmann::json::parse(shown("models/nano read-out/head --json"));
  EXPECT_EQ(node["operation"], "head");
  expect_shown("models/nano --csv", "backbone/read-out/head,Head,head,1,524288,524288,");
  expect_shown("models/nano --markdown --depth 1", "| &emsp;Backbone: 10 layers |");
}

TEST_F(InspectCommand, FiltersAndTotals) {
  const std::string out = shown("models/nano --filter dspark_markov_rank");
  EXPECT_NE(out.find("Markov chain"), std::string::npos) << out;
  EXPECT_EQ(out.find("Embedding"), std::string::npos) << out;
  expect_shown("tests/data/released --totals", "763,205,315,794      510,286,023,000");
  expect_shown("models/nano --totals", "reconciled with the files' headers");
  expect_shown("models/nano --filter layers.7.attn.wo_b", "Output projection");
  expect_error("inspect models/nano --filter no.such.tensor", 2, "no part of a path");
}

TEST_F(InspectCommand, FitsTheTerminal) {
  for (const int columns : {60, 80, 140}) {
    ::setenv("COLUMNS", std::to_string(columns).c_str(), 1);
    const std::string out = shown("tests/data/released --depth 0");
    ::unsetenv("COLUMNS");
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; }), columns)
          << line;
    }
  }
}

TEST_F(InspectCommand, TellsWhatDiffers) {
  expect_shown("--diff models/nano models/nano", "no difference");
  expect_shown("--diff models/nano tests/data/tiny-a",
               "vocab_size                       2048 -> 512");
}

TEST_F(InspectCommand, SaysWhatIsWrong) {
  expect_error("inspect nothing", 1, "nothing: ");
  expect_error("inspect", 2, "checkpoint folder");
  expect_error("inspect models/nano nowhere", 1, "the nearest:");
  expect_error("inspect models/nano --json --csv", 2, "--csv");
  expect_error("inspect models/nano --context 9999999", 2, "--context: expected 1 to");
  expect_error("inspect tests/data/released --batch 65536 --prefill 16777216 --context 1048576", 2,
               "--batch times --prefill: expected at most");
  expect_error("inspect --diff models/nano", 2, "--diff");
  expect_error("inspect --diff models/nano models/nano --json", 2, "--json");
  expect_error("inspect models/nano --html \"\"", 2, "must not be empty");
  expect_error("inspect models/nano \"\"", 2, "must not be empty");
  expect_error("inspect " + write("config.json", "{}"), 1, "config.json");
}

}  // namespace
}  // namespace cachalot
