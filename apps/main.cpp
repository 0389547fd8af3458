// cachalot: one executable, one file per subcommand.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "base/cpu_info.h"
#include "bench_command.h"
#include "config_arguments.h"
#include "fit_command.h"
#include "inspect_command.h"
#include "perplexity_command.h"
#include "preprocess_command.h"
#include "render_command.h"
#include "report.h"
#include "run_command.h"
#include "serve_command.h"
#include "synth_command.h"
#include "tokenize_command.h"
#include "trace_command.h"

namespace cachalot {
namespace {

constexpr int kUsageExit = 2;

void print_version() {
  const auto isa = isa_from_environment();
  if (!isa) {
    report("error: {}\n", isa.error().message);
    throw CLI::RuntimeError(1);
  }
  fmt::print("cachalot {}\ninstruction set: {} (this machine runs up to {})\nbuild: {}, {}\n",
             CACHALOT_VERSION, name_of(*isa), name_of(best_isa()), CACHALOT_BUILD_TYPE,
             CACHALOT_COMPILER);
}

// CLI11 lists beside each option what it excludes and the bounds of its values; the errors say that
// well enough.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(34); }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    if (type.empty()) return "";  // a flag
    const std::string& value = option->get_default_str();
    return " " + type.substr(0, type.find(':')) + (value.empty() ? "" : " (" + value + ")");
  }
};

// An empty value is a mistake, most often of a shell's variable, and must not pass as none. No
// system message is one too; a prompt, a model and an effort have words of their own for it.
void refuse_empty_values(CLI::App& app) {
  constexpr std::array kJudged = {"prompt", "--system", "--model", "--effort"};
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options([](const CLI::Option*) { return true; })) {
      const bool judged =
          std::ranges::any_of(kJudged, [&](const char* name) { return option->check_name(name); });
      if (judged || option->get_items_expected_max() == 0) continue;
      option->check([](const std::string& text) {
        return std::string(text.empty() ? "must not be empty" : "");
      });
    }
  }
}

void add_commands(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", "cachalot " CACHALOT_VERSION, "Show the version");
  add_run_command(app);
  add_serve_command(app);
  add_tokenize_command(app);
  add_render_command(app);
  add_perplexity_command(app);
  add_preprocess_command(app);
  add_synth_command(app);
  add_bench_command(app);
  add_fit_command(app);
  add_inspect_command(app);
  add_trace_command(app);
  app.add_subcommand("version", "Show version, instruction set and build")->callback(print_version);
  refuse_empty_values(app);
}

// What was typed wrong, and where help is.
int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  report("error: {}\n'cachalot{}{} --help' lists what is possible.\n", error.what(),
         chosen.empty() ? "" : " ", chosen.empty() ? "" : chosen.front()->get_name());
  return kUsageExit;
}

// Short options of the parser have one letter; -np is what llama-server calls --parallel.
std::vector<std::string> arguments(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> result(argv + std::min(argc, 1), argv + argc);
  if (!result.empty() && result.front() == "serve") {
    result.erase(result.begin());
    std::ranges::replace(result, std::string("-np"), std::string("--parallel"));
    result = with_config(*app.get_subcommand("serve"), std::move(result));
    result.insert(result.begin(), "serve");
  }
  std::ranges::reverse(result);  // as the parser takes them
  return result;
}

int run(int argc, char** argv) {
  CLI::App app{"Cachalot runs DeepSeek-V4.1 from its released checkpoint.", "cachalot"};
  add_commands(app);
  try {
    app.parse(arguments(app, argc, argv));
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return usage_error(app, error);
  }
  if (app.get_subcommands().empty()) fmt::print("{}", app.help());
  return 0;
}

// A full disk or a closed stdout shows up no earlier than here: an answer that was not written is
// no success.
int with_output_written(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  report("error: stdout cannot be written: {}\n", std::strerror(errno));
  return exit_code == 0 ? 1 : exit_code;
}

}  // namespace
}  // namespace cachalot

int main(int argc, char** argv) {
  try {
    return cachalot::with_output_written(cachalot::run(argc, argv));
  } catch (const std::bad_alloc&) {
    cachalot::report(
        "error: out of memory; a shorter context, fewer sequences or smaller caches need less\n");
  } catch (const std::exception& error) {
    cachalot::report("error: {}\n", error.what());
  }
  return 1;
}
