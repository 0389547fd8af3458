// The files of the web page, embedded in the program (cmake/WebFiles.cmake; library cachalot_web).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace cachalot {

struct WebFile {
  std::string_view path;          // as requested: "/index.html", "/vendor/katex/katex.min.js"
  std::string_view content_type;  // with its charset
  std::string_view etag;          // quoted; changes with the bytes
  std::span<const uint8_t> bytes;
};

// All lives as long as the program. "/" is "/index.html", "/explore" is "/explore.html"; nullptr:
// there is no such file.
const WebFile* find_web_file(std::string_view path);
std::span<const WebFile> web_files();

// What the page needs and nothing more: its own server, and no script or style inside a document.
// For the header Content-Security-Policy of every file of the page.
inline constexpr std::string_view kWebContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

}  // namespace cachalot
