// DSpark: small layers that see what the upper backbone layers saw and propose a block of tokens at
// once (spec: model, 10.1).
#pragma once

#include <functional>
#include <span>

#include "model/context.h"

namespace cachalot {

// What the draft stages will see of this layer's input, where it is one of their target layers.
// taps: [tokens, targets, dim], of which one target is written.
template <class Q>
void tap(Q& queue, const Context& context, int64_t layer, const Stream& stream, View<bf16> taps);

// Extends every stage's window by this step's tokens, from the taps ([tokens, targets, dim]). Rows
// that are taken back later are overwritten, as in the backbone's windows.
template <class Q>
void absorb(Q& queue, const Context& context, View<const bf16> taps);

// The ids of a step that checks drafts (shape.takes_drafts), in the caller's arena scope.
template <class Q>
View<const int32_t> ids_with_drafts(Q& queue, const Context& context);

// Chooses the drafts at `place` of the blocks of all the step's sequences, in order: of each the
// logits [vocab], and in `drafts` the best token, which may stay. The next link follows from them.
using DraftChooser = std::function<void(
    int64_t place, std::span<const std::span<const float>> logits, std::span<int32_t> drafts)>;

// The step (shape.draft_block rows per sequence) holds each sequence's anchor, the token chosen for
// the position after its last, and noise tokens. Results are allocated in the caller's arena scope.
// Without a chooser, which reads what the queue computed after every link, drafts are the best
// tokens.
template <class Q>
DraftOutputs propose(Q& queue, const Context& context, const DraftChooser& choose = {});

}  // namespace cachalot
