// What happened inside the model while it read a prompt and wrote a few tokens: for each step the
// experts each token took, the compressed entries the index layers picked, engram rows and gates,
// the mixes of the hyper-connections, how much attention the sinks took, drafts, and the time and
// traffic of every part.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/draft_depth.h"
#include "engine/engine.h"
#include "inspect/explorer.h"

namespace cachalot {

// A value per row of the step and column.
template <class T>
struct TraceTable {
  int64_t columns = 0;
  std::vector<T> values;

  int64_t rows() const { return columns == 0 ? 0 : std::ssize(values) / columns; }
  std::span<const T> row(int64_t row) const {
    return std::span(values).subspan(static_cast<size_t>(row * columns),
                                     static_cast<size_t>(columns));
  }
};

// Of one layer or draft stage; tables that it does not have are empty.
struct LayerTrace {
  int64_t layer = 0;                // draft stages count on
  int64_t ratio = 0;                // positions per compressed entry
  TraceTable<int32_t> experts;      // [rows, top k]
  TraceTable<float> shares;         // their weights
  TraceTable<int32_t> picks;        // [rows, index_topk] entries, ascending, then -1
  TraceTable<int32_t> candidates;   // [rows, blocks] ascending, then -1
  int64_t candidate_block = 0;      // entries per block
  TraceTable<int64_t> engram_rows;  // [rows, columns]
  TraceTable<float> engram_gates;   // [rows, copies]
  // Of the hyper-connections around attention and around the experts: what collapses the stream,
  // what the sublayer's output adds to each copy, what each copy keeps of the others.
  struct Mix {
    TraceTable<float> pre, post;  // [rows, copies]
    TraceTable<float> comb;       // [rows, copies * copies] from the copy, to the copy
  };
  Mix attention_mix, experts_mix;
  std::vector<float> sinks;  // [heads] share of the attention of the step's last row
  int64_t keys = 0;          // it attended to
};

struct NodeTrace {
  std::string id;  // of the explorer's node
  int64_t layer = -1;
  double seconds = 0;
  int64_t bytes = 0, flops = 0;
};

// Rows of a step that are kept: its last ones.
inline constexpr int64_t kTracedRows = 64;

struct StepTrace {
  enum class Kind { prefill, decode, draft, verify };
  Kind kind = Kind::prefill;
  std::vector<int32_t> tokens;     // of the rows that are kept
  std::vector<int64_t> positions;  // theirs
  int64_t rows_left_out = 0;       // before them
  double seconds = 0;
  std::vector<LayerTrace> layers;
  std::vector<NodeTrace> nodes;   // in the order they ran
  std::vector<int32_t> proposed;  // draft
  int64_t accepted = 0;           // verify: of the drafts
};

struct LiveTrace {
  std::vector<int32_t> prompt, generated;
  std::vector<StepTrace> steps;
};

std::string_view name_of(StepTrace::Kind kind);

struct LiveTraceRequest {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 8;  // greedy
  std::vector<int32_t> end_tokens;
  DraftParameters drafts;
};

// On one sequence of `engine`, made with EngineOptions::watchable. `explorer` is of the same model.
// Errors: as Generator says.
Result<LiveTrace> trace_live(Engine& engine, const Explorer& explorer,
                             const LiveTraceRequest& request);

}  // namespace cachalot
