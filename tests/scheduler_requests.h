// Requests to a scheduler on models/nano, and what they give alone.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <vector>

#include "engine/generation.h"
#include "engine/scheduler.h"
#include "test_engine.h"

namespace cachalot::test {

struct ScheduledText {
  std::vector<int32_t> ids;
  GenerationOutcome outcome;
};

// A request that is under way.
struct Pending {
  Ticket ticket;
  std::shared_ptr<ScheduledText> answer;
  std::future<void> done;

  const ScheduledText& wait() {
    if (done.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      throw std::runtime_error("no answer within a minute");
    }
    return *answer;
  }
};

// No two seeds begin alike.
inline std::vector<int32_t> prompt_of(int seed, int64_t length) {
  std::vector<int32_t> prompt = {0};
  for (int64_t i = 1; i < length; ++i) {
    prompt.push_back(static_cast<int32_t>(40 + (seed * 7919 + i * i * 31) % 400));
  }
  return prompt;
}

inline GenerationRequest request_of(std::vector<int32_t> prompt, int64_t tokens, int seed = 0) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.parameters.max_tokens = tokens;
  request.parameters.sampling.seed = static_cast<uint64_t>(seed);
  request.parameters.sampling.temperature = seed % 3 == 0 ? 0 : 0.9;
  return request;
}

inline GenerationRequest request_of(int seed, int64_t length, int64_t tokens) {
  return request_of(prompt_of(seed, length), tokens, seed);
}

inline Pending submit(Scheduler& scheduler, GenerationRequest request,
                      std::function<void()> on_token = {}) {
  auto answer = std::make_shared<ScheduledText>();
  auto promise = std::make_shared<std::promise<void>>();
  GenerationListener listener;
  listener.on_token = [answer, on_token](const GeneratedToken& token) {
    answer->ids.push_back(token.id);
    if (on_token) on_token();
    return true;
  };
  listener.on_finish = [answer, promise](const GenerationOutcome& outcome) {
    answer->outcome = outcome;
    promise->set_value();
  };
  auto ticket = scheduler.submit(std::move(request), std::move(listener));
  if (!ticket) throw std::runtime_error(ticket.error().message);
  return {*ticket, answer, promise->get_future()};
}

inline EngineOptions scheduled_engine(int64_t sequences, int64_t step_tokens = 64) {
  EngineOptions options;
  options.max_sequences = sequences;
  options.max_context = 512;
  options.max_step_tokens = step_tokens;
  return options;
}

inline std::unique_ptr<Engine> open_nano(const EngineOptions& options) {
  return open_engine(nano_path(), options);
}

// As `run` answers it, from an empty cache.
inline std::vector<int32_t> alone(const GenerationRequest& request) {
  static const std::unique_ptr<Engine> engine = open_nano(scheduled_engine(1));
  auto generator = Generator::open(*engine);
  return generator->generate(request.prompt, request.parameters)->ids;
}

}  // namespace cachalot::test
