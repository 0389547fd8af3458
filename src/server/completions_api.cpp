// /completions: text that is continued as it is, or filled in the middle.
#include "server/combined_answer.h"
#include "server/completion_reply.h"
#include "server/llama_reply.h"
#include "server/reply.h"
#include "server/request_fields.h"
#include "server/router.h"

namespace cachalot {
namespace {

ApiStatus answer_completion(Service& service, HttpExchange& exchange) {
  CACHALOT_TRY(const Json body, parse_request_body(exchange.request().body));
  CACHALOT_TRY(CompletionCall call, read_completion_call(body, service));
  CompletionReply reply(call, call.requests.front().logprobs);
  CACHALOT_TRY(auto answers, service.answer_all(std::move(call.requests)));
  CombinedAnswer all(std::move(answers), call.choices);
  send_reply(exchange, all, reply, call.stream);
  return {};
}

using ReadLlama = ApiResult<LlamaCall> (*)(const Json& body, const Service& service);

ApiStatus answer_llama(Service& service, HttpExchange& exchange, ReadLlama read) {
  CACHALOT_TRY(const Json body, parse_request_body(exchange.request().body));
  CACHALOT_TRY(LlamaCall call, read(body, service));
  LlamaReply reply(call);
  CACHALOT_TRY(auto answers, service.answer_all(std::move(call.call.requests)));
  CombinedAnswer all(std::move(answers), 1);
  send_reply(exchange, all, reply, call.call.stream);
  return {};
}

ApiHandler llama_handler(ReadLlama read) {
  return [read](Service& service, HttpExchange& exchange, const std::string&) {
    const ApiStatus status = answer_llama(service, exchange, read);
    if (!status) send_error(exchange, status.error());
  };
}

}  // namespace

void add_completion_routes(Router& router) {
  router.add_api("POST", "/completions",
                 [](Service& service, HttpExchange& exchange, const std::string&) {
                   const ApiStatus status = answer_completion(service, exchange);
                   if (!status) send_error(exchange, status.error());
                 });
  router.add("POST", "/completion", llama_handler(read_llama_completion));
  router.add("POST", "/infill", llama_handler(read_llama_infill));
}

}  // namespace cachalot
