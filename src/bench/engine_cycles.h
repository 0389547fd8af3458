// What a cycle of an engine takes, the host's part included: a step for each of some answers, with
// drafts or without, and the choice of their tokens.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "bench/row.h"
#include "engine/engine.h"

namespace cachalot::bench {

struct CycleOptions {
  EngineOptions engine;  // sequences and context are set here
  int64_t prompt = 64;   // tokens of every answer before the first cycle
  int64_t cycles = 32;   // timed; the first ones are not
  // Seconds. Prompts that would take longer are left out; cycles of which 32 would are fewer.
  double patience = 20;
  std::string filter;  // of row names (row_matches)
};

struct EngineCycles {
  std::string engine;  // its description
  // cycle/greedy/answers1, cycle/greedy/answers64, cycle/drafts/answers1 (the model's whole block)
  // and cycle/sampled/answers32; tokens per second of all answers together.
  std::vector<Row> rows;
  std::vector<std::string> notes;  // what was left out, and why
};

// Whether the filter (row_matches) leaves any row.
bool any_cycle_matches(const std::string& filter);

// Random prompts to the checkpoint in a folder, which needs no tokenizer. Errors: see
// Checkpoint::open and make_engine.
Result<EngineCycles> measure_cycles(const std::filesystem::path& folder,
                                    const CycleOptions& options,
                                    const std::function<void(const Row&)>& on_row = {});

}  // namespace cachalot::bench
