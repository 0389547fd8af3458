// Reports for people: tables of 100 columns; with floors, how many times its floor a row takes, a
// few more.
#pragma once

#include <string>
#include <vector>

#include "bench/report_json.h"
#include "bench/row.h"

namespace cachalot::bench {

std::string machine_text(const Machine& machine);
std::string table_header(bool with_floors = false);
std::string table_line(const Row& row, bool with_floors = false);

// Old, new and their ratio for the rows both have; more than 5 % is marked, and what only one has
// is counted.
std::string comparison_text(const std::vector<OldRow>& old_rows, const std::vector<Row>& rows);

}  // namespace cachalot::bench
