// Rows from the repetitions of a step: its operations, its layers, the whole.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "bench/bench_model.h"
#include "bench/row.h"
#include "bench/step_runner.h"

namespace cachalot::bench {

class Summary {
 public:
  // Both outlive this.
  Summary(const BenchModel& model, const Machine& machine) : model_(model), machine_(machine) {}

  // The step, its mean layer, the kinds of its layers, its operations. An operation row is the mean
  // of the calls with the same kind of weight; what does not depend on the context has a row for
  // the first context alone, and verify and shortcut steps only for what other steps lack.
  std::vector<Row> rows_of(const StepSize& size, const std::vector<Repetition>& repetitions);

 private:
  // One repetition's part in a row.
  struct Sample {
    explicit Sample(const Machine& machine)
        : weights_rate(machine.weights_bytes_per_second), floor(machine) {}

    void add(const timed::Record& record);
    void divide_by(int64_t count);

    double seconds = 0, streaming_seconds = 0, bytes = 0, flops = 0, floor_seconds = 0;
    double weights_floor_seconds = 0;  // 0: there is none
    double weights_rate;
    Floor floor;
  };

  static Row row_of(std::string name, std::string shape, const std::vector<Sample>& samples);
  Row row_of_step(const StepSize& size, const std::vector<Repetition>& repetitions) const;
  void add_layers(const StepSize& size, const std::vector<Repetition>& repetitions,
                  std::vector<Row>& rows) const;
  void add_operations(const StepSize& size, const std::vector<Repetition>& repetitions,
                      std::vector<Row>& rows);

  const BenchModel& model_;
  const Machine& machine_;
  std::set<std::string> rows_there_, operations_there_;
};

}  // namespace cachalot::bench
