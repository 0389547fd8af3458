#include "bench/summary.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>

namespace cachalot::bench {
namespace {

bool depends_on_context(std::string_view operation) {
  return operation == "index_select" || operation == "sparse_attention";
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// "layer 12" -> 12
std::optional<int64_t> layer_of(std::string_view label) {
  constexpr std::string_view kStart = "layer ";
  if (!label.starts_with(kStart)) return std::nullopt;
  int64_t layer = 0;
  std::from_chars(label.data() + kStart.size(), label.data() + label.size(), layer);
  return layer;
}

std::string times(int64_t count, std::string_view what) {
  return fmt::format("mean of {} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

void Summary::Sample::add(const timed::Record& record) {
  floor.add(record.operation, record.cost);
  floor_seconds = floor.seconds();
  if (weights_rate > 0) weights_floor_seconds = floor.seconds_reading_at(weights_rate);
  bytes += static_cast<double>(record.cost.bytes());
  flops += static_cast<double>(record.cost.flops);
  if (is_matrix_product(record.operation)) streaming_seconds += record.seconds;
}

void Summary::Sample::divide_by(int64_t count) {
  const double share = 1 / static_cast<double>(count);
  for (double* value :
       {&seconds, &streaming_seconds, &bytes, &flops, &floor_seconds, &weights_floor_seconds}) {
    *value *= share;
  }
}

Row Summary::row_of(std::string name, std::string shape, const std::vector<Sample>& samples) {
  Row row{.name = std::move(name), .shape = std::move(shape), .repetitions = std::ssize(samples)};
  std::vector<double> seconds;
  for (const Sample& sample : samples) {
    seconds.push_back(sample.seconds);
    row.bytes += sample.bytes / static_cast<double>(samples.size());
    row.flops += sample.flops / static_cast<double>(samples.size());
    const double percent = 100 * sample.floor_seconds / sample.seconds;
    if (percent <= row.percent_of_limit && !row.limit.empty()) continue;
    row.percent_of_limit = percent;
    row.limit = sample.floor.limit();
    if (sample.weights_floor_seconds > 0 && sample.streaming_seconds > sample.seconds / 2) {
      row.percent_of_weights_limit = 100 * sample.weights_floor_seconds / sample.seconds;
    }
  }
  row.seconds = median(seconds);
  row.best_seconds = std::ranges::min(seconds);
  return row;
}

Row Summary::row_of_step(const StepSize& size, const std::vector<Repetition>& repetitions) const {
  std::vector<Sample> samples;
  std::vector<double> outside, between;
  for (const Repetition& repetition : repetitions) {
    Sample& sample = samples.emplace_back(machine_);
    for (const timed::Record& record : repetition.records) sample.add(record);
    sample.seconds = repetition.seconds;
    outside.push_back(1 - sample.streaming_seconds / sample.seconds);
    if (repetition.between_operations) between.push_back(*repetition.between_operations);
  }
  const int64_t tokens = bench::rows_of(size, model_.config);
  Row row = row_of("step/" + size.text(),
                   fmt::format("{} layers, {} rows at position {}", model_.config.n_layers, tokens,
                               size.context),
                   samples);
  row.tokens_per_second = static_cast<double>(tokens) / row.best_seconds;
  row.outside_streaming = median(outside);
  if (!between.empty()) row.between_operations = median(between);
  return row;
}

void Summary::add_layers(const StepSize& size, const std::vector<Repetition>& repetitions,
                         std::vector<Row>& rows) const {
  // Kind -> one sample per repetition, and how many layers are of it.
  std::map<std::string, std::vector<Sample>> samples;
  std::map<std::string, int64_t> counts;
  for (size_t i = 0; i < repetitions.size(); ++i) {
    const Repetition& repetition = repetitions[i];
    const auto for_layer = [&](size_t range, const auto& visit) {
      const auto layer = layer_of(repetition.ranges[range].label);
      if (!layer) return;
      for (const std::string& name : {std::string("layer"), "layer." + model_.kind_of(*layer)}) {
        auto& list = samples[name];
        if (list.size() <= i) list.emplace_back(machine_);
        visit(name, list[i]);
      }
    };
    for (size_t range = 0; range < repetition.ranges.size(); ++range) {
      for_layer(range, [&](const std::string& name, Sample& sample) {
        sample.seconds += repetition.ranges[range].seconds;
        if (i == 0) ++counts[name];
      });
    }
    for (const timed::Record& record : repetition.records) {
      for_layer(record.range, [&](const std::string&, Sample& sample) { sample.add(record); });
    }
  }
  for (auto& [name, list] : samples) {
    std::vector<double> outside;
    for (Sample& sample : list) {
      sample.divide_by(counts[name]);
      outside.push_back(1 - sample.streaming_seconds / sample.seconds);
    }
    rows.push_back(row_of(name + "/" + size.text(), times(counts[name], "layer"), list));
    rows.back().outside_streaming = median(outside);
  }
}

void Summary::add_operations(const StepSize& size, const std::vector<Repetition>& repetitions,
                             std::vector<Row>& rows) {
  const bool whole = size.phase == Phase::decode || size.phase == Phase::prefill;
  const bool only_new = size.phase == Phase::verify || size.phase == Phase::shortcut;
  // In the order of their first call, which every repetition shares.
  std::vector<std::string> order;
  std::map<std::string, std::vector<Sample>> samples;
  std::map<std::string, int64_t> counts;
  std::map<std::string, const timed::Record*> first_calls;
  for (size_t i = 0; i < repetitions.size(); ++i) {
    for (const timed::Record& record : repetitions[i].records) {
      const std::string name = model_.name_of(record.operation, record.variant, record.weight);
      auto& list = samples[name];
      if (list.empty()) order.push_back(name);
      if (list.size() <= i) list.emplace_back(machine_);
      list[i].add(record);
      list[i].seconds += record.seconds;
      if (i > 0) continue;
      ++counts[name];
      first_calls.emplace(name, &record);
    }
  }
  for (const std::string& name : order) {
    if (only_new && operations_there_.contains(name)) continue;
    if (whole) operations_there_.insert(name);
    const std::string full =
        name + "/" + size.text(depends_on_context(first_calls[name]->operation));
    if (!rows_there_.insert(full).second) continue;
    for (Sample& sample : samples[name]) sample.divide_by(counts[name]);
    rows.push_back(row_of(full, times(counts[name], "call") + ": " + first_calls[name]->shapes,
                          samples[name]));
  }
}

std::vector<Row> Summary::rows_of(const StepSize& size,
                                  const std::vector<Repetition>& repetitions) {
  std::vector<Row> rows{row_of_step(size, repetitions)};
  if (size.phase != Phase::shortcut) add_layers(size, repetitions, rows);
  add_operations(size, repetitions, rows);
  return rows;
}

}  // namespace cachalot::bench
