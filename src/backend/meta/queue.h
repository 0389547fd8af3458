// meta::Queue: plans instead of computing. Runs the model's code on arguments without data and
// records every operation's shapes and cost; its arena measures the workspace a step needs. As a
// survey it also notes the parts of the model an operation lies in, and its operands. For whoever
// will start the operations later, it shows them to a watcher, on memory that is there.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/meta/operands.h"
#include "ops/cost.h"
#include "ops/part.h"
#include "ops/queue.h"
#include "ops/watcher.h"

namespace cachalot::meta {

struct Record {
  std::string_view name;  // of the operation
  std::string label;      // the profiling range it lies in
  Cost cost;
  std::string shapes;  // "x [5, 512], y [5, 64]": the fields that are present
  // Of a survey:
  std::vector<PartScope> parts = {};  // from the outermost to the one it lies in
  std::vector<size_t> entries = {};   // of each part: its number among all scopes entered
  std::vector<Operand> operands = {};
  std::vector<Member> members = {};
};

enum class Detail { plan, survey };

class Queue {
 public:
  explicit Queue(Detail detail = Detail::plan) : arena_(Arena::planning()), detail_(detail) {}
  // Operations are shown to before() of the watcher, which outlives this.
  Queue(Arena arena, OperationWatcher& watcher) : arena_(std::move(arena)), watcher_(&watcher) {}

  // Hands out addresses nobody may touch, if it was not given an arena; arena().peak() is the
  // workspace in bytes.
  Arena& arena() {
    if (keeps_tensors_) {
      arena_.allocate<std::byte>({static_cast<int64_t>(arena_.peak() - arena_.mark())});
    }
    return arena_;
  }
  // From now on no tensor gets memory that another had, so that an operation can be started again
  // when all others have run.
  void keep_tensors() { keeps_tensors_ = true; }
  void label(std::string_view name) { label_ = name; }
  void enter(const PartScope& scope) {
    parts_.push_back(scope);
    entries_.push_back(entered_++);
  }
  void leave() {
    parts_.pop_back();
    entries_.pop_back();
  }

  const std::vector<Record>& records() const { return records_; }
  const Cost& total() const { return total_; }

  template <class Args>
  void record(std::string_view name, const Args& args) {
    check_shapes(args);
    records_.push_back({name, label_, cost_of(args), shapes_of(args)});
    if (detail_ == Detail::survey) note_operands(args);
    if (watcher_) watcher_->before(args);
    total_ += records_.back().cost;
  }

  // Weights the host copies without an operation: rows of `width` values each.
  template <class T>
  void copied(std::string_view name, std::string_view field, View<const T> weight) {
    if (records_.empty() || records_.back().name != name || records_.back().entries != entries_) {
      records_.push_back({name, label_, {}, {}, parts_, entries_});
    }
    Record& record = records_.back();
    record.cost.bytes_read += weight.bytes();
    record.operands.push_back(operand_of(field, weight, Access::in));
  }

 private:
  template <class Args>
  void note_operands(const Args& args) {
    Record& record = records_.back();
    record.parts = parts_;
    record.entries = entries_;
    record.operands = operands_of(args);
    record.members = members_of(args);
  }

  Arena arena_;
  Detail detail_ = Detail::plan;
  OperationWatcher* watcher_ = nullptr;
  bool keeps_tensors_ = false;
  std::string label_;
  std::vector<PartScope> parts_;
  std::vector<size_t> entries_;
  size_t entered_ = 0;
  std::vector<Record> records_;
  Cost total_;
};

#define CACHALOT_RECORD(function, Args) \
  inline void function(Queue& queue, const Args& args) { queue.record(#function, args); }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_RECORD)
#undef CACHALOT_RECORD

static_assert(cachalot::Queue<Queue>);

}  // namespace cachalot::meta
