// The benchmark of a GPU: its limits, then steps of a model with random weights and their parts.
#pragma once

#include "bench/bench.h"

namespace cachalot::bench {

// Where no number of layers is chosen, as many run as fit. Errors: see cuda::find_device and
// BenchModel::made; a step whose logits are not finite; a filter that matches nothing.
Result<Report> run_gpu_bench(const BenchOptions& options, const BenchCallbacks& callbacks);

// The first so many layers of a configuration whose weights take at most `bytes`; at least one.
Result<int64_t> layers_that_fit(const ModelConfig& config, std::optional<int64_t> experts,
                                int64_t bytes);

}  // namespace cachalot::bench
