// Looking at what a queue computed while a step is not over: the one place where a step waits. Only
// for whoever chooses drafts by other rules than the best.
#pragma once

#include <cstdint>
#include <vector>

namespace cachalot {

// `count` values an operation wrote, for the host to read. A queue of a device has
// copy_to_host(to, from, bytes), done when it returns.
template <class T>
class HostCopy {
 public:
  template <class Q>
  HostCopy(Q& queue, const T* values, int64_t count) : data_(values) {
    if constexpr (requires { queue.copy_to_host(nullptr, nullptr, 0); }) {
      copy_.resize(static_cast<size_t>(count));
      queue.copy_to_host(copy_.data(), values, copy_.size() * sizeof(T));
      data_ = copy_.data();
    }
  }
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  const T* data() const { return data_; }

 private:
  const T* data_;
  std::vector<T> copy_;
};

template <class Q, class T>
void write_from_host(Q& queue, T* to, T value) {
  if constexpr (requires { queue.copy_from_host(nullptr, nullptr, 0); }) {
    queue.copy_from_host(to, &value, sizeof(T));
  } else {
    *to = value;
  }
}

}  // namespace cachalot
