// The safetensors container: 8 bytes header length (little endian), a JSON header
//   {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...},
// then the data, which the offsets (relative to its start) cover without holes or overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace cachalot {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::u8;
  Shape shape;
  int64_t begin = 0;  // bytes, from the start of the data section
  int64_t end = 0;
};

struct SafetensorsHeader {
  int64_t data_start = 0;                 // bytes, from the start of the file
  std::vector<SafetensorsEntry> entries;  // ascending by begin; names are unique
};

// Reads and validates the header of a whole file's bytes; the data is not touched. Every entry of
// the result lies inside the file and is exactly as long as its dtype and shape say.
// Errors: what was expected, what was found; a file that ends early names the first tensor hit.
Result<SafetensorsHeader> read_safetensors_header(std::span<const std::byte> file);

}  // namespace cachalot
