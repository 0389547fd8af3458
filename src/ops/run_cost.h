// What one run of an operation moves and computes. Like cost_of (ops/cost.h), but where the traffic
// depends on data, which must be readable and filled: only the experts that were routed to, the
// keys that are visible, the entries that were chosen.
#pragma once

#include "ops/cost.h"

namespace cachalot {

template <class Args>
Cost run_cost_of(const Args& args) {
  return cost_of(args);
}

Cost run_cost_of(const SparseAttentionArgs& args);
Cost run_cost_of(const IndexSelectArgs& args);
Cost run_cost_of(const MoeExpertsArgs& args);

}  // namespace cachalot
