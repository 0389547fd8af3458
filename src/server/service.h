// The model as endpoints see it: conversations in, events out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/render.h"
#include "engine/scheduler_state.h"
#include "inspect/live_trace.h"
#include "pictures/picture_reader.h"
#include "server/answer_stream.h"
#include "server/chat_request.h"

namespace cachalot {

class Engine;

// What a request leaves open.
struct ServiceDefaults {
  std::vector<std::string> model_names;  // the first is the one answers carry; never empty
  SamplingParameters sampling;           // the model's generation_config.json and the command line
  std::optional<uint64_t> seed;          // absent: a random one per request
  std::vector<std::string> stops;
  int64_t max_tokens = 0;  // 0: until the context is full
  bool thinking = true;
  int effort = 75;
  int64_t context = 0;         // tokens of prompt and answer together
  double timeout_seconds = 0;  // 0: none
};

// What a server that shows the model's inside knows of it, and what the machine allows.
struct LiveExplorer {
  Explorer explorer;
  double bytes_per_second = 0, operations_per_second = 0;
};

// Safe to use from several threads.
class Service {
 public:
  virtual ~Service() = default;

  virtual const ServiceDefaults& defaults() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const Engine& engine() const = 0;  // its constant parts: configuration, options
  virtual SchedulerState state() const = 0;

  // Whether a request may ask for a model of that name: one of model_names, or any if "*" is among
  // them.
  bool answers_to(std::string_view name) const;

  // A fresh request: conversation options, sampling and max_tokens by the defaults, with a seed.
  ChatRequest new_request() const;

  // Begins an answer. Errors: a conversation that cannot be rendered, a prompt beyond the context
  // (context_length_exceeded), a parameter out of range, a constraint that does not compile, a full
  // queue (429), a server that stops (503).
  ApiResult<std::unique_ptr<AnswerStream>> answer(ChatRequest request);
  // The same for several requests, one stream each: all of them begin or none does. More answers
  // than can ever run and wait here are a 400.
  virtual ApiResult<std::vector<std::unique_ptr<AnswerStream>>> answer_all(
      std::vector<ChatRequest> requests) = 0;

  // nullptr: nobody asked for it.
  virtual const LiveExplorer* live_explorer() const { return nullptr; }
  // Answers while it looks inside; other answers wait. With a live_explorer(). Errors: as answer().
  virtual ApiResult<LiveTrace> trace(LiveTraceRequest request);

  // Tokens of the prompt, pictures included; `abandoned` ends what is fetched for it. Errors: it
  // cannot be rendered, a picture that cannot be read.
  ApiResult<int64_t> count_tokens(const Conversation& conversation,
                                  const Abandoned& abandoned = {}) const;
  // The prompt itself. Errors: it cannot be rendered.
  ApiResult<Prompt> prompt_of(const Conversation& conversation) const;

 protected:
  // What the model wrote in earlier answers; nullptr: nothing is remembered.
  virtual const AnswerMemory* answer_memory() const { return nullptr; }
  // What reads the pictures of conversations; nullptr: nothing does, they are refused.
  virtual PictureReader* pictures() const { return nullptr; }
};

}  // namespace cachalot
