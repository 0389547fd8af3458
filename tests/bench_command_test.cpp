// The real program's bench command on the model that comes with the project.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace cachalot {
namespace {

namespace fs = std::filesystem;

// One step of one operation, as quick as it gets.
constexpr const char* kQuick =
    "bench --phases decode --tokens 1 --contexts 0 --repeat 2 --threads 2 --filter experts";

struct ProgramResult {
  int exit_code = -1;
  std::string out, err;
};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class BenchCommand : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/cachalot-bench-XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

  ProgramResult program(const std::string& arguments) {
    const std::string out = (folder_ / "stdout").string(), err = (folder_ / "stderr").string();
    const int status =
        std::system((std::string("cd " CACHALOT_SOURCE_DIR " && " CACHALOT_PROGRAM " ") +
                     arguments + " </dev/null >" + out + " 2>" + err)
                        .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  }

  void expect_error(const std::string& arguments, int exit_code, const std::string& part) {
    const ProgramResult result = program("bench " + arguments);
    EXPECT_EQ(result.exit_code, exit_code) << arguments << "\n" << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << arguments << "\n" << result.err;
    EXPECT_EQ(result.out, "") << arguments;
  }

  fs::path folder_;
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
}

TEST_F(BenchCommand, RejectsBadOptionsBeforeAnythingRuns) {
  expect_error("--tokens 0", 2, "--tokens: expected 1 to");
  expect_error("--contexts many", 2, "--contexts: expected numbers like 1,16,4K,1M");
  expect_error("--phases encode", 2, "--phases: expected decode, prefill");
  expect_error("--isa pentium", 2, "--isa: expected generic");
  expect_error("--layers 11", 2, "--layers: this model has 1 to 10, found 11");
  expect_error("--repeat 0", 2, "--repeat");
  expect_error("--processor-time", 2, "--processor-time: expected --threads 1");
  expect_error("-m /nowhere", 1, "/nowhere: expected a model folder");
  expect_error("--compare /nowhere/old.json", 1, "/nowhere/old.json");
  expect_error("--compare " + write("bad.json", "{\"rows\": 3}"), 1, "found no list of rows");
}

}  // namespace
}  // namespace cachalot
