// The explorer's tree as JSON (docs/explorer.md lists the fields).
#pragma once

#include <string>

#include "base/result.h"
#include "inspect/explorer.h"

namespace cachalot {

std::string explorer_json(const Explorer& explorer);

// One node with what is below it.
std::string node_json(const Explorer& explorer, const Node& node);

// The same from a path. Errors: as explore() says.
Result<std::string> explorer_json(const std::filesystem::path& path,
                                  const ExplorerOptions& options = {});

}  // namespace cachalot
