// DSpark: small layers that see what the upper backbone layers saw and propose a block of tokens at
// once (spec: model, 10.1).
#pragma once

#include "model/context.h"

namespace cachalot {

// Extends every stage's window by this step's tokens, from the taps ([tokens, targets, dim]). Rows
// that are taken back later are overwritten, as in the backbone's windows.
template <class Q>
void absorb(Q& queue, const Context& context, View<const bf16> taps);

// The step (shape.draft_block rows per sequence) holds each sequence's anchor, the token chosen for
// the position after its last, and noise tokens. Results are allocated in the caller's arena scope.
template <class Q>
DraftOutputs propose(Q& queue, const Context& context);

}  // namespace cachalot
