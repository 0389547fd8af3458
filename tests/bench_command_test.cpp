// The real program's bench command on the model that comes with the project.
#include <nlohmann/json.hpp>

#include "program_test.h"

namespace cachalot {
namespace {

// One step of one operation, as quick as it gets.
constexpr const char* kQuick =
    "bench --phases decode --tokens 1 --contexts 0 --repeat 2 --threads 2 --filter experts";

using test::ProgramResult;

class BenchCommand : public test::ProgramTest {
 protected:
  void expect_error(const std::string& arguments, int exit_code, const std::string& part) {
    ProgramTest::expect_error("bench " + arguments, exit_code, part);
  }
};

TEST_F(BenchCommand, PrintsATableOfTheRowsAskedFor) {
  const ProgramResult result = program(kQuick);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("read from memory"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("experts/decode/tokens1 "), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("step/"), std::string::npos) << result.out;
}

TEST_F(BenchCommand, WritesJsonThatItComparesWithLater) {
  const ProgramResult first = program(std::string(kQuick) + " --json");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto json = nlohmann::json::parse(first.out);
  EXPECT_GT(json["machine"]["read_bytes_per_second"], 0);
  ASSERT_EQ(json["rows"].size(), 1u);
  for (const char* field : {"seconds", "bytes", "flops", "percent_of_limit"}) {
    EXPECT_GT(json["rows"][0][field], 0) << field;
  }
  EXPECT_NE(json["rows"][0]["shape"].get<std::string>().find("x [1, 256]"), std::string::npos);

  const std::string file = write("old.json", first.out);
  const ProgramResult second = program(std::string(kQuick) + " --compare " + file);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(second.out.find("new/old"), std::string::npos) << second.out;
  EXPECT_NE(second.out.find("0 new, 0 gone"), std::string::npos) << second.out;
  const std::string other =
      write("other.json", R"({"rows": [{"name": "before/decode/tokens1", "best_seconds": 1}]})");
  const auto compare_with = [&](const std::string& old) {
    return nlohmann::json::parse(program(std::string(kQuick) + " --json --compare " + old).out);
  };
  const auto same = compare_with(file);
  EXPECT_EQ(same["rows"][0]["old_best_seconds"], json["rows"][0]["best_seconds"]);
  EXPECT_GT(same["rows"][0]["ratio"], 0);
  EXPECT_TRUE(same["comparison"]["gone"].empty());
  const auto apart = compare_with(other);
  EXPECT_EQ(apart["comparison"]["gone"][0], "before/decode/tokens1");
  EXPECT_EQ(apart["comparison"]["new"][0], json["rows"][0]["name"]);
}

TEST_F(BenchCommand, ShowsAnEnginesCycles) {
  const ProgramResult result = program("bench --cycles --repeat 2 --threads 2 --filter answers1");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("cycle/greedy/answers1 "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("cycle/drafts/answers1 "), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("sampled"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("cycles of an engine: cpu, "), std::string::npos) << result.err;
}

TEST_F(BenchCommand, RejectsBadOptionsBeforeAnythingRuns) {
  expect_error("--tokens 0", 2, "--tokens: expected 1 to");
  expect_error("--contexts 2M", 2, "--contexts: expected at most 1M for this model, found 2M");
  expect_error("--tokens 2M", 2, "--tokens: expected at most 1M for this model, found 2M");
  expect_error("--phases decode --tokens 1M --contexts 1M --layers 10", 2,
               "decode/tokens1048576/ctx1M left out: it takes ");
  expect_error("--contexts many", 2, "--contexts: expected numbers like 1,16,4K,1M");
  expect_error("--phases encode", 2, "--phases: expected decode, prefill");
  expect_error("--isa pentium", 2, "--isa: expected generic");
  expect_error("--layers 11", 2, "--layers: this model has 1 to 10, found 11");
  expect_error("--repeat 0", 2, "--repeat");
  expect_error("--processor-time", 2, "--processor-time: expected --threads 1");
  expect_error("--experts 4", 2, "--experts: expected --device cuda with it");
  for (const char* option : {"--isa avx2", "--threads 2", "--processor-time"}) {
    const std::string name = std::string(option).substr(0, std::string(option).find(' '));
    expect_error("--device cuda " + std::string(option), 2, name + ": expected --device cpu");
  }
  expect_error("--gpu-memory 10GB", 2, "--gpu-memory: expected --device cuda --cycles with it");
  expect_error("--device cuda --experts-on stream", 2,
               "--experts-on: expected --device cuda --cyc");
  for (const char* option : {"--layers 2", "--phases decode", "--tokens 4", "--contexts 1K"}) {
    const std::string name = std::string(option).substr(0, std::string(option).find(' '));
    expect_error("--cycles " + std::string(option), 2, name + ": expected no --cycles with it");
  }
  for (const char* mode : {"", "--cycles "}) {
    const ProgramResult nothing = program(
        "bench " + std::string(mode) + (*mode ? "--filter nonsense" : "--phases draft --layers 1"));
    EXPECT_EQ(nothing.exit_code, 2);
    EXPECT_EQ(nothing.out.find("read from memory"), std::string::npos) << nothing.out;
  }
  for (const char* filter : {"nonsense", "'nonsense/decode/*'", "experts/picture"}) {
    const ProgramResult nothing = program("bench --filter " + std::string(filter));
    EXPECT_EQ(nothing.exit_code, 2);
    EXPECT_EQ(nothing.out.find("read from memory"), std::string::npos) << nothing.out;
    EXPECT_NE(nothing.err.find("--filter: no row matches"), std::string::npos) << nothing.err;
  }
  expect_error("--filter 'cycle/*'", 2, "--filter: expected --cycles with it");
  expect_error("-m /nowhere --cycles", 1, "/nowhere: expected a model folder");
  expect_error("-m /nowhere", 1, "/nowhere: expected a model folder");
  expect_error("--compare /nowhere/old.json", 1, "/nowhere/old.json");
  expect_error("--compare " + write("bad.json", "{\"rows\": 3}"), 1, "found no list of rows");
}

}  // namespace
}  // namespace cachalot
