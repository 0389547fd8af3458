// A server-sent event that has a name.
#pragma once

#include <string>

#include "chat/json_value.h"

namespace cachalot {

struct ServerEvent {
  std::string name;
  Json data;
};

}  // namespace cachalot
