// Decodes several answers together, each with its own sampling and drafts.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/generation.h"
#include "engine/speculation.h"

namespace cachalot::test {

struct BatchAnswer {
  std::span<const int32_t> prompt;
  GenerationParameters parameters;
  DraftParameters drafts;
};

struct BatchCounts {
  int64_t cycles = 0, drafted = 0, accepted = 0;
};

struct BatchResult {
  std::vector<std::vector<int32_t>> ids;
  std::vector<BatchCounts> counts;
};

class AnswerBatch {
 public:
  // Opens as many sequences; prompts of any number up to that may then be answered.
  AnswerBatch(Engine& engine, int64_t sequences) : engine_(engine) {
    for (int64_t i = 0; i < sequences; ++i) sequences_.push_back(*engine.open_sequence());
  }
  AnswerBatch(const AnswerBatch&) = delete;
  AnswerBatch& operator=(const AnswerBatch&) = delete;
  ~AnswerBatch() {
    for (const int32_t sequence : sequences_) engine_.close_sequence(sequence);
  }

  int32_t sequence(size_t i) const { return sequences_[i]; }

  // `cached`: the prompts are those of the call before, and stay in the caches but for their last
  // token.
  BatchResult decode(std::span<const BatchAnswer> answers, bool cached = false) {
    BatchResult result{.ids = std::vector<std::vector<int32_t>>(answers.size()),
                       .counts = std::vector<BatchCounts>(answers.size())};
    std::vector<State> states;
    for (size_t i = 0; i < answers.size(); ++i) {
      states.push_back(begin(answers[i], sequences_[i], cached, result.ids[i]));
    }
    while (cycle(answers, states, result)) {
    }
    return result;
  }

 private:
  struct State {
    Sampler sampler;
    DraftDepth depth;
    bool going_on = true;
  };

  static bool goes_on(const BatchAnswer& answer, const std::vector<int32_t>& ids) {
    const auto& ends = answer.parameters.end_tokens;
    return std::ranges::find(ends, ids.back()) == ends.end() &&
           std::ssize(ids) < answer.parameters.max_tokens;
  }

  template <class T>
  static T must(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
  }
  static void must(Status status) {
    if (!status) throw std::runtime_error(status.error().message);
  }

  State begin(const BatchAnswer& answer, int32_t sequence, bool cached, std::vector<int32_t>& ids) {
    const auto total = std::ssize(answer.prompt);
    must(engine_.truncate(sequence, cached ? total - 1 : 0));
    StepResult step;
    for (int64_t first = engine_.length(sequence); first < total;) {
      const int64_t count = std::min(total - first, engine_.options().max_step_tokens);
      const SequenceStep part{
          .sequence = sequence,
          .tokens = answer.prompt.subspan(static_cast<size_t>(first), static_cast<size_t>(count))};
      step = must(engine_.step({.sequences = {&part, 1}, .draft_taps = true}));
      first += count;
    }
    const GenerationParameters& parameters = answer.parameters;
    State state{Sampler(parameters.sampling, answer.prompt, parameters.choice, parameters.mask),
                DraftDepth(answer.drafts, engine_.config().dspark_block_size)};
    const auto vocabulary = static_cast<size_t>(engine_.config().vocab_size);
    ids.push_back(must(state.sampler.sample({step.logits.data, vocabulary}, total)));
    state.sampler.accept(ids.back());
    state.going_on = goes_on(answer, ids);
    return state;
  }

  // False: every answer has ended.
  bool cycle(std::span<const BatchAnswer> answers, std::vector<State>& states,
             BatchResult& result) {
    std::vector<CycleRequest> requests;
    std::vector<size_t> owners;
    for (size_t i = 0; i < answers.size(); ++i) {
      if (!states[i].going_on) continue;
      owners.push_back(i);
      requests.push_back(
          {.sequence = sequences_[i],
           .anchor = result.ids[i].back(),
           .sampler = &states[i].sampler,
           .depth = &states[i].depth,
           .most_tokens = answers[i].parameters.max_tokens - std::ssize(result.ids[i]),
           .take = [&, i](int32_t token, std::span<const float>) {
             result.ids[i].push_back(token);
             return states[i].going_on = goes_on(answers[i], result.ids[i]);
           }});
    }
    if (requests.empty()) return false;
    const auto cycles = must(speculative_cycle(engine_, costs_, requests, true)).cycles;
    for (size_t c = 0; c < cycles.size(); ++c) {
      must(cycles[c].status);
      BatchCounts& counts = result.counts[owners[c]];
      ++counts.cycles;
      counts.drafted += cycles[c].drafted;
      counts.accepted += cycles[c].accepted;
    }
    return true;
  }

  Engine& engine_;
  std::vector<int32_t> sequences_;
  StepCosts costs_;
};

}  // namespace cachalot::test
