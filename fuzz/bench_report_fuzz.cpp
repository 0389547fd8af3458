// Reports that bench --compare reads.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bench/report_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)cachalot::bench::parse_report({reinterpret_cast<const char*>(data), size}, "report");
  return 0;
}
