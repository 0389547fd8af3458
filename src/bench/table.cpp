#include "bench/table.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

namespace cachalot::bench {
namespace {

// Three digits and a unit.
std::string scaled(double value, double unit, const std::vector<std::string_view>& names) {
  value /= unit;
  size_t index = 0;
  while (index + 1 < names.size() && value >= 999.5) value /= 1000, ++index;
  const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, digits, names[index]);
}

std::string time_text(double seconds) { return scaled(seconds, 1e-9, {"ns", "us", "ms", "s"}); }
std::string bytes_rate(double rate) { return scaled(rate, 1e6, {"MB/s", "GB/s", "TB/s"}); }
std::string flops_rate(double rate) { return scaled(rate, 1e6, {"MFLOP/s", "GFLOP/s", "TFLOP/s"}); }

std::string size_text(int64_t bytes) {
  if (bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

// Less is not worth a word.
constexpr double kNotable = 0.05;

std::string more_of(const Row& row) {
  std::string more;
  if (row.tokens_per_second) more += fmt::format(" {:.4g} tok/s", *row.tokens_per_second);
  if (row.outside_streaming) {
    more += fmt::format("{} {:.0f}% outside weights", more.empty() ? "" : ",",
                        *row.outside_streaming * 100);
  }
  if (row.between_operations) {
    more += fmt::format("{} {:.0f}% between operations", more.empty() ? "" : ",",
                        *row.between_operations * 100);
  }
  if (row.percent_of_weights_limit &&
      std::abs(*row.percent_of_weights_limit / row.percent_of_limit - 1) > kNotable) {
    more += fmt::format("{} {:.0f}% of what the weights can be read at", more.empty() ? "" : ",",
                        *row.percent_of_weights_limit);
  }
  return more;
}

std::string gpu_text(const Machine& machine) {
  std::string text =
      fmt::format("{}, {} multiprocessors\n", machine.processor, machine.multiprocessors);
  const auto add = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<24}{}\n", name, value);
  };
  add("read from memory", bytes_rate(machine.read_bytes_per_second));
  add("copied in memory", bytes_rate(machine.copy_bytes_per_second));
  for (const Peak& peak : machine.peaks) add(peak.path, flops_rate(peak.operations_per_second));
  add("from kernel to kernel", time_text(machine.launch_seconds));
  return text;
}

}  // namespace

std::string machine_text(const Machine& machine) {
  if (machine.multiprocessors > 0) return gpu_text(machine);
  std::string text = fmt::format("{}, {}, {} thread{}\n", machine.processor, name_of(machine.isa),
                                 machine.threads, machine.threads == 1 ? "" : "s");
  text +=
      fmt::format("  {:<24}{}\n", "read from memory", bytes_rate(machine.read_bytes_per_second));
  if (machine.weights_bytes_per_second > 0) {
    text += fmt::format("  {:<24}{}\n", "weights, where they lie",
                        bytes_rate(machine.weights_bytes_per_second));
  }
  for (const Peak& peak : machine.peaks) {
    text += fmt::format(
        "  {:<24}{}{}\n", fmt::format("{} ({})", peak.path, name_of(peak.isa)),
        flops_rate(peak.operations_per_second),
        peak.path == machine.matmul_path && peak.isa == machine.isa ? "  <- matrix products" : "");
  }
  for (const CacheLevel& cache : machine.caches) {
    text += fmt::format("  {:<24}{} x {}\n", fmt::format("L{} {}", cache.level, cache.type),
                        cache.count, size_text(cache.bytes));
  }
  return text;
}

std::string table_header(Columns columns) {
  std::string line = fmt::format("{:<48} {:>7} {:>7}", "row", "median", "best");
  if (columns != Columns::times) {
    line += fmt::format(" {:>7} {:>8} {:>5}{}  limit", "GB/s", "GFLOP/s", "%",
                        columns == Columns::floors ? " floors" : "");
  }
  return line + '\n';
}

std::string table_line(const Row& row, Columns columns) {
  std::string line = fmt::format("{:<48} {:>7} {:>7}", row.name, time_text(row.seconds),
                                 time_text(row.best_seconds));
  if (columns != Columns::times && !row.limit.empty()) {
    const std::string floors =
        columns == Columns::floors ? fmt::format(" {:>6.3g}", 100 / row.percent_of_limit) : "";
    line +=
        fmt::format(" {:>7.4g} {:>8.4g} {:>5.1f}{}  {}", row.bytes / row.best_seconds / 1e9,
                    row.flops / row.best_seconds / 1e9, row.percent_of_limit, floors, row.limit);
  }
  line += '\n';
  const std::string more = more_of(row);
  if (!more.empty()) line += fmt::format("  {}\n", more);
  return line;
}

std::string comparison_text(const Comparison& comparison, const std::vector<Row>& rows) {
  std::string text = fmt::format("{:<50} {:>9} {:>9} {:>7}\n", "row", "old", "new", "new/old");
  int64_t slower = 0, faster = 0;
  for (const Row& row : rows) {
    const auto old = comparison.old_seconds.find(row.name);
    if (old == comparison.old_seconds.end()) continue;
    const double ratio = row.best_seconds / old->second;
    const char* mark = ratio > 1 + kNotable ? "  slower" : ratio < 1 - kNotable ? "  faster" : "";
    slower += ratio > 1 + kNotable;
    faster += ratio < 1 - kNotable;
    text += fmt::format("{:<50} {:>9} {:>9} {:>7.3f}{}\n", row.name, time_text(old->second),
                        time_text(row.best_seconds), ratio, mark);
  }
  for (const std::string& name : comparison.added) text += fmt::format("new: {}\n", name);
  for (const std::string& name : comparison.gone) text += fmt::format("gone: {}\n", name);
  text += fmt::format("{} slower, {} faster by more than 5 %; {} new, {} gone\n", slower, faster,
                      comparison.added.size(), comparison.gone.size());
  return text;
}

}  // namespace cachalot::bench
