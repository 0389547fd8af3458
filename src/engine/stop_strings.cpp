#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace cachalot {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
  std::stable_sort(stops_.begin(), stops_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

bool StopStrings::could_become_stop(std::string_view text) const {
  return std::any_of(stops_.begin(), stops_.end(),
                     [text](const std::string& stop) { return stop.starts_with(text); });
}

std::string StopStrings::push(std::string_view delta) {
  if (stopped_) return {};
  if (stops_.empty()) return std::string(delta);
  std::string text;
  for (const char byte : delta) {
    held_ += byte;
    for (const std::string& stop : stops_) {
      if (!held_.ends_with(stop)) continue;
      stopped_ = true;
      matched_ = stop;
      text.append(held_, 0, held_.size() - stop.size());
      held_.clear();
      return text;
    }
    size_t settled = 0;
    while (settled < held_.size() && !could_become_stop(std::string_view(held_).substr(settled)))
      ++settled;
    text.append(held_, 0, settled);
    held_.erase(0, settled);
  }
  return text;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace cachalot
