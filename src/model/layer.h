// One block: attention, then experts, each between a collapse and an expand of the residual stream
// (spec: model, 3).
#pragma once

#include "model/context.h"

namespace cachalot {

template <class Q>
void block(Q& queue, const Context& context, int64_t layer, const Picks& picks,
           const Stream& stream);

}  // namespace cachalot
