// Reports for people: tables of 100 columns; with floors a few more.
#pragma once

#include <string>
#include <vector>

#include "bench/report_json.h"
#include "bench/row.h"

namespace cachalot::bench {

std::string machine_text(const Machine& machine);
// Times alone (of an engine's cycles), what limits a row as well, or also how many times its floor
// it takes.
enum class Columns { times, limits, floors };
std::string table_header(Columns columns);
std::string table_line(const Row& row, Columns columns);

// Old, new and their ratio for the rows both have; more than 5 % is marked, and what only one has
// is named.
std::string comparison_text(const Comparison& comparison, const std::vector<Row>& rows);

}  // namespace cachalot::bench
