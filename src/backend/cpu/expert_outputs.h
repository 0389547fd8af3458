// Some of the experts of moe_experts, for a caller that adds them up with others.
#pragma once

#include <vector>

#include "backend/cpu/queue.h"

namespace cachalot::cpu {

// outputs[t][i] = y_e (ops/experts.h) of e = ids[t][i] where wanted[e]; the other rows are left as
// they are. The matrices of the other experts, the shared one and y are not used. outputs: [tokens,
// k, dim]
void expert_outputs(Queue& queue, const MoeExpertsArgs& args, const std::vector<bool>& wanted,
                    View<bf16> outputs);

}  // namespace cachalot::cpu
