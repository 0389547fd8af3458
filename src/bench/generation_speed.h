// Tokens per second of real answers, with drafts and without.
#pragma once

#include <filesystem>
#include <vector>

#include "base/result.h"
#include "bench/row.h"
#include "engine/engine.h"

namespace cachalot::bench {

struct GenerationSpeed {
  std::vector<Row> rows;  // answers/plain/tokens1, answers/drafts/tokens1; seconds of one token
  double tokens_per_cycle = 0;
  double speed_up = 0;  // drafts against plain, at the best times
};

struct GenerationOptions {
  EngineOptions engine;
  int64_t prompts = 12;
  int64_t most_tokens = 48;  // of an answer
  int64_t rounds = 2;        // the best counts, plain and drafted in turns
};

// Whether the model folder has prompts of its own (examples.jsonl) to answer.
bool has_examples(const std::filesystem::path& folder);

// Greedy answers to the model's examples. The text is the same with drafts and without; an answer
// that differs is an error. Errors: see load of checkpoint and tokenizer; a line of the examples
// without prompt_ids.
Result<GenerationSpeed> measure_generation(const std::filesystem::path& folder,
                                           const GenerationOptions& options);

}  // namespace cachalot::bench
