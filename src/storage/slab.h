// A large area of memory in one piece, which becomes real where it is touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace cachalot {

class Slab {
 public:
  // Page-aligned. Errors: the system refuses, or the machine has less memory.
  static Result<Slab> reserve(int64_t bytes, const char* purpose);

  Slab() = default;
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&& other) noexcept;
  ~Slab();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace cachalot
