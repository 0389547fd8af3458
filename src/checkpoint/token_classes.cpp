#include "checkpoint/token_classes.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>

namespace cachalot {

static_assert(std::endian::native == std::endian::little);

Result<std::vector<int32_t>> read_token_classes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)),
                                std::istreambuf_iterator<char>());
  if (!file.good() && !file.eof()) return fail("{}: cannot be read", path.string());
  if (bytes.empty() || bytes.size() % sizeof(int32_t) != 0) {
    return fail(
        "{}: expected a class of 4 bytes per token, as `tokenize --map` writes, found {} bytes",
        path.string(), bytes.size());
  }
  std::vector<int32_t> classes(bytes.size() / sizeof(int32_t));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(classes.data()));
  const auto negative = std::ranges::find_if(classes, [](int32_t value) { return value < 0; });
  if (negative != classes.end()) {
    return fail("{}: token {} has class {}, expected 0 or more", path.string(),
                negative - classes.begin(), *negative);
  }
  return classes;
}

Status write_token_classes(const std::filesystem::path& path, std::span<const int32_t> classes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(classes.data()),
             static_cast<std::streamsize>(classes.size_bytes()));
  file.close();
  if (!file) return fail("{}: cannot be written", path.string());
  return {};
}

}  // namespace cachalot
