// Engram: memory that n-grams of the text look up (spec: model, 9).
#pragma once

#include "model/context.h"

namespace cachalot {

// Hashes every n-gram ending in this step; the rows depend on token ids alone, so they are known
// before the first layer runs. Returns [tokens, engram layers, columns], allocated in the caller's
// scope.
template <class Q>
View<int64_t> hash_ngrams(Q& queue, const Context& context);

// Adds the memory of an engram layer to the stream, before the layer's block.
template <class Q>
void recall(Q& queue, const Context& context, int64_t layer, View<const int64_t> table_rows,
            View<bf16> stream);

}  // namespace cachalot
