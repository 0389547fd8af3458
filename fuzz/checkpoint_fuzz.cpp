// Foreign bytes as a shard, as an index and as a configuration: refused or read, never a crash.
//
// As a shard twice: as they are, and as a header behind two bytes with the size of its data, since
// no mutation keeps the lengths of a real file in step.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/tensor_names.h"

namespace {

using namespace cachalot;

void read_shard(std::span<const std::byte> file) {
  const auto header = read_safetensors_header(file);
  if (!header) return;
  for (const SafetensorsEntry& entry : header->entries) {
    (void)canonical_name(entry.name);
    CACHALOT_CHECK(entry.begin >= 0 && entry.begin <= entry.end);
    CACHALOT_CHECK(header->data_start + entry.end <= static_cast<int64_t>(file.size()));
    CACHALOT_CHECK(entry.end - entry.begin == entry.shape.elements() * size_of(entry.dtype));
  }
}

std::string shard_around(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file.append(header).append(data_bytes, '\0');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_shard(std::as_bytes(std::span(data, size)));
  if (size >= 2) {
    const std::string shard = shard_around(text.substr(2), data[0] | size_t{data[1]} << 8);
    read_shard(std::as_bytes(std::span(shard)));
  }
  (void)parse_shard_index(text);
  (void)parse_config(text, "input");
  return 0;
}
