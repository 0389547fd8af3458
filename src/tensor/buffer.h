// Buffer<T>: a tensor that owns its elements, zero at first.
#pragma once

#include <utility>
#include <vector>

#include "tensor/view.h"

namespace cachalot {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Shape shape) : shape_(shape), values_(static_cast<size_t>(shape.elements())) {}
  // The values must fill the shape.
  Buffer(Shape shape, std::vector<T> values) : shape_(shape), values_(std::move(values)) {
    CACHALOT_CHECK(static_cast<int64_t>(values_.size()) == shape.elements(), "{} values for {}",
                   values_.size(), shape.text());
  }

  View<T> view() { return {values_.data(), shape_}; }
  View<const T> view() const { return {values_.data(), shape_}; }
  std::vector<T>& values() { return values_; }
  const std::vector<T>& values() const { return values_; }

 private:
  Shape shape_;
  std::vector<T> values_;
};

}  // namespace cachalot
