// The tensors of a golden safetensors file, read whole.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace cachalot {

class GoldenTensors {
 public:
  // name: under tests/data
  explicit GoldenTensors(const std::string& name) {
    std::ifstream file(CACHALOT_SOURCE_DIR "/tests/data/" + name, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    const auto header = read_safetensors_header(std::as_bytes(std::span(bytes_)));
    CACHALOT_CHECK(header.has_value(), "tests/data/{} cannot be read", name);
    start_ = header->data_start;
    for (const SafetensorsEntry& entry : header->entries) entries_[entry.name] = entry;
  }

  const Shape& shape(const std::string& name) const { return entries_.at(name).shape; }

  template <class T>
  std::vector<T> values(const std::string& name) const {
    const SafetensorsEntry& entry = entries_.at(name);
    std::vector<T> out(static_cast<size_t>(entry.end - entry.begin) / sizeof(T));
    std::memcpy(out.data(), bytes_.data() + start_ + entry.begin, out.size() * sizeof(T));
    return out;
  }

 private:
  std::vector<char> bytes_;
  int64_t start_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
};

}  // namespace cachalot
