// A service without a model, for tests of what happens before an answer.
#pragma once

#include "base/check.h"
#include "server/service.h"
#include "tokenizer/tokenizer.h"

namespace cachalot::test {

class TestService final : public Service {
 public:
  explicit TestService(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {
    defaults_.model_names = {"test"};
    defaults_.seed = 1;
    defaults_.context = 4096;
  }

  const ServiceDefaults& defaults() const override { return defaults_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const Engine& engine() const override { CACHALOT_CHECK(false, "there is no engine"); }
  SchedulerState state() const override { return {}; }
  ApiResult<std::vector<std::unique_ptr<AnswerStream>>> answer_all(
      std::vector<ChatRequest>) override {
    return fail(ApiError(503, "there is no model"));
  }

 private:
  Tokenizer tokenizer_;
  ServiceDefaults defaults_;
};

}  // namespace cachalot::test
