// One node of the explorer as a page of text, and what differs between two models.
#pragma once

#include <string>

#include "inspect/explorer.h"

namespace cachalot {

std::string node_text(const Explorer& explorer, const Node& node);

// Configuration keys, totals, parts and tensors.
std::string difference_text(const Explorer& a, const Explorer& b);

}  // namespace cachalot
