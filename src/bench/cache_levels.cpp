// Caches as the kernel describes them.
#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "bench/machine.h"

namespace cachalot::bench {
namespace {

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "32K", "16384K", "1M"
int64_t bytes_of(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  const char unit = end < text.data() + text.size() ? *end : ' ';
  return value << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0);
}

}  // namespace

std::vector<CacheLevel> cache_levels() {
  // Each cache once, however many CPUs see it.
  std::map<std::pair<int, std::string>, std::map<std::string, int64_t>> found;
  for (int cpu : available_cpus()) {
    for (int index = 0;; ++index) {
      const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                 "/cache/index" + std::to_string(index) + "/";
      const std::string type = line_of(folder + "type");
      if (type.empty()) break;
      if (type == "Instruction") continue;
      const auto level = static_cast<int>(bytes_of(line_of(folder + "level")));
      found[{level, type}][line_of(folder + "shared_cpu_list")] =
          bytes_of(line_of(folder + "size"));
    }
  }
  std::vector<CacheLevel> levels;
  levels.reserve(found.size());
  for (const auto& [key, caches] : found) {
    levels.push_back({.level = key.first,
                      .type = key.second,
                      .bytes = caches.begin()->second,
                      .count = static_cast<int64_t>(caches.size())});
  }
  return levels;
}

}  // namespace cachalot::bench
