// A file mapped read-only: bytes appear when touched, nothing is read up front.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace cachalot {

class MappedFile {
 public:
  // Errors: the file cannot be opened or mapped (with the system's reason). An empty file maps to
  // an empty span.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Part of a mapping that is read here and there: a page that is touched brings no others with it. A
// wish the system may ignore.
void expect_random_reads(std::span<const std::byte> part);

// Far beyond what people write, and the indices of checkpoints.
inline constexpr size_t kTextFileLimit = size_t{256} << 20;

// The whole of a (small) text file, or of what a pipe or a terminal brings. Errors: it cannot be
// opened or read (a folder cannot), is another device, or is longer than `limit` bytes.
Result<std::string> read_text_file(const std::filesystem::path& path,
                                   size_t limit = kTextFileLimit);

// Errors: nobody can tell (a folder that may not be searched, a name too long).
Result<bool> file_exists(const std::filesystem::path& path);

}  // namespace cachalot
