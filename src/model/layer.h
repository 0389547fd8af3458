// One block: attention, then experts, each between a collapse and an expand of the residual stream
// (spec: model, 3).
#pragma once

#include "model/context.h"

namespace cachalot {

// A backbone layer or, from n_layers on, a draft stage.
template <class Q>
void block(Q& queue, const Context& context, int64_t layer, const Picks& picks,
           const Stream& stream);

inline void observe_inputs(const Context& context, int64_t layer, const Stream& stream) {
  observe(context.observer, "stream_in", layer, stream.copies);
  observe(context.observer, "pre_in", layer, stream.mix);
}

inline void observe_outputs(const Context& context, int64_t layer, const Stream& stream) {
  observe(context.observer, "stream_out", layer, stream.copies);
  observe(context.observer, "pre_out", layer, stream.mix);
}

}  // namespace cachalot
