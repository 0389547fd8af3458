#include "answer_json.h"

#include <cmath>

#include "answer_printer.h"
#include "server/chat_reply.h"

namespace cachalot {
namespace {

Json usage_json(const GenerationResult& result) {
  const auto completion = static_cast<int64_t>(result.ids.size());
  return Json(Json::Object{
      {"prompt_tokens", Json::integer(result.prompt_tokens)},
      {"completion_tokens", Json::integer(completion)},
      {"total_tokens", Json::integer(result.prompt_tokens + completion)},
  });
}

// Microseconds are as fine as these are known.
Json rounded(double value) { return Json(std::round(value * 1e6) / 1e6); }

Json timings_json(const GenerationResult& result, double load_seconds) {
  return Json(Json::Object{
      {"load_seconds", rounded(load_seconds)},
      {"prefill_seconds", rounded(result.prefill_seconds)},
      {"prefill_tokens_per_second", rounded(prefill_rate(result))},
      {"decode_seconds", rounded(result.decode_seconds)},
      {"decode_tokens_per_second", rounded(decode_rate(result))},
  });
}

// Steps after the prompt, drafts checked, and how many were taken over at each place of a block.
Json drafts_json(const GenerationResult& result) {
  Json::Array accepted;
  for (const int64_t count : result.accepted) accepted.push_back(Json::integer(count));
  return Json(Json::Object{{"steps", Json::integer(result.cycles)},
                           {"tokens_per_step", rounded(tokens_per_step(result))},
                           {"drafted", Json::integer(result.drafted)},
                           {"accepted", Json(std::move(accepted))},
                           {"saved_seconds", rounded(result.saved_seconds)}});
}

}  // namespace

Json answer_json(const Answer& answer, double load_seconds) {
  const ParsedMessage& message = answer.message;
  Json::Array ids;
  for (const int32_t id : answer.generation.ids) ids.push_back(Json::integer(int64_t{id}));
  Json result(Json::Object{
      {"ids", Json(std::move(ids))},
      {"text", Json(answer.text)},
      {"reasoning_content", Json(message.reasoning_content)},
      {"content", Json(message.content)},
      {"tool_calls", tool_calls_json(message.tool_calls)},
      {"finish_reason", Json(message.finish_reason)},
      {"usage", usage_json(answer.generation)},
      {"timings", timings_json(answer.generation, load_seconds)},
      {"drafts", drafts_json(answer.generation)},
  });
  if (!message.warnings.empty()) {
    Json::Array warnings;
    for (const std::string& warning : message.warnings) warnings.push_back(Json(warning));
    result.set("warnings", Json(std::move(warnings)));
  }
  if (!message.failure.empty()) result.set("failure", Json(message.failure));
  return result;
}

}  // namespace cachalot
