#include "server/reply.h"

#include <cmath>
#include <ctime>
#include <random>

namespace cachalot {

void send_json(HttpExchange& exchange, int status, const Json& json, HttpHeaders headers) {
  exchange.send(status, "application/json", json.dump(), std::move(headers));
}

HttpHeaders retry_after(const ApiError& error) {
  if (error.retry_after <= 0) return {};
  const double seconds = std::min(std::ceil(error.retry_after), 3600.0);
  return {{"Retry-After", fmt::format("{}", static_cast<int64_t>(seconds))}};
}

void send_error(HttpExchange& exchange, const ApiError& error) {
  send_json(exchange, error.status, error_json(error), retry_after(error));
}

EventStream::EventStream(HttpExchange& exchange) : exchange_(exchange) {
  exchange_.begin(200, "text/event-stream",
                  {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
}

bool EventStream::send(const Json& data) {
  return exchange_.write(fmt::format("data: {}\n\n", data.dump()));
}

bool EventStream::send(std::string_view event, const Json& data) {
  return exchange_.write(fmt::format("event: {}\ndata: {}\n\n", event, data.dump()));
}

bool EventStream::send_done() { return exchange_.write("data: [DONE]\n\n"); }

bool EventStream::keep_alive() { return exchange_.write(": keep-alive\n\n"); }

void EventStream::end() { exchange_.end(); }

void note_usage(HttpExchange& exchange, const Usage& usage) {
  exchange.note("prompt", std::to_string(usage.prompt_tokens));
  exchange.note("cached", std::to_string(usage.cached_tokens));
  exchange.note("completion", std::to_string(usage.completion_tokens));
}

std::string random_id(std::string_view prefix) {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return fmt::format("{}{:016x}{:08x}", prefix, generator(),
                     static_cast<uint32_t>(generator() >> 32));
}

int64_t unix_time() { return static_cast<int64_t>(std::time(nullptr)); }

}  // namespace cachalot
