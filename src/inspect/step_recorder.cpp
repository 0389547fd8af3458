#include "inspect/step_recorder.h"

#include <algorithm>

#include "inspect/occurrences.h"
#include "ops/reference/parts.h"

namespace cachalot {
int64_t StepRecorder::layer() const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    if (scopes_[i].number >= 0) return scopes_[i].number;
  }
  return -1;
}

LayerTrace& StepRecorder::layer_trace() {
  const int64_t number = layer();
  const auto found = std::ranges::find(step_->layers, number, &LayerTrace::layer);
  if (found != step_->layers.end()) return *found;
  step_->layers.push_back({.layer = number});
  return step_->layers.back();
}

int64_t StepRecorder::rows_left_out(int64_t rows) const {
  return std::max<int64_t>(rows - std::ssize(step_->positions), 0);
}

// [rows, ...] with everything behind the rows side by side.
template <class T>
TraceTable<std::remove_const_t<T>> StepRecorder::last_rows(View<T> view) const {
  const int64_t rows = view.extent(0), columns = view.elements() / rows;
  TraceTable<std::remove_const_t<T>> table{.columns = columns, .values = {}};
  table.values.assign(view.data + rows_left_out(rows) * columns, view.data + rows * columns);
  return table;
}

void StepRecorder::after(const RouteArgs& args) {
  if (step_ == nullptr) return;
  layer_trace().experts = last_rows(args.ids);
  layer_trace().shares = last_rows(args.weights);
}

void StepRecorder::after(const IndexSelectArgs& args) {
  if (step_ == nullptr) return;
  LayerTrace& trace = layer_trace();
  trace.ratio = args.ratio;
  trace.picks = last_rows(args.chosen);
  if (args.candidate_use == CandidateUse::none) return;
  trace.candidates = last_rows(args.candidates);
  trace.candidate_block = args.candidate_block;
}

void StepRecorder::after(const EngramGatherArgs& args) {
  if (step_ == nullptr) return;
  TraceTable<int64_t>& table = layer_trace().engram_rows;
  table.columns = args.table_rows.extent(2);
  const int64_t rows = args.table_rows.extent(0);
  for (int64_t row = rows_left_out(rows); row < rows; ++row) {
    const int64_t* columns = args.table_rows.row(row) + args.layer * table.columns;
    table.values.insert(table.values.end(), columns, columns + table.columns);
  }
}

void StepRecorder::before(const EngramMixArgs& args) {
  if (step_ == nullptr) return;
  TraceTable<float>& gates = layer_trace().engram_gates;
  gates.columns = args.stream.extent(1);
  const int64_t rows = args.stream.extent(0);
  for (int64_t row = rows_left_out(rows); row < rows; ++row) {
    for (int64_t copy = 0; copy < gates.columns; ++copy) {
      gates.values.push_back(reference::engram_gate(args, row, copy));
    }
  }
}

// Attention's comes first. Collapses for a read-out leave the copies alone.
void StepRecorder::after(const HyperCollapseArgs& args) {
  if (step_ == nullptr || args.post.absent()) return;
  LayerTrace& trace = layer_trace();
  auto& mix = trace.attention_mix.pre.values.empty() ? trace.attention_mix : trace.experts_mix;
  mix.pre = last_rows(args.pre_in);
  mix.post = last_rows(args.post);
  mix.comb = last_rows(args.comb);
}

void StepRecorder::after(const SparseAttentionArgs& args) {
  if (step_ == nullptr) return;
  LayerTrace& trace = layer_trace();
  const int64_t row = args.q.extent(0) - 1;
  const auto keys = reference::attended_keys(args, row);
  trace.keys = std::ssize(keys);
  for (int64_t head = 0; head < args.q.extent(1); ++head) {
    trace.sinks.push_back(reference::sink_share(args, row, head, keys));
  }
}

void StepRecorder::ran(std::string_view, double seconds, const Cost& cost) {
  if (step_ == nullptr) return;
  step_->seconds += seconds;
  // An operation the survey did not meet (none that steps of text take) has no node.
  const auto place = explorer_.places.find(path_of(scopes_));
  const std::string& id = place == explorer_.places.end() ? explorer_.root.id : place->second.node;
  if (step_->nodes.empty() || step_->nodes.back().id != id ||
      step_->nodes.back().layer != layer()) {
    step_->nodes.push_back({.id = id, .layer = layer()});
  }
  step_->nodes.back().seconds += seconds;
  step_->nodes.back().bytes += cost.bytes();
  step_->nodes.back().flops += cost.flops;
}

}  // namespace cachalot
