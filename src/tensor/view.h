// View<T>: a typed window on a dense row-major tensor somebody else owns. The type says the dtype,
// the comment at each declaration says the dimensions.
#pragma once

#include <type_traits>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace cachalot {

template <class T>
struct View {
  T* data = nullptr;
  Shape shape;

  View() = default;
  View(T* pointer, Shape extent) : data(pointer), shape(extent) {}
  // A view that may be written to reads as one that may not.
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>) View(const View<U>& other)
      : data(other.data), shape(other.shape) {}

  // An operand that is not there. Not `data == nullptr`: planning runs with no memory at all.
  bool absent() const { return shape.rank() == 0; }
  bool present() const { return !absent(); }

  int64_t operator[](int) const = delete;
  int64_t extent(int dimension) const { return shape[dimension]; }
  int64_t elements() const { return shape.rank() == 0 ? 0 : shape.elements(); }
  int64_t bytes() const { return elements() * static_cast<int64_t>(sizeof(T)); }
  // Elements per index of the first dimension.
  int64_t stride() const { return shape[0] == 0 ? 0 : shape.elements() / shape[0]; }
  T* row(int64_t index) const { return data + index * stride(); }
};

}  // namespace cachalot
