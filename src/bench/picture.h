// What a picture costs: a block of the vision tower and the aligner, operation by operation.
#pragma once

#include <string>
#include <vector>

#include "bench/bench_model.h"
#include "bench/row.h"
#include "bench/step_runner.h"

namespace cachalot::bench {

// Rows OPERATION[.WEIGHT]/picture/tokensN of a square picture; one block stands for all, they are
// alike. Empty for a model without a vision tower.
std::vector<Row> picture_rows(const BenchModel& model, const Machine& machine, ThreadTeam& team,
                              Isa isa, const RepeatOptions& options);

// The names of those rows.
std::vector<std::string> picture_row_names(const BenchModel& model);

}  // namespace cachalot::bench
