// Reports as JSON: to keep, and to compare with later.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/row.h"

namespace cachalot::bench {

// {"version", "machine": {...}, "model", "rows": [{"name", "shape", "seconds", "best_seconds",
// "bytes", "flops", "percent_of_limit", "limit", ...}], "notes": [...]}
// What a comparison needs of a report.
struct OldRow {
  std::string name;
  double best_seconds = 0;
};
// Errors: unreadable, not JSON, not a report; the file's name and what is missing stand in them.
Result<std::vector<OldRow>> read_report(const std::filesystem::path& file);
Result<std::vector<OldRow>> parse_report(std::string_view text, std::string_view name);

// What became of the rows of an earlier report.
struct Comparison {
  std::map<std::string, double> old_seconds;  // of rows that both have
  std::vector<std::string> added, gone;       // names of rows that only one has
};
Comparison compare(const std::vector<OldRow>& old_rows, const std::vector<Row>& rows);

// {"version", "machine": {...}, "model", "rows": [{"name", "shape", "seconds", "best_seconds",
// "bytes", "flops", "percent_of_limit", "limit", ...}], "notes": [...]}. With a comparison rows
// that both have say "old_best_seconds" and "ratio", new by old, and there is a "comparison":
// {"new": [...], "gone": [...]}.
std::string json_of(const Report& report, const Comparison* comparison = nullptr);

}  // namespace cachalot::bench
