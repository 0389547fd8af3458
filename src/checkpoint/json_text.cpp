#include "checkpoint/json_text.h"

#include <set>
#include <string>
#include <vector>

namespace cachalot {
namespace {

constexpr int kMaxDepth = 32;

}  // namespace

std::string json_problem(const nlohmann::json::exception& error) {
  const std::string_view message = error.what();
  const size_t end = message.starts_with('[') ? message.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? message : message.substr(end + 2));
}

Result<nlohmann::json> parse_json_strictly(std::string_view text) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;
  std::string problem;
  const auto watch = [&](int depth, Event event, nlohmann::json& value) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second &&
        problem.empty()) {
      problem = fmt::format("key {} is given twice", value.dump(-1, ' ', true));
    }
    if (depth > kMaxDepth && problem.empty()) {
      problem = fmt::format("nested deeper than {} levels", kMaxDepth);
    }
    // What lies under a refused depth is dropped, so that no tree of that depth is ever built.
    return depth <= kMaxDepth;
  };
  try {
    nlohmann::json document = nlohmann::json::parse(text, watch);
    if (!problem.empty()) return fail("{}", problem);
    return document;
  } catch (const nlohmann::json::exception& error) {
    return fail("not valid JSON: {}", json_problem(error));
  }
}

}  // namespace cachalot
