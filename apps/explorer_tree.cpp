#include "explorer_tree.h"

#include "inspect/explorer_json.h"

namespace cachalot {

Result<std::string> explorer_tree(const std::string& model) { return explorer_json(model); }

}  // namespace cachalot
