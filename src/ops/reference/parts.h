// Quantities inside an operation of the reference that are worth looking at by themselves.
#pragma once

#include <vector>

#include "ops/attention.h"
#include "ops/engram.h"
#include "ops/reference/math.h"

namespace cachalot::reference {

// The keys row t attends to, in order: window by position, then the chosen latents.
std::vector<Floats> attended_keys(const SparseAttentionArgs& args, int64_t t);

// exp(sink[h]) / (sum over keys of exp(S) + exp(sink[h])): the attention of row t's head h that
// goes to no key.
float sink_share(const SparseAttentionArgs& args, int64_t t, int64_t h,
                 const std::vector<Floats>& keys);

// How far row t takes the looked up value into copy c of the stream, 0 to 1. `args.stream` as it is
// before the operation.
float engram_gate(const EngramMixArgs& args, int64_t t, int64_t c);

}  // namespace cachalot::reference
