// One line per request, on stderr: who asked for what, how it ended, how long it took. Never what
// was said.
#pragma once

#include <string>

#include "server/http_server.h"

namespace cachalot {

enum class LogFormat { text, json };

std::string access_line(const HttpAccess& access, LogFormat format);

}  // namespace cachalot
