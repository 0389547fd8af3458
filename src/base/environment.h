// Every environment variable the program reads, and the only place that reads one.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace cachalot::environment {

inline std::optional<std::string> value(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  return text;
}

// CACHALOT_CPU_ISA: forces an instruction set (base/cpu_info.h).
inline std::optional<std::string> cpu_isa() { return value("CACHALOT_CPU_ISA"); }

// NO_COLOR (no-color.org): no escape sequences on terminals.
inline bool no_color() { return value("NO_COLOR").has_value(); }

// TERM: whether a terminal understands escape sequences at all.
inline bool plain_terminal() { return value("TERM").value_or("dumb") == "dumb"; }

// COLUMNS: how wide a terminal is, where a shell says so; not checked.
inline std::optional<std::string> columns() { return value("COLUMNS"); }

// NOTIFY_SOCKET (sd_notify(3)): where the service manager hears that the server is ready.
inline std::optional<std::string> notify_socket() { return value("NOTIFY_SOCKET"); }

}  // namespace cachalot::environment
