// Reports as JSON: to keep, and to compare with later.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/row.h"

namespace cachalot::bench {

// {"version", "machine": {...}, "model", "rows": [{"name", "shape", "seconds", "best_seconds",
// "bytes", "flops", "percent_of_limit", "limit", ...}], "notes": [...]}
std::string json_of(const Report& report);

// What a comparison needs of a report.
struct OldRow {
  std::string name;
  double best_seconds = 0;
};
// Errors: unreadable, not JSON, not a report; the file's name and what is missing stand in them.
Result<std::vector<OldRow>> read_report(const std::filesystem::path& file);
Result<std::vector<OldRow>> parse_report(std::string_view text, std::string_view name);

}  // namespace cachalot::bench
