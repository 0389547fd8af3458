// What a queue holds back, because what comes behind it may be able to run in the same kernel. If
// that is not so, it is started before anything else is. The order of operations stays what it was,
// so a Scratch of what is held may be the memory that the operation which starts it has for later.
#pragma once

#include <array>
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

  Bytes() = default;
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

// What they read and write: the stream and three kinds of coefficients.
using MixMemory = std::array<Bytes, 4>;
MixMemory memory_of(const Mixes& mixes);

// Of one token: the sublayer's first kernel may make x itself.
struct HeldCollapse {
  HyperCollapseArgs collapse;
  HyperExpandArgs expand;
};

// Products of few rows with BF16 weights, which one kernel makes.
struct Bf16Products {
  static constexpr int kMost = 3, kTokens = 64;

  std::array<LinearArgs, kMost> of;
  int count = 0;
};
// Whether it may be one of them.
bool stands_beside(const LinearArgs& args);

// Of few tokens whose rows may be kept as soon as their groups are read.
struct HeldCompression {
  static constexpr int64_t kTokens = 8;

  CompressKvArgs entries;
  IndexKeysArgs keys;
};

// Of one token: queries, which are turned. An attention behind them may have its keys packed there,
// if nothing is compressed beside them.
struct HeldQueries {
  LinearArgs product;
  PrepareQueryArgs turn;
  std::optional<HeldCompression> compression;
};

// What was started last, if that was a single token's route, and where its kernel tells the next
// one x and the choice before it ends (told_route.cuh).
struct ToldRoute;
struct TellingRoute {
  RouteArgs route;
  const ToldRoute* told;
};

class HeldOperation {
 public:
  template <class Args>
  void hold(Queue& queue, const Args& args) {
    forget();
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

  // Besides operations that follow it.
  void hold_product(Queue& queue, const LinearArgs& args);
  // Behind the products that are held, and besides operations that follow it.
  void hold(Queue& queue, const CompressKvArgs& args);
  void hold(Queue& queue, const HeldCompression& compression) {
    hold(queue, compression.entries);
    keys_ = compression.keys;
  }
  // Whether index keys of what is compressed are held with it.
  bool add_keys(const IndexKeysArgs& args);

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
  // Of so many tokens, for a kernel that reads or writes this, and before which everything else
  // that is held may be started: for blocks of the kernel (up to kMostMixTokens), or for one
  // beside it.
  std::optional<Mixes> take_mixes(int64_t tokens, std::initializer_list<Bytes> touched);

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

  // Products of the same x, for a kernel that runs beside one that reads x and writes that. What is
  // to be computed from them comes too, and must be held again.
  std::optional<Bf16Products> take_products(const View<const bf16>& x,
                                            std::initializer_list<Bytes> written,
                                            std::optional<HeldCompression>& behind);
  // Of so many tokens, for a kernel that reads and writes this.
  std::optional<HeldCompression> take_compression(int64_t tokens, std::initializer_list<Bytes> read,
                                                  std::initializer_list<Bytes> written);

  // Rows that the kernel which was started last has left quantized too.
  void note_quantized(const bf16* of, const QuantizedRows& rows) { quantized_ = {of, rows}; }
  // For whoever starts the next kernel, if nothing has been held since.
  std::optional<QuantizedRows> take_quantized(const bf16* x, int64_t rows, int64_t columns) {
    const auto noted = std::exchange(quantized_, std::nullopt);
    const bool same =
        noted && noted->of == x && noted->rows.rows == rows && noted->rows.columns == columns;
    return same ? std::optional(noted->rows) : std::nullopt;
  }

  // `route` has just been started.
  void note(const TellingRoute& route) { telling_ = route; }
  // For whoever starts the next kernel, if nothing has been held since, which might write what was
  // told. nullptr: it is not told what it reads.
  const ToldRoute* take_told(const MoeExpertsArgs& args) {
    const auto telling = std::exchange(telling_, std::nullopt);
    if (!telling) return nullptr;
    const RouteArgs& route = telling->route;
    const bool same = route.x.data == args.x.data && route.x.shape == args.x.shape &&
                      route.ids.data == args.ids.data && route.ids.shape == args.ids.shape &&
                      route.weights.data == args.weights.data;
    return same ? telling->told : nullptr;
  }

  // Alone.
  void start(Queue& queue);
  // The collapse alone, whose coefficients are held then.
  void start_collapse(Queue& queue);

 private:
  // What was noted of the last kernel: another one is started, or may be before who could take it.
  void forget() {
    telling_.reset();
    quantized_.reset();
  }

  std::vector<Bytes> written_;  // since the last attention
  bool follows_attention_ = false;
  std::optional<HeldCollapse> collapse_;
  std::optional<Mixes> mixes_;
  std::optional<TellingRoute> telling_;
  struct Quantized {
    const bf16* of;
    QuantizedRows rows;
  };
  std::optional<Quantized> quantized_;
  Bf16Products products_;
  std::optional<CompressKvArgs> entries_;
  std::optional<IndexKeysArgs> keys_;
  std::variant<std::monostate, LinearArgs, HeldQueries, HyperExpandArgs, WriteWindowArgs>
      operation_;
};

// Without holding it back.
void start_alone(Queue& queue, const LinearArgs& args);
void start_alone(Queue& queue, const HeldQueries& queries);
void start_alone(Queue& queue, const HyperExpandArgs& args);
void start_alone(Queue& queue, const WriteWindowArgs& args);
void start_alone(Queue& queue, const Bf16Products& products);
void start_alone(Queue& queue, const CompressKvArgs& args);
void start_alone(Queue& queue, const IndexKeysArgs& args);

}  // namespace cachalot::cuda
