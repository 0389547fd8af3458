// The prefill shortcut: a prompt's layers in two parts (spec: model, 11).
//
// The cut is the last KV source. What later tokens read of a prompt in the layers above it are
// windows only, so these layers need no more than the prompt's tail.
//   lower  embedding, the layers below the cut and the cut's compressor, for every token; leaves in
//          the caches what a whole step leaves there, and the cut's input in the stream ring
//   upper  from the ring: the cut's attention and experts and the layers above, for the tail
// Upper rows whose predecessors the upper layers never saw see no window key before the tail: the
// only approximation.
#pragma once

#include "model/context.h"
#include "ops/part.h"

namespace cachalot {

// The part of the model that only such steps run (ops/part.h).
const Part& shortcut_part();

// The last KV source; -1 without one.
int64_t shortcut_cut(const ModelConfig& config);

// Errors: no KV source; an engram layer above the cut, or a selection the cut takes from below it.
Status check_shortcut(const ModelConfig& config);

// Whether upper steps know the inputs of all layers the draft head looks at.
bool shortcut_feeds_drafts(const ModelConfig& config);

// The end of a lower step: keeps the cut's input and extends its compressed rows.
template <class Q>
void finish_lower(Q& queue, const Context& context, const Stream& stream);

// The beginning of an upper step, allocated in the caller's arena scope.
template <class Q>
Stream resume_upper(Q& queue, const Context& context);

}  // namespace cachalot
