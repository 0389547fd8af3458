// What is asked of the scheduler, and what it tells whoever asked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/generation.h"
#include "engine/prompt_images.h"
#include "engine/token_chances.h"
#include "engine/token_mask.h"

namespace cachalot {

struct GeneratedToken {
  int32_t id = 0;
  float logprob = 0;             // if log-probabilities were asked for
  std::vector<TokenChance> top;  // the likeliest, best first: GenerationRequest::top_logprobs
  bool end = false;              // an end token: not part of the text
};

struct GenerationRequest {
  std::vector<int32_t> prompt;
  // As for Generator::generate; `mask` is taken from below.
  GenerationParameters parameters;
  std::unique_ptr<TokenMask> mask;                  // of this answer alone, may be absent
  std::shared_ptr<const PromptImages> images = {};  // absent: the prompt is text
  int64_t top_logprobs = -1;     // -1: no log-probabilities, 0: of the tokens drawn only
  bool prompt_logprobs = false;  // of the prompt's tokens too; then nothing is taken from caches
  bool prompt_only = false;      // no answer is wanted
  int64_t priority = 0;          // smaller is served first
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  bool reuse_cache = true;  // go on from what earlier requests left
};

struct GenerationOutcome {
  FinishReason finish = FinishReason::stop;
  std::string error;  // not empty: the request failed, in words
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // of the prompt, not computed again
  int64_t completion_tokens = 0;  // with the end token
  int64_t drafted = 0, accepted = 0;
  double queue_seconds = 0;                 // until a sequence was free
  double prefill_seconds = 0;               // from there to the first token
  double decode_seconds = 0;                // from the first token to the last
  std::vector<GeneratedToken> prompt = {};  // prompt_logprobs: one per token, the first without
};

// Called on the scheduler's thread: must not block, and must not call the scheduler but for
// Ticket::cancel. Absent functions are not called.
struct GenerationListener {
  std::function<void(int64_t done, int64_t total, int64_t cached)> on_prefill = {};
  std::function<bool(const GeneratedToken& token)> on_token = {};        // false ends the answer
  std::function<void(const GenerationOutcome& outcome)> on_finish = {};  // once, the last call
};

}  // namespace cachalot
