// Observer: looks at, and may overwrite, named tensors while a step runs. The trace command records
// and forces layers through it; without one a step never stops.
#pragma once

#include <string_view>

#include "tensor/view.h"

namespace cachalot {

struct ObservedTensor {
  DType dtype;
  void* data;
  Shape shape;
};

class Observer {
 public:
  virtual ~Observer() = default;
  // point: "stream_in", "pre_in", "chosen", ... as docs/architecture.md lists them; layer -1: the
  // step's.
  virtual void visit(std::string_view point, int64_t layer, ObservedTensor tensor) = 0;
};

template <class T>
void observe(Observer* observer, std::string_view point, int64_t layer, View<T> view) {
  if (observer) observer->visit(point, layer, {DTypeOf<T>::value, view.data, view.shape});
}

}  // namespace cachalot
