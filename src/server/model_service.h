// The service of one model: its tokenizer, engine and scheduler.
#pragma once

#include "engine/scheduler.h"
#include "grammar/grammar_compiler.h"
#include "server/service.h"
#include "server/written_answers.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {

struct ModelServiceOptions {
  ServiceDefaults defaults;  // context 0: the engine's
  std::vector<int32_t> end_tokens;
  PrefillMode prefill = PrefillMode::exact;
  SchedulerOptions scheduler;
  std::shared_ptr<const LiveExplorer> explorer;  // for an engine that is watchable
};

class ModelService final : public Service {
 public:
  ModelService(Tokenizer tokenizer, std::unique_ptr<Engine> engine,
               std::shared_ptr<PictureReader> pictures, ModelServiceOptions options);

  const ServiceDefaults& defaults() const override { return options_.defaults; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const Engine& engine() const override { return *engine_; }
  SchedulerState state() const override { return scheduler_.state(); }
  ApiResult<std::vector<std::unique_ptr<AnswerStream>>> answer_all(
      std::vector<ChatRequest> requests) override;
  const LiveExplorer* live_explorer() const override { return options_.explorer.get(); }
  ApiResult<LiveTrace> trace(LiveTraceRequest request) override;

  // Takes no more requests; returns when the last is answered.
  void drain() { scheduler_.drain(); }

  // Answers whose ids are known, for tests.
  const WrittenAnswers& written() const { return *written_; }

 private:
  const AnswerMemory* answer_memory() const override { return written_.get(); }
  PictureReader* pictures() const override { return pictures_.get(); }
  ApiResult<std::shared_ptr<const CompiledGrammar>> grammar_for(const ChatRequest& request) const;
  struct Prepared;
  ApiResult<Prepared> prepare(ChatRequest request) const;
  GenerationRequest generation_request(const ChatRequest& request, const ImagePrompt& prompt) const;

  Tokenizer tokenizer_;
  GrammarCompiler grammars_;
  std::shared_ptr<WrittenAnswers> written_ = std::make_shared<WrittenAnswers>();
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<PictureReader> pictures_;
  ModelServiceOptions options_;
  Scheduler scheduler_;
};

}  // namespace cachalot
