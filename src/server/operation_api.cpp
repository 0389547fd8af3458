// For those who run the server: /metrics, /slots, /props.
#include "engine/engine.h"
#include "server/metrics.h"
#include "server/reply.h"
#include "server/router.h"

namespace cachalot {
namespace {

void show_metrics(Service& service, HttpExchange& exchange, const std::string&) {
  exchange.send(200, "text/plain; version=0.0.4; charset=utf-8", metrics_text(service));
}

// One entry per slot, with llama-server's names for what both know.
void show_slots(Service& service, HttpExchange& exchange, const std::string&) {
  const SchedulerState state = service.state();
  Json::Array slots;
  for (int64_t i = 0; i < state.slots; ++i) {
    Json slot(Json::Object{{"id", Json::integer(i)},
                           {"n_ctx", Json::integer(service.defaults().context)}});
    const auto running = static_cast<size_t>(i) < state.running.size()
                             ? &state.running[static_cast<size_t>(i)]
                             : nullptr;
    slot.set("is_processing", Json(running != nullptr));
    if (running) {
      slot.set("id_task", Json::integer(static_cast<int64_t>(running->request)));
      slot.set("state", Json(running->prefilling ? "prompt" : "answer"));
      slot.set("priority", Json::integer(running->priority));
      slot.set("prompt_tokens", Json::integer(running->prompt_tokens));
      slot.set("held_tokens", Json::integer(running->held_tokens));
      slot.set("generated_tokens", Json::integer(running->generated_tokens));
      slot.set("seconds", Json(running->seconds));
    }
    slots.push_back(std::move(slot));
  }
  send_json(exchange, 200, Json(std::move(slots)));
}

void show_props(Service& service, HttpExchange& exchange, const std::string&) {
  const ServiceDefaults& defaults = service.defaults();
  const SamplingParameters& sampling = defaults.sampling;
  Json parameters(Json::Object{{"temperature", Json(sampling.temperature)},
                               {"top_k", Json::integer(sampling.top_k)},
                               {"top_p", Json(sampling.top_p)},
                               {"min_p", Json(sampling.min_p)},
                               {"max_tokens", Json::integer(defaults.max_tokens)},
                               {"thinking", Json(defaults.thinking)},
                               {"effort", Json::integer(int64_t{defaults.effort})}});
  send_json(
      exchange, 200,
      Json(Json::Object{
          {"default_generation_settings",
           Json(Json::Object{{"n_ctx", Json::integer(defaults.context)},
                             {"params", std::move(parameters)}})},
          {"total_slots", Json::integer(service.state().slots)},
          {"model_alias", Json(defaults.model_names.front())},
          {"engine", Json(service.engine().description())},
          {"modalities", Json(Json::Object{{"vision", Json(service.engine().config().has_vision())},
                                           {"audio", Json(false)}})},
          {"explore", Json(service.live_explorer() != nullptr)},
      }));
}

}  // namespace

void add_operation_routes(Router& router, bool metrics) {
  if (metrics) router.add("GET", "/metrics", show_metrics);
  for (const char* base : {"", "/v1"}) {
    router.add("GET", std::string(base) + "/slots", show_slots);
    router.add("GET", std::string(base) + "/props", show_props);
  }
}

}  // namespace cachalot
