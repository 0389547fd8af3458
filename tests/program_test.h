// Runs the real program, as a person would in a shell, in the project's root.
#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace cachalot::test {

struct ProgramResult {
  int exit_code = -1;
  std::string out, err;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A folder of its own for every test.
class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "cachalot-program-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

  // `arguments` as a shell reads them.
  ProgramResult program(const std::string& arguments, const std::string& input = "") {
    const std::string in = write("stdin", input);
    const std::string out = (folder_ / "stdout").string(), err = (folder_ / "stderr").string();
    const int status =
        std::system((std::string("cd " CACHALOT_SOURCE_DIR " && " CACHALOT_PROGRAM " ") +
                     arguments + " <" + in + " >" + out + " 2>" + err)
                        .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  }

  // All that a terminal shows while these lines are typed.
  std::string on_terminal(const std::string& arguments, const std::string& typed) {
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child == 0) {
      const std::string command = "cd " CACHALOT_SOURCE_DIR " && " CACHALOT_PROGRAM " " + arguments;
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    if (child < 0) return "no terminal";
    EXPECT_EQ(::write(terminal, typed.data(), typed.size()), std::ssize(typed));
    std::string shown;
    char buffer[4096];
    // Fails when the program has gone.
    for (ssize_t count; (count = ::read(terminal, buffer, sizeof buffer)) > 0;) {
      shown.append(buffer, static_cast<size_t>(count));
    }
    ::waitpid(child, nullptr, 0);
    ::close(terminal);
    return shown;
  }

  void expect_error(const std::string& arguments, int exit_code, const std::string& part,
                    const std::string& input = "") {
    const ProgramResult result = program(arguments, input);
    EXPECT_EQ(result.exit_code, exit_code) << arguments << "\n" << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << arguments << "\n" << result.err;
    EXPECT_EQ(result.out, "") << arguments;
  }

  std::filesystem::path folder_;
};

}  // namespace cachalot::test
