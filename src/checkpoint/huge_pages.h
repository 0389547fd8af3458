// A checkpoint's weights in huge pages.
#pragma once

#include <functional>

#include "checkpoint/checkpoint.h"

namespace cachalot {

// Reads all tensors but the engram tables, of which a token reads a few rows, into huge pages
// (base/memory_placement.h: move_to_huge_pages). Before anything else uses the checkpoint.
// `progress` is called with the bytes done and to do. Errors: less memory than they take; the
// system grants no huge pages.
Status use_huge_pages(const Checkpoint& checkpoint,
                      const std::function<void(int64_t done, int64_t total)>& progress = {});

}  // namespace cachalot
