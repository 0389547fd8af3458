// The tree that the explorer's page shows, for the server. Apart from the server's own headers:
// the operations' Role and the chat's have one name.
#pragma once

#include <string>

#include "base/result.h"

namespace cachalot {

// JSON. Errors: as explorer_json() says.
Result<std::string> explorer_tree(const std::string& model);

}  // namespace cachalot
