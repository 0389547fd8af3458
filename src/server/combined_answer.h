// Several requests read as one: their choices are numbered through.
#pragma once

#include <memory>
#include <vector>

#include "server/answer_stream.h"

namespace cachalot {

// Gives out the events of the first answer, then those of the second, and so on.
class CombinedAnswer final : public AnswerStream {
 public:
  CombinedAnswer(std::vector<std::unique_ptr<AnswerStream>> answers, int64_t choices_of_each)
      : answers_(std::move(answers)), choices_(choices_of_each) {}

  std::optional<AnswerEvent> next(std::chrono::milliseconds wait) override;
  bool done() const override;
  void cancel() override;

 private:
  std::vector<std::unique_ptr<AnswerStream>> answers_;
  int64_t choices_;
  size_t current_ = 0;  // of the reader
};

}  // namespace cachalot
