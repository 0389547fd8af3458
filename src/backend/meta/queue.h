// meta::Queue: plans instead of computing. Runs the model's code on arguments without data and
// records every operation's shapes and cost; its arena measures the workspace a step needs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/cost.h"
#include "ops/queue.h"

namespace cachalot::meta {

struct Record {
  std::string_view name;  // of the operation
  std::string label;      // the profiling range it lies in
  Cost cost;
  std::string shapes;  // "x [5, 512], y [5, 64]": the fields that are present
};

class Queue {
 public:
  Queue() : arena_(Arena::planning()) {}

  // Hands out addresses nobody may touch; arena().peak() is the workspace in bytes.
  Arena& arena() { return arena_; }
  void label(std::string_view name) { label_ = name; }

  const std::vector<Record>& records() const { return records_; }
  const Cost& total() const { return total_; }

  template <class Args>
  void record(std::string_view name, const Args& args) {
    check_shapes(args);
    records_.push_back({name, label_, cost_of(args), shapes_of(args)});
    total_ += records_.back().cost;
  }

 private:
  Arena arena_;
  std::string label_;
  std::vector<Record> records_;
  Cost total_;
};

#define CACHALOT_RECORD(function, Args) \
  inline void function(Queue& queue, const Args& args) { queue.record(#function, args); }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_RECORD)
#undef CACHALOT_RECORD

static_assert(cachalot::Queue<Queue>);

}  // namespace cachalot::meta
