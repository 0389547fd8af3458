// Where bytes of a mapped file lie on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "storage/direct_file.h"

namespace cachalot {

// A file and where it is mapped.
struct MappedPart {
  std::filesystem::path path;
  std::span<const std::byte> bytes;
};

struct FileSpan {
  size_t file = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

class FileMap {
 public:
  explicit FileMap(std::vector<MappedPart> parts) : parts_(std::move(parts)) {}

  // Empty: the bytes are in no mapping, they are memory.
  std::optional<FileSpan> find(std::span<const std::byte> bytes) const {
    const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
    for (size_t file = 0; file < parts_.size(); ++file) {
      const auto start = reinterpret_cast<uintptr_t>(parts_[file].bytes.data());
      if (begin < start || begin + bytes.size() > start + parts_[file].bytes.size()) continue;
      return FileSpan{file, static_cast<int64_t>(begin - start), std::ssize(bytes)};
    }
    return std::nullopt;
  }

  // All files, in the order find() counts them.
  Result<std::vector<DirectFile>> open(bool direct) const {
    std::vector<DirectFile> files;
    for (const MappedPart& part : parts_) {
      CACHALOT_TRY(DirectFile file, DirectFile::open(part.path, std::ssize(part.bytes), direct));
      files.push_back(std::move(file));
    }
    return files;
  }

 private:
  std::vector<MappedPart> parts_;
};

}  // namespace cachalot
