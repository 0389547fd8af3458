// One node of the explorer as a page of text, and what differs between two models.
#pragma once

#include <string>

#include "inspect/explorer.h"

namespace cachalot {

// Lines fit `width` columns where they have blanks to break at.
std::string node_text(const Explorer& explorer, const Node& node, size_t width);

// Configuration keys, totals, parts and tensors.
std::string difference_text(const Explorer& a, const Explorer& b);

}  // namespace cachalot
