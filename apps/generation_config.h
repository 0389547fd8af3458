// Defaults of sampling that come with a model: its generation_config.json.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "engine/sampler.h"

namespace cachalot {

struct GenerationConfig {
  SamplingParameters sampling;
  int64_t max_tokens = 0;           // 0: until the context is full
  std::vector<int32_t> end_tokens;  // empty: the file names none
};

// Keys: temperature, top_p, top_k, min_p, repetition_penalty, do_sample (false: temperature 0),
// max_new_tokens, eos_token_id (a number or a list); others are ignored. A missing file or key
// leaves temperature 1 and top-p 1. Errors name the file and the key.
Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder,
                                                int64_t vocab_size);

}  // namespace cachalot
