// WorkShare: numbered pieces of work, taken by whichever thread is free. Which thread computes a
// piece never changes its result, so the split may follow the load.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace cachalot::cpu {

class WorkShare {
 public:
  // Pieces are taken in runs of about a sixteenth of a thread's part, to keep the counter cool and
  // neighbouring weight rows together.
  WorkShare(int64_t pieces, int threads)
      : pieces_(pieces), grain_(std::max<int64_t>(1, pieces / (int64_t{16} * threads))) {}

  template <class F>
  void each(F&& f) {
    each_with_next([&](int64_t piece, int64_t) { f(piece); });
  }

  // Calls f(piece, next): the piece this thread takes afterwards, -1 if none, so that its data can
  // be fetched meanwhile.
  template <class F>
  void each_with_next(F&& f) {
    int64_t first = take();
    while (first < pieces_) {
      const int64_t last = std::min(pieces_, first + grain_);
      for (int64_t i = first; i + 1 < last; ++i) f(i, i + 1);
      first = take();
      f(last - 1, first < pieces_ ? first : -1);
    }
  }

 private:
  int64_t take() { return next_.fetch_add(grain_, std::memory_order_relaxed); }

  const int64_t pieces_;
  const int64_t grain_;
  alignas(64) std::atomic<int64_t> next_{0};
};

}  // namespace cachalot::cpu
