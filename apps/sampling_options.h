// The flags that say how tokens are drawn and when an answer ends.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "answer.h"
#include "generation_config.h"

namespace cachalot {

// Absent: the model's generation_config.json decides.
struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;  // ID=VALUE
  std::vector<std::string> stops;
  std::optional<int64_t> max_tokens;
};

void add_sampling_options(CLI::App& command, SamplingOptions& options);

// Errors: a value out of range, a logit bias that is not ID=VALUE, an empty stop string.
Result<AnswerParameters> answer_parameters(const SamplingOptions& options,
                                           const GenerationConfig& defaults, int64_t vocab_size);

}  // namespace cachalot
