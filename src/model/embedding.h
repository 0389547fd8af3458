// Token ids, or image embeddings, become the residual stream (spec: model, 3).
#pragma once

#include "model/context.h"

namespace cachalot {

// Every copy the embedding, the mix on copy 0; allocated in the caller's arena scope.
template <class Q>
Stream embed_tokens(Q& queue, const Context& context);

}  // namespace cachalot
