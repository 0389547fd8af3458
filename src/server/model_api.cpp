// The model and its text: /models, /tokenize, /detokenize, /apply-template.
#include "server/chat_fields.h"
#include "server/common_fields.h"
#include "server/reply.h"
#include "server/router.h"
#include "tokenizer/detokenizer.h"

namespace cachalot {
namespace {

using Reply = ApiResult<Json>;

// A handler that turns a body into a reply.
ApiHandler with_body(Reply (*answer)(Json body, Service& service)) {
  return [answer](Service& service, HttpExchange& exchange, const std::string&) {
    ApiResult<Json> body = parse_request_body(exchange.request().body);
    const Reply reply = body ? answer(std::move(*body), service) : fail(body.error());
    if (reply) return send_json(exchange, 200, *reply);
    send_error(exchange, reply.error());
  };
}

Json model_json(const std::string& name, const Service& service) {
  static const int64_t started = unix_time();
  return Json(Json::Object{{"id", Json(name)},
                           {"object", Json("model")},
                           {"created", Json::integer(started)},
                           {"owned_by", Json("cachalot")},
                           {"max_model_len", Json::integer(service.defaults().context)}});
}

void list_models(Service& service, HttpExchange& exchange, const std::string&) {
  Json::Array data;
  for (const std::string& name : service.defaults().model_names)
    if (name != "*") data.push_back(model_json(name, service));
  send_json(exchange, 200,
            Json(Json::Object{{"object", Json("list")}, {"data", Json(std::move(data))}}));
}

void show_model(Service& service, HttpExchange& exchange, const std::string& name) {
  if (service.answers_to(name)) return send_json(exchange, 200, model_json(name, service));
  send_error(exchange, ApiError(404, fmt::format("there is no model \"{}\" here", name), "model",
                                "model_not_found"));
}

// The prompt of a body with messages, or with text under `content` (llama-server) or `prompt`
// (vLLM).
ApiResult<std::vector<int32_t>> tokens_of(Json& body, const Service& service) {
  const RequestFields fields(body);
  if (fields.member("messages")) {
    ChatOptions options = service.new_request().conversation.options;
    CACHALOT_OK(read_thinking(fields, options));
    CACHALOT_TRY(const Conversation conversation, read_conversation(body, options));
    CACHALOT_TRY(const Prompt prompt, service.prompt_of(conversation));
    return encode_prompt(prompt, service.tokenizer());
  }
  const char* key = fields.member("content") ? "content" : "prompt";
  CACHALOT_TRY(const auto text, fields.string(key));
  if (!text) return refuse(key, "expected a string, or messages");
  const char* special_key = fields.member("add_special") ? "add_special" : "add_special_tokens";
  CACHALOT_TRY(const auto special, fields.boolean(special_key));
  CACHALOT_TRY(const auto control, fields.boolean("parse_special"));
  const EncodeMode mode = control.value_or(false) ? EncodeMode::compatible : EncodeMode::plain;
  std::vector<int32_t> ids = service.tokenizer().encode(*text, mode);
  const auto bos = service.tokenizer().bos_id();
  if (special.value_or(false) && bos) ids.insert(ids.begin(), *bos);
  return ids;
}

Reply tokenize(Json body, Service& service) {
  CACHALOT_TRY(const std::vector<int32_t> ids, tokens_of(body, service));
  const RequestFields fields(body);
  CACHALOT_TRY(const auto names, fields.boolean("return_token_strs"));
  CACHALOT_TRY(const auto pieces, fields.boolean("with_pieces"));
  Json::Array tokens, texts;
  for (const int32_t id : ids) {
    Json number = Json::integer(int64_t{id});
    const int32_t one[] = {id};
    Json text(decode(service.tokenizer(), one));
    if (names.value_or(false)) texts.push_back(text);
    if (pieces.value_or(false)) {
      tokens.push_back(Json(Json::Object{{"id", std::move(number)}, {"piece", std::move(text)}}));
    } else {
      tokens.push_back(std::move(number));
    }
  }
  Json reply(Json::Object{{"count", Json::integer(std::ssize(ids))},
                          {"max_model_len", Json::integer(service.defaults().context)},
                          {"tokens", Json(std::move(tokens))}});
  if (names.value_or(false)) reply.set("token_strs", Json(std::move(texts)));
  return reply;
}

Reply detokenize(Json body, Service& service) {
  constexpr int64_t kMost = int64_t{1} << 24;
  const RequestFields fields(body);
  CACHALOT_TRY(const Json* tokens, fields.array("tokens"));
  if (!tokens) return refuse("tokens", "expected an array of token ids, found nothing");
  CACHALOT_TRY(const auto ids,
               read_token_ids(*tokens, "tokens", service.tokenizer().vocab_size(), kMost));
  const std::string text = decode(service.tokenizer(), ids);
  return Json(Json::Object{{"content", Json(text)}, {"prompt", Json(text)}});
}

Reply apply_template(Json body, Service& service) {
  const RequestFields fields(body);
  ChatOptions options = service.new_request().conversation.options;
  CACHALOT_OK(read_thinking(fields, options));
  CACHALOT_TRY(const Conversation conversation, read_conversation(body, options));
  CACHALOT_TRY(const Prompt prompt, render(conversation));
  return Json(Json::Object{{"prompt", Json(prompt.text())}});
}

}  // namespace

void add_model_routes(Router& router) {
  router.add_api("GET", "/models", list_models);
  router.add_api("GET", "/models/{}", show_model);
  router.add_api("POST", "/tokenize", with_body(tokenize));
  router.add_api("POST", "/detokenize", with_body(detokenize));
  router.add_api("POST", "/apply-template", with_body(apply_template));
}

}  // namespace cachalot
