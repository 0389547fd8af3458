#include "config_arguments.h"

#include <algorithm>
#include <sstream>

#include "base/mapped_file.h"
#include "report.h"
#include "usage_error.h"

namespace cachalot {
namespace {

std::string config_path(const std::vector<std::string>& arguments) {
  constexpr std::string_view kName = "--config";
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kName && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].starts_with("--config=")) return arguments[i].substr(kName.size() + 1);
  }
  return {};
}

// Whether one of the option's names is among the arguments.
bool names_option(const std::vector<std::string>& arguments, const CLI::Option& option) {
  return std::ranges::any_of(arguments, [&](const std::string& argument) {
    if (!argument.starts_with("-")) return false;
    const std::string name = argument.substr(0, argument.find('='));
    return option.check_name(name);
  });
}

}  // namespace

std::vector<std::string> with_config(const CLI::App& command, std::vector<std::string> arguments) {
  const std::string path = config_path(arguments);
  if (path.empty()) return arguments;
  const auto text = read_text_file(path);
  if (!text) {
    report("error: --config: {}\n", text.error().message);
    throw CLI::RuntimeError(1);
  }
  std::istringstream lines(*text);
  std::vector<std::string> result;
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(lines)) {
    if (!item.parents.empty() && item.parents != std::vector<std::string>{command.get_name()}) {
      usage_error("{}: expected no section but [{}], found [{}]", path, command.get_name(),
                  fmt::join(item.parents, "."));
    }
    if (item.name == "++" || item.name == "--") continue;  // the edges of a section
    const std::string name = "--" + item.name;
    const CLI::Option* option = command.get_option_no_throw(name);
    if (option != nullptr && names_option(arguments, *option)) continue;
    for (const std::string& value : item.inputs) {
      // The parser would take the next argument instead.
      if (value.empty()) throw CLI::ValidationError(path + ": " + item.name, "must not be empty");
      result.push_back(name + "=" + value);
    }
  }
  result.insert(result.end(), arguments.begin(), arguments.end());
  return result;
}

}  // namespace cachalot
