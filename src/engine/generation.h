// One answer after another on one sequence of an engine: prefill, then token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/draft_depth.h"
#include "engine/engine.h"
#include "engine/prefill.h"
#include "engine/sampler.h"

namespace cachalot {

struct PromptImages;

enum class FinishReason {
  stop,       // an end token, or on_token asked to end
  length,     // max_tokens, or the context is full
  cancelled,  // `cancelled` returned true
  deadline,   // the request's time was over
};
std::string_view finish_reason_name(FinishReason reason);

struct GenerationParameters {
  SamplingParameters sampling;
  int64_t max_tokens = 0;  // 0: until the context is full
  std::vector<int32_t> end_tokens;
  uint32_t choice = 0;  // number of the answer to this prompt, for the random numbers
  PrefillMode prefill = PrefillMode::exact;
  TokenMask* mask = nullptr;  // of this answer alone, may be absent
};

// Absent functions are not called.
struct GenerationCallbacks {
  std::function<void(int64_t done, int64_t total)> on_prefill =
      {};                                            // tokens of the prompt, per step
  std::function<bool(int32_t token)> on_token = {};  // not for end tokens; false ends the answer
  std::function<bool()> cancelled = {};              // asked before every step
};

struct GenerationResult {
  std::vector<int32_t> ids;  // with the end token, if one was drawn
  FinishReason finish = FinishReason::stop;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // of the prompt, still in the caches from the answer before
  double prefill_seconds = 0;
  double decode_seconds = 0;  // from the first drawn token to the last
  int64_t cycles = 0;         // steps after the prompt; tokens per step = (ids - 1) / cycles
  int64_t drafted = 0;        // drafts the target checked
  std::vector<int64_t> accepted = {};  // of them taken over, by position in the block
  double saved_seconds = 0;            // against plain decoding, as estimated; negative: lost
};

// Owns one sequence. If a prompt begins with the tokens the sequence holds, only the others are
// computed; the answer is the same as from nothing. (With the prefill shortcut, what is cut off
// depends on where the new tokens begin; an exact answer never builds on a shortcut.)
class Generator {
 public:
  // `engine` outlives the generator. Greedy drafts change the speed, never the text; a model
  // without a draft head does without. Errors: a depth the model cannot draft; see
  // Engine::open_sequence.
  static Result<Generator> open(Engine& engine, const DraftParameters& drafts = {});

  Generator(Generator&& other) noexcept;
  Generator& operator=(Generator&&) = delete;
  ~Generator();

  // `parameters.sampling` have been validated; `images` are the prompt's pictures, absent if it has
  // none. Errors: an empty prompt, one that fills the context,
  // a token outside the vocabulary, unusable logits; the prefill shortcut without an engine or with
  // drafts that allow it. The sequence stays usable.
  Result<GenerationResult> generate(std::span<const int32_t> prompt,
                                    const GenerationParameters& parameters,
                                    const GenerationCallbacks& callbacks = {},
                                    const PromptImages* images = nullptr);

 private:
  // A prompt as the caches see it.
  struct Input {
    std::span<const int32_t> tokens;
    std::vector<int64_t> key;  // per token: its id, or what stands for a token of a picture
    const PromptImages* images = nullptr;
  };

  Generator(Engine& engine, int32_t sequence, const DraftParameters& drafts);

  int64_t context_length() const;
  Status check_prompt(const Input& prompt) const;
  Status check_prefill(PrefillMode mode) const;
  Result<int64_t> keep_common_prefix(const Input& prompt, PrefillMode mode);
  Result<std::span<const float>> run_step(const Input& prompt, const PrefillStep& step);
  Result<std::span<const float>> prefill(const Input& prompt, PrefillMode mode,
                                         const GenerationCallbacks& callbacks);
  Status decode(std::span<const float> logits, int64_t prompt_tokens,
                const GenerationParameters& parameters, const GenerationCallbacks& callbacks,
                Sampler& sampler, GenerationResult& result);

  bool drafting() const { return drafts_.mode != DraftMode::off; }

  Engine* engine_;  // nullptr: moved from
  DraftParameters drafts_;
  StepCosts costs_;
  int32_t sequence_;
  std::vector<int64_t> held_;  // the tokens of the sequence, as in Input::key
  int64_t behind_ = 0;         // of them, the last ones the upper layers have not seen yet
  bool cut_off_ = false;       // the upper layers left some out
};

}  // namespace cachalot
