#include "server/llama_fields.h"

#include <algorithm>
#include <limits>

#include "server/common_fields.h"

namespace cachalot {
namespace {

// [[id, bias], ...] -> {"id": bias}; a bias of false forbids the token.
ApiResult<Json> bias_by_id(const Json::Array& pairs) {
  constexpr double kForbidden = -100;
  Json result(Json::Object{});
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Json::Array* pair = pairs[i].array();
    const auto id = pair && pair->size() == 2 ? pair->front().int64() : std::nullopt;
    if (!id)
      return refuse(fmt::format("logit_bias[{}]", i), "expected [token id, bias], found {}",
                    found(pairs[i]));
    const bool forbidden = pair->back().boolean() && !*pair->back().boolean();
    result.set(std::to_string(*id), forbidden ? Json(kForbidden) : pair->back());
  }
  return result;
}

// The body without what /completions calls by another name.
Json without(const Json& body, std::initializer_list<std::string_view> names) {
  Json result(Json::Object{});
  for (const Json::Member& member : *body.object())
    if (std::ranges::find(names, member.key) == names.end()) result.set(member.key, member.value);
  return result;
}

bool is_list(const Json* prompt) {
  const Json::Array* array = prompt ? prompt->array() : nullptr;
  return array && !array->empty() && (array->front().string() || array->front().array());
}

// The texts of input_extra, each on lines of its own before the prefix.
ApiResult<std::string> extra_text(const RequestFields& fields) {
  std::string text;
  CACHALOT_TRY(const Json* extra, fields.array("input_extra"));
  for (size_t i = 0; extra && i < extra->array()->size(); ++i) {
    const Json& chunk = (*extra->array())[i];
    const std::string where = fmt::format("input_extra[{}]", i);
    if (!chunk.object()) return refuse(where, "expected an object, found {}", found(chunk));
    CACHALOT_TRY(const auto part, RequestFields(chunk, where).string("text"));
    if (!part) return refuse(where + ".text", "expected a string, found nothing");
    text += *part + "\n";
  }
  return text;
}

}  // namespace

ApiResult<LlamaCall> read_llama_completion(const Json& body, const Service& service) {
  const RequestFields fields(body);
  // Several prompts are a list, the answers to one are not asked for here.
  Json translated = without(body, {"n_predict", "n_probs", "logit_bias", "echo", "logprobs",
                                   "max_tokens", "max_completion_tokens", "best_of", "n"});
  CACHALOT_TRY(const auto length,
               fields.integer("n_predict", -2, std::numeric_limits<int64_t>::max()));
  if (length && *length > 0) translated.set("max_tokens", Json::integer(*length));
  if (!length && fields.member("max_tokens"))
    translated.set("max_tokens", *fields.member("max_tokens"));
  CACHALOT_TRY(const auto probabilities, fields.integer("n_probs", 0, kMostTopLogprobs));
  if (probabilities && *probabilities > 0)
    translated.set("logprobs", Json::integer(*probabilities));
  if (const Json* bias = fields.member("logit_bias")) {
    if (const Json::Array* pairs = bias->array()) {
      CACHALOT_TRY(Json object, bias_by_id(*pairs));
      translated.set("logit_bias", std::move(object));
    } else {
      translated.set("logit_bias", *bias);
    }
  }
  LlamaCall result;
  CACHALOT_TRY(result.call, read_completion_call(translated, service));
  result.several = is_list(fields.member("prompt"));
  CACHALOT_TRY(const auto tokens, fields.boolean("return_tokens"));
  result.tokens = tokens.value_or(false);
  for (ChatRequest& request : result.call.requests) {
    // The ids come with the probabilities.
    if (result.tokens) request.logprobs = true;
    if (length && *length == 0) request.prompt_only = true;
    // No limit at all, the server's default neither.
    if (length && *length < 0) request.max_tokens = 0;
  }
  return result;
}

ApiResult<LlamaCall> read_llama_infill(const Json& body, const Service& service) {
  const RequestFields fields(body);
  CACHALOT_TRY(const auto prefix, fields.string("input_prefix"));
  CACHALOT_TRY(const auto suffix, fields.string("input_suffix"));
  CACHALOT_TRY(const auto begun, fields.string("prompt"));
  CACHALOT_TRY(const std::string extra, extra_text(fields));
  if (!prefix) return refuse("input_prefix", "expected a string, found nothing");
  if (!suffix) return refuse("input_suffix", "expected a string, found nothing");
  Json translated = without(body, {"input_prefix", "input_suffix", "input_extra", "prompt"});
  translated.set("prompt", Json(extra + *prefix + begun.value_or("")));
  translated.set("suffix", Json(*suffix));
  return read_llama_completion(translated, service);
}

}  // namespace cachalot
