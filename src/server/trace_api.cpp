// What happens inside the model while it answers: POST /trace (inspect/live_trace.h).
#include <cmath>

#include "server/chat_fields.h"
#include "server/reply.h"
#include "server/router.h"
#include "tokenizer/detokenizer.h"

namespace cachalot {
namespace {

constexpr int64_t kMostPrompt = 512, kMostAnswer = 64;

ApiResult<LiveTraceRequest> read_trace_request(const Json& body, const Service& service) {
  const RequestFields fields(body);
  CACHALOT_TRY(const auto text, fields.string("prompt"));
  if (!text || text->empty()) return refuse("prompt", "expected a text that is not empty");
  CACHALOT_TRY(const auto raw, fields.boolean("raw"));
  CACHALOT_TRY(const auto most, fields.integer("max_tokens", 1, kMostAnswer));
  LiveTraceRequest request{.max_tokens = most.value_or(8)};
  if (raw.value_or(false)) {
    request.prompt = service.tokenizer().encode(*text, EncodeMode::plain);
    if (const auto bos = service.tokenizer().bos_id())
      request.prompt.insert(request.prompt.begin(), *bos);
  } else {
    ChatOptions options = service.new_request().conversation.options;
    options.thinking = false;
    Json chat(Json::Object{{"messages", Json(Json::Array{Json(Json::Object{
                                            {"role", Json("user")}, {"content", Json(*text)}})})}});
    CACHALOT_TRY(const Conversation conversation, read_conversation(chat, options));
    CACHALOT_TRY(const Prompt prompt, service.prompt_of(conversation));
    request.prompt = encode_prompt(prompt, service.tokenizer());
  }
  if (std::ssize(request.prompt) > kMostPrompt) {
    return refuse("prompt", "{} tokens: a trace takes at most {}", request.prompt.size(),
                  kMostPrompt);
  }
  return request;
}

Json number_json(int32_t value) { return Json::integer(int64_t{value}); }
Json number_json(int64_t value) { return Json::integer(value); }
// Six decimals are more than anyone sees.
Json number_json(float value) { return Json(std::round(static_cast<double>(value) * 1e6) / 1e6); }

template <class T>
Json list_json(std::span<const T> values) {
  Json::Array list;
  for (const T value : values) list.push_back(number_json(value));
  return Json(std::move(list));
}

// Rows of entries; what follows the last one is -1 and left out.
template <class T>
Json rows_json(const TraceTable<T>& table, bool padded = false) {
  Json::Array rows;
  for (int64_t row = 0; row < table.rows(); ++row) {
    std::span<const T> values = table.row(row);
    while (padded && !values.empty() && values.back() < 0) values = values.first(values.size() - 1);
    rows.push_back(list_json(values));
  }
  return Json(std::move(rows));
}

Json layer_json(const LayerTrace& layer) {
  Json json(Json::Object{{"layer", Json::integer(layer.layer)}});
  const auto add = [&](const char* name, const auto& table, bool padded = false) {
    if (table.rows() > 0) json.set(name, rows_json(table, padded));
  };
  add("experts", layer.experts);
  add("shares", layer.shares);
  if (layer.picks.rows() > 0) json.set("ratio", Json::integer(layer.ratio));
  add("picks", layer.picks, true);
  add("candidates", layer.candidates, true);
  if (layer.candidates.rows() > 0)
    json.set("candidate_block", Json::integer(layer.candidate_block));
  if (layer.engram_gates.rows() > 0) {
    json.set("engram", Json(Json::Object{{"rows", rows_json(layer.engram_rows)},
                                         {"gate", rows_json(layer.engram_gates)}}));
  }
  Json mixes(Json::Object{});
  for (const auto& [name, mix] :
       {std::pair{"attention", &layer.attention_mix}, std::pair{"experts", &layer.experts_mix}}) {
    if (mix->pre.rows() == 0) continue;
    mixes.set(name, rows_json(mix->pre));
    mixes.set(std::string(name) + "_post", rows_json(mix->post));
    mixes.set(std::string(name) + "_comb", rows_json(mix->comb));
  }
  if (layer.attention_mix.pre.rows() > 0) json.set("mix", std::move(mixes));
  if (!layer.sinks.empty()) {
    json.set("sinks", list_json(std::span<const float>(layer.sinks)));
    json.set("keys", Json::integer(layer.keys));
  }
  return json;
}

Json node_json(const NodeTrace& node, const LiveExplorer& live) {
  const auto bytes = static_cast<double>(node.bytes);
  const auto flops = static_cast<double>(node.flops);
  return Json(Json::Object{{"id", Json(node.id)},
                           {"layer", Json::integer(node.layer)},
                           {"seconds", Json(node.seconds)},
                           {"bytes", Json::integer(node.bytes)},
                           {"flops", Json::integer(node.flops)},
                           {"floor_seconds", Json(std::max(bytes / live.bytes_per_second,
                                                           flops / live.operations_per_second))}});
}

Json step_json(const StepTrace& step, const LiveExplorer& live) {
  Json::Array layers, nodes;
  for (const LayerTrace& layer : step.layers) layers.push_back(layer_json(layer));
  for (const NodeTrace& node : step.nodes) nodes.push_back(node_json(node, live));
  Json json(Json::Object{{"kind", Json(std::string(name_of(step.kind)))},
                         {"tokens", list_json(std::span<const int32_t>(step.tokens))},
                         {"positions", list_json(std::span<const int64_t>(step.positions))},
                         {"seconds", Json(step.seconds)},
                         {"layers", Json(std::move(layers))},
                         {"nodes", Json(std::move(nodes))}});
  if (step.rows_left_out > 0) {
    json.set("truncated", Json(fmt::format("the first {} rows are left out", step.rows_left_out)));
  }
  if (step.kind == StepTrace::Kind::draft) {
    json.set("drafts",
             Json(Json::Object{{"proposed", list_json(std::span<const int32_t>(step.proposed))}}));
  }
  if (step.kind == StepTrace::Kind::verify) {
    json.set(
        "drafts",
        Json(Json::Object{{"proposed", list_json(std::span<const int32_t>(step.tokens).subspan(1))},
                          {"accepted", Json::integer(step.accepted)}}));
  }
  return json;
}

Json tokens_json(std::span<const int32_t> ids, const Tokenizer& tokenizer) {
  Json::Array tokens;
  for (const int32_t id : ids) {
    tokens.push_back(Json(Json::Object{{"id", Json::integer(int64_t{id})},
                                       {"text", Json(decode(tokenizer, std::span(&id, 1)))}}));
  }
  return Json(std::move(tokens));
}

ApiResult<Json> trace(Service& service, std::string_view body) {
  CACHALOT_TRY(const Json fields, parse_request_body(body));
  CACHALOT_TRY(LiveTraceRequest request, read_trace_request(fields, service));
  CACHALOT_TRY(const LiveTrace trace, service.trace(std::move(request)));
  Json::Array steps;
  for (const StepTrace& step : trace.steps) {
    steps.push_back(step_json(step, *service.live_explorer()));
  }
  return Json(Json::Object{{"tokens", tokens_json(trace.prompt, service.tokenizer())},
                           {"prompt_tokens", Json::integer(std::ssize(trace.prompt))},
                           {"generated", tokens_json(trace.generated, service.tokenizer())},
                           {"steps", Json(std::move(steps))}});
}

void handle_trace(Service& service, HttpExchange& exchange, const std::string&) {
  const ApiResult<Json> reply = trace(service, exchange.request().body);
  if (!reply) return send_error(exchange, reply.error());
  send_json(exchange, 200, *reply);
}

}  // namespace

void add_trace_routes(Router& router) { router.add_api("POST", "/trace", handle_trace); }

}  // namespace cachalot
