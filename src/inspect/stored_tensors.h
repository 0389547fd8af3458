// What a checkpoint's files hold, by their headers alone: also of one that does not open because a
// tensor is missing, unknown or of another shape.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace cachalot {

struct StoredTensor {
  std::string name;  // canonical (checkpoint/tensor_names.h)
  DType dtype = DType::u8;
  Shape shape;
  std::string file;
  int64_t begin = 0, end = 0;  // bytes of the file
};

// Something about the files that is not as it must be.
struct Mismatch {
  std::string tensor;  // or file
  std::string expected, found;
};

struct StoredTensors {
  bool any_files = false;
  std::vector<StoredTensor> tensors;
  std::vector<Mismatch> mismatches;  // files that are missing or unreadable, a wrong total
};

// A folder without shards (a configuration alone) holds none, and that is no error.
// Errors: the folder cannot be listed, the index cannot be read.
Result<StoredTensors> stored_tensors(const std::filesystem::path& folder);

}  // namespace cachalot
