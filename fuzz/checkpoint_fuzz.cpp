// Foreign bytes as a shard, as an index and as a configuration: refused or read, never a crash.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/tensor_names.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cachalot;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto header = read_safetensors_header(std::as_bytes(std::span(data, size)));
  if (header) {
    for (const SafetensorsEntry& entry : header->entries) (void)canonical_name(entry.name);
  }
  (void)parse_shard_index(text);
  (void)parse_config(text, "input");
  return 0;
}
