// Tells systemd how far the server is (sd_notify(3); units of Type=notify).
#pragma once

#include <string_view>

namespace cachalot {

// "READY=1", "STOPPING=1". Nothing happens where no service manager listens.
void notify_service_manager(std::string_view state);

}  // namespace cachalot
