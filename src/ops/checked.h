// checked::Queue<Q>: runs every operation on Q and, on copies of what it writes, on the reference;
// names the first operation whose results depart further than its number formats explain
// (ops/field_error.h). Execution goes on with Q's values, so one operation's error is never blamed
// on the next. Slow: every cache an operation may write is copied. Link cachalot_reference.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ops/field_error.h"
#include "ops/queue.h"
#include "ops/reference/queue.h"

namespace cachalot::checked {

struct Departure {
  std::string operation;
  std::string label;  // the range it lies in, as the model named it
  std::string field;
  FieldError error;  // what is measured depends on the field's type
};

// The fields of an operation's arguments that it may write, copied.
template <class Args>
class Copies {
 public:
  explicit Copies(const Args& args) : args_(args) {
    for_each_written(args_, [&](std::string_view, auto& view) {
      const auto* bytes = reinterpret_cast<const std::byte*>(view.data);
      before_.emplace_back(bytes, bytes + view.bytes());
      values_.push_back(before_.back());
      view.data = reinterpret_cast<decltype(view.data)>(values_.back().data());
    });
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Arguments whose written fields are the copies.
  const Args& args() const { return args_; }

  // visit(field, view of `found`, its copy after the reference ran, its copy from before)
  template <class Visit>
  void compare_with(Args found, Visit&& visit) const {
    size_t index = 0;
    for_each_written(found, [&](std::string_view field, auto& view) {
      using T = std::remove_reference_t<decltype(*view.data)>;
      visit(field, View<const T>(view), reinterpret_cast<const T*>(values_[index].data()),
            reinterpret_cast<const T*>(before_[index].data()));
      ++index;
    });
  }

 private:
  // fields() shows the struct's own views as const; `args` is not const, so each may be redirected.
  template <class Visit>
  static void for_each_written(Args& args, Visit&& visit) {
    args.fields([&](std::string_view field, const auto& view, Access role) {
      using V = std::remove_cvref_t<decltype(view)>;
      if constexpr (!std::is_const_v<std::remove_reference_t<decltype(*view.data)>>)
        if (role != Access::in && view.elements() > 0) visit(field, const_cast<V&>(view));
    });
  }

  Args args_;
  std::vector<std::vector<std::byte>> before_, values_;
};

template <cachalot::Queue Q>
class Queue {
 public:
  // `inner` must outlive this.
  explicit Queue(Q& inner) : inner_(inner), reference_(Arena(0)) {}

  Arena& arena() { return inner_.arena(); }
  void label(std::string_view name) {
    label_ = name;
    inner_.label(name);
  }

  const std::optional<Departure>& first_departure() const { return first_departure_; }

  // run_inner(Q&, const Args&) and run_reference(reference::Queue&, const Args&) are `operation`.
  template <class Args, class RunInner, class RunReference>
  void run(std::string_view operation, const Args& args, RunInner run_inner,
           RunReference run_reference) {
    if (first_departure_) return run_inner(inner_, args);
    const Copies<Args> copies(args);
    run_reference(reference_, copies.args());
    run_inner(inner_, args);
    FieldComparison comparison(operation);
    copies.compare_with(args, [&](std::string_view field, auto found, auto expected, auto before) {
      const FieldError error = comparison.compare(found, expected, before);
      if (!first_departure_ && error.departs())
        first_departure_ = Departure{std::string(operation), label_, std::string(field), error};
    });
  }

 private:
  Q& inner_;
  reference::Queue reference_;
  std::string label_;
  std::optional<Departure> first_departure_;
};

#define CACHALOT_CHECKED(function, Args)                                     \
  template <class Q>                                                         \
  void function(Queue<Q>& queue, const Args& args) {                         \
    const auto run = [](auto& on, const Args& with) { function(on, with); }; \
    queue.run(#function, args, run, run);                                    \
  }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_CHECKED)
#undef CACHALOT_CHECKED

static_assert(cachalot::Queue<Queue<reference::Queue>>);

}  // namespace cachalot::checked
