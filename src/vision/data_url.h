// Pictures inside of JSON: `data:` URLs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace cachalot {

bool is_data_url(std::string_view url);

// data:[MIME type][;...];base64,BYTES. The MIME type is not looked at: what the bytes are, they say
// themselves. Spaces and line breaks among the bytes are skipped; padding may be missing. Errors:
// no
// `;base64`; no bytes; a character that is not of base64; more than `max_bytes`.
Result<std::vector<uint8_t>> decode_data_url(std::string_view url, int64_t max_bytes);

// The bytes alone.
Result<std::vector<uint8_t>> decode_base64(std::string_view text, int64_t max_bytes);

}  // namespace cachalot
