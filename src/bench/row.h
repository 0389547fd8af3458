// One line of a benchmark: what ran, how long it took, what the machine would allow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/machine.h"
#include "ops/cost.h"

namespace cachalot::bench {

// Whether the operation's multiply-adds run on the matrix kernels, and whether its time is the
// reading of weights.
bool is_matrix_product(std::string_view operation);

// The least time some work can take: its bytes at the read bandwidth, or its operations at the
// peaks of the paths they run on, whichever is longer.
class Floor {
 public:
  explicit Floor(const Machine& machine) : machine_(machine) {}

  void add(std::string_view operation, const Cost& cost);

  double seconds() const { return std::max(memory_, arithmetic_seconds()); }
  // Where memory is read so fast instead.
  double seconds_reading_at(double bytes_per_second) const {
    return std::max(memory_ * machine_.read_bytes_per_second / bytes_per_second,
                    arithmetic_seconds());
  }
  // "memory", or the path that takes most of the arithmetic.
  std::string limit() const;

 private:
  double arithmetic_seconds() const;

  const Machine& machine_;
  double memory_ = 0;                         // seconds
  std::map<std::string, double> arithmetic_;  // path -> seconds
};

struct Row {
  std::string name;         // operation/phase/shape: experts/decode/tokens1
  std::string shape;        // "mean of 10 calls: x [1, 256], y [1, 64]"
  double seconds = 0;       // median of the repetitions
  double best_seconds = 0;  // the fastest
  int64_t repetitions = 0;
  double bytes = 0, flops = 0;  // means: routing differs from run to run
  // Of the repetition nearest to its own floor; limits are best times too. Empty and all zero where
  // bytes and operations are not counted, as of an engine's cycles.
  double percent_of_limit = 0;
  std::string limit;
  std::optional<double> tokens_per_second;  // of whole steps, at the best time
  // The share of the time outside the operations that stream weights (steps and layers).
  std::optional<double> outside_streaming;
  // The share of a step's time by which it is longer than its operations, timed apart (on a GPU).
  std::optional<double> between_operations = {};
  // As percent_of_limit, where weights take the most of the time and were read apart: the floor of
  // memory that is read as these are.
  std::optional<double> percent_of_weights_limit = {};
};

struct Report {
  Machine machine;
  std::string model;  // folder
  std::vector<Row> rows;
  std::vector<std::string> notes;  // what was left out, and why
};

}  // namespace cachalot::bench
