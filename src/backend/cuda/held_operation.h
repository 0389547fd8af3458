// What a queue holds back, because what comes behind it may be able to run in the same kernel. If
// that is not so, it is started before anything else is. The order of operations stays what it was;
// nothing that is held uses a Scratch.
#pragma once

#include <initializer_list>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "backend/cuda/hyper_mixes.h"
#include "backend/cuda/queue.h"

namespace cachalot::cuda {

// Memory that an operation reads or writes. Kernels of one operation may run before, beside and
// after those of another where they share none that either of them writes.
struct Bytes {
  const std::byte* data = nullptr;
  int64_t count = 0;

  Bytes(const void* data, int64_t count)
      : data(static_cast<const std::byte*>(data)), count(count) {}
  template <class T>
  Bytes(const View<T>& view) : Bytes(view.data, view.absent() ? 0 : view.bytes()) {}

  bool overlaps(const Bytes& other) const {
    return data < other.data + other.count && other.data < data + count;
  }
};
inline bool overlap(std::initializer_list<Bytes> some, std::initializer_list<Bytes> others) {
  bool any = false;
  for (const Bytes& one : some)
    for (const Bytes& other : others) any |= one.overlaps(other);
  return any;
}

// Of one token: the sublayer's first kernel may make x itself.
struct HeldCollapse {
  HyperCollapseArgs collapse;
  HyperExpandArgs expand;
};

// Of one token: queries, which are turned. An attention behind them may have its keys packed there.
struct HeldQueries {
  LinearArgs product;
  PrepareQueryArgs turn;
};

class HeldOperation {
 public:
  template <class Args>
  void hold(Queue& queue, const Args& args) {
    start_collapse(queue);
    if (!std::holds_alternative<std::monostate>(operation_)) start(queue);
    operation_ = args;
  }
  void hold(Queue& queue, const HeldCollapse& collapse) {
    start(queue);
    collapse_ = collapse;
  }
  // Besides an operation that follows it.
  void hold(Queue& queue, const Mixes& mixes) {
    start(queue);
    mixes_ = mixes;
  }

  // What is held, if it is of this kind and `fits`, for whoever starts it now.
  template <class Args, class Fits>
  std::optional<Args> take(Fits fits) {
    const Args* args = std::get_if<Args>(&operation_);
    if (args == nullptr || !fits(*args)) return std::nullopt;
    std::optional<Args> taken = *args;
    operation_ = std::monostate{};
    return taken;
  }
  template <class Fits>
  std::optional<HeldCollapse> take_collapse(Fits fits) {
    if (!collapse_ || !fits(*collapse_)) return std::nullopt;
    return std::exchange(collapse_, std::nullopt);
  }
  // Of so many tokens, for a kernel that writes this.
  std::optional<Mixes> take_mixes(int64_t tokens, std::initializer_list<Bytes> written) {
    if (!mixes_ || mixes_->collapse.tokens != tokens) return std::nullopt;
    const Collapse& of = mixes_->collapse;
    const int64_t rows = of.tokens * of.copies, floats = rows * int64_t{sizeof(float)};
    const std::initializer_list<Bytes> used = {{of.stream, rows * of.dim * int64_t{sizeof(bf16)}},
                                               {of.pre_out, floats},
                                               {of.post, floats},
                                               {of.comb, floats * of.copies}};
    return overlap(written, used) ? std::nullopt : std::exchange(mixes_, std::nullopt);
  }

  // What a kernel writes that another reads before it waits for its inputs.
  void note_written(const Bytes& memory) {
    if (follows_attention_) written_.push_back(memory);
  }
  // Kernels of sparse_attention let the next one start behind their own wait: when a kernel behind
  // them starts, all in front of them are complete.
  void note_attention() {
    written_.clear();
    follows_attention_ = true;
  }
  void forget_attention() { follows_attention_ = false; }
  // Whether that is so of all kernels that have written this.
  bool settled(std::initializer_list<Bytes> read) const {
    bool all = follows_attention_;
    for (const Bytes& memory : written_) all &= !overlap({memory}, read);
    return all;
  }

  // Alone.
  void start(Queue& queue);
  // The collapse alone, whose coefficients are held then.
  void start_collapse(Queue& queue);

 private:
  std::vector<Bytes> written_;  // since the last attention
  bool follows_attention_ = false;
  std::optional<HeldCollapse> collapse_;
  std::optional<Mixes> mixes_;
  std::variant<std::monostate, LinearArgs, HeldQueries, HyperExpandArgs, WriteWindowArgs>
      operation_;
};

// Without holding it back.
void start_alone(Queue& queue, const LinearArgs& args);
void start_alone(Queue& queue, const HeldQueries& queries);
void start_alone(Queue& queue, const HyperExpandArgs& args);
void start_alone(Queue& queue, const WriteWindowArgs& args);

}  // namespace cachalot::cuda
