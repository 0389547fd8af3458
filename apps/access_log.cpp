#include "access_log.h"

#include <chrono>
#include <cmath>
#include <ctime>

#include "chat/json_value.h"
#include "tokenizer/utf8.h"

namespace cachalot {
namespace {

// 2026-01-31T23:59:59.123Z
std::string timestamp() {
  const auto now = std::chrono::system_clock::now();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", std::string_view(text, length), milliseconds % 1000);
}

// Paths are the client's: nothing in them may look like another line or hide one.
std::string printable(std::string_view text) {
  constexpr size_t kLongest = 256;
  std::string valid, result;
  append_with_replacements(text.substr(0, kLongest), valid);
  for (const char c : valid) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result;
}

std::string json_line(const HttpAccess& access) {
  Json line(Json::Object{
      {"time", Json(timestamp())},
      {"id", Json(access.id)},
      {"peer", Json(access.peer)},
      {"method", Json(printable(access.method))},
      {"path", Json(printable(access.path))},
      {"status", Json::integer(int64_t{access.status})},
      {"complete", Json(access.complete)},
      {"bytes", Json::integer(access.sent)},
      {"seconds", Json(std::round(access.seconds * 1e6) / 1e6)},
  });
  for (const auto& [key, value] : access.notes) line.set(key, Json(value));
  return line.dump() + "\n";
}

}  // namespace

std::string access_line(const HttpAccess& access, LogFormat format) {
  if (format == LogFormat::json) return json_line(access);
  std::string line = fmt::format("{} {} {} {} {} {:.3f}s {}B {}", timestamp(), access.peer,
                                 printable(access.method), printable(access.path), access.status,
                                 access.seconds, access.sent, access.id);
  if (!access.complete) line += " broken-off";
  for (const auto& [key, value] : access.notes) line += fmt::format(" {}={}", key, value);
  return line + "\n";
}

}  // namespace cachalot
