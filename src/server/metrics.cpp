#include "server/metrics.h"

#include <cmath>

#include "engine/engine.h"

namespace cachalot {
namespace {

// Label values: backslash, quote and line break are escaped.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

class MetricsWriter {
 public:
  explicit MetricsWriter(const std::string& model)
      : label_(fmt::format("model_name=\"{}\"", escaped(model))) {}

  void counter(std::string_view name, std::string_view help, double value) {
    head(name, help, "counter");
    sample(name, "", value);
  }
  void gauge(std::string_view name, std::string_view help, double value) {
    head(name, help, "gauge");
    sample(name, "", value);
  }
  void head(std::string_view name, std::string_view help, std::string_view type) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  // `labels` beside the model's name: "key=\"value\"".
  void sample(std::string_view name, std::string_view labels, double value) {
    // vLLM's metrics carry the model's name, llama-server's no labels at all.
    std::string all(labels);
    if (!name.starts_with("llamacpp:")) all = all.empty() ? label_ : label_ + "," + all;
    text_ += all.empty() ? fmt::format("{} {}\n", name, value)
                         : fmt::format("{}{{{}}} {}\n", name, all, value);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    head(name, help, "histogram");
    int64_t below = 0;
    const std::string bucket = fmt::format("{}_bucket", name);
    for (size_t i = 0; i < histogram.bounds().size(); ++i) {
      below += histogram.counts()[i];
      sample(bucket, fmt::format("le=\"{}\"", histogram.bounds()[i]), static_cast<double>(below));
    }
    sample(bucket, "le=\"+Inf\"", static_cast<double>(histogram.count()));
    sample(fmt::format("{}_sum", name), "", histogram.sum());
    sample(fmt::format("{}_count", name), "", static_cast<double>(histogram.count()));
  }

  std::string take() { return std::move(text_); }

 private:
  std::string label_;
  std::string text_;
};

double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

void write_own(MetricsWriter& out, const SchedulerState& state) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  out.gauge("cachalot:slots", "Requests that can run at a time.", number(state.slots));
  out.gauge("cachalot:requests_running", "Requests that run.",
            static_cast<double>(state.running.size()));
  out.gauge("cachalot:requests_waiting", "Requests in the queue.", number(state.waiting));
  out.counter("cachalot:requests_refused_total", "Requests that found the queue full.",
              number(state.refused));
  out.counter("cachalot:requests_failed_total", "Requests that ended in an error.",
              number(state.failed));
  out.counter("cachalot:preemptions_total", "Requests put back into the queue.",
              number(state.preemptions));
  out.head("cachalot:requests_finished_total", "Requests by how they ended.", "counter");
  for (size_t i = 0; i < state.finished.size(); ++i)
    out.sample(
        "cachalot:requests_finished_total",
        fmt::format("finished_reason=\"{}\"", finish_reason_name(static_cast<FinishReason>(i))),
        number(state.finished[i]));
  out.counter("cachalot:prompt_tokens_total", "Tokens of prompts, cached ones included.",
              number(state.prompt_tokens));
  out.counter("cachalot:prompt_tokens_cached_total", "Tokens of prompts that were not computed.",
              number(state.cached_tokens));
  out.gauge("cachalot:prefix_cache_entries", "States kept for prompts that begin alike.",
            number(state.cache.entries));
  out.gauge("cachalot:prefix_cache_bytes", "Their memory, pages included.",
            number(state.cache.bytes));
  out.counter("cachalot:prefix_cache_hits_total", "Prompts that went on from one.",
              number(state.cache.hits));
  out.counter("cachalot:prefix_cache_misses_total", "Prompts that found none.",
              number(state.cache.misses));
  out.counter("cachalot:prefix_cache_evictions_total", "States dropped for room.",
              number(state.cache.evictions));
  out.gauge("cachalot:prefix_cache_disk_bytes", "States in the folder of the cache.",
            number(state.cache.disk_bytes));
  out.counter("cachalot:prefix_cache_disk_hits_total", "Hits that were read from there.",
              number(state.cache.disk_hits));
  out.gauge("cachalot:pages", "Pages of cached tokens.", number(state.pages.total));
  out.gauge("cachalot:pages_free", "Of them unused.", number(state.pages.free));
  out.counter("cachalot:generated_tokens_total", "Tokens written.", number(state.generated_tokens));
  out.counter("cachalot:steps_total", "Steps of the engine.", number(state.steps));
  out.counter("cachalot:busy_slots_total", "Running requests, summed over steps.",
              number(state.busy_slots));
  out.counter("cachalot:drafts_total", "Blocks of drafts.", number(state.drafts));
  out.counter("cachalot:drafted_tokens_total", "Drafts the model checked.",
              number(state.drafted_tokens));
  out.counter("cachalot:accepted_tokens_total", "Drafts it took over.",
              number(state.accepted_tokens));
  out.histogram("cachalot:time_to_first_token_seconds", "From request to first token.",
                state.first_token);
  out.histogram("cachalot:inter_token_seconds", "Between two tokens of an answer.",
                state.between_tokens);
  out.histogram("cachalot:request_seconds", "From request to last token.", state.request_time);
  out.histogram("cachalot:step_tokens", "Rows of a step.", state.step_tokens);
}

void write_llama_server(MetricsWriter& out, const SchedulerState& state) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const double computed = number(state.prompt_tokens - state.cached_tokens);
  out.counter("llamacpp:prompt_tokens_total", "Prompt tokens computed.", computed);
  out.counter("llamacpp:prompt_seconds_total", "Time of prompts.", state.prefill_seconds);
  out.gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens per second.",
            rate(computed, state.prefill_seconds));
  out.counter("llamacpp:tokens_predicted_total", "Tokens written.", number(state.generated_tokens));
  out.counter("llamacpp:tokens_predicted_seconds_total", "Time of writing.", state.decode_seconds);
  out.gauge("llamacpp:predicted_tokens_seconds", "Tokens written per second.",
            rate(number(state.generated_tokens), state.decode_seconds));
  out.gauge("llamacpp:requests_processing", "Requests that run.",
            static_cast<double>(state.running.size()));
  out.gauge("llamacpp:requests_deferred", "Requests in the queue.", number(state.waiting));
  out.counter("llamacpp:n_decode_total", "Steps of the engine.", number(state.steps));
  out.gauge("llamacpp:n_busy_slots_per_decode", "Running requests per step.",
            rate(number(state.busy_slots), number(state.steps)));
  out.gauge("llamacpp:n_tokens_max", "The longest sequence so far.",
            number(state.longest_sequence));
  out.counter("llamacpp:spec_decode_num_drafts_total", "Blocks of drafts.", number(state.drafts));
  out.counter("llamacpp:spec_decode_num_draft_tokens_total", "Drafts the model checked.",
              number(state.drafted_tokens));
  out.counter("llamacpp:spec_decode_num_accepted_tokens_total", "Drafts it took over.",
              number(state.accepted_tokens));
  constexpr const char* kByPosition = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total";
  out.head(kByPosition, "Drafts taken over, by place in their block.", "counter");
  for (size_t i = 0; i < state.accepted_by_position.size(); ++i)
    out.sample(kByPosition, fmt::format("position=\"{}\"", i),
               number(state.accepted_by_position[i]));
}

void write_vllm(MetricsWriter& out, const SchedulerState& state) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  out.gauge("vllm:num_requests_running", "Requests that run.",
            static_cast<double>(state.running.size()));
  out.gauge("vllm:num_requests_waiting", "Requests in the queue.", number(state.waiting));
  out.gauge("vllm:kv_cache_usage_perc", "Share of the pages in use.",
            rate(number(state.pages.total - state.pages.free), number(state.pages.total)));
  out.counter("vllm:prefix_cache_queries_total", "Tokens of prompts looked up.",
              number(state.prompt_tokens));
  out.counter("vllm:prefix_cache_hits_total", "Of them found.", number(state.cached_tokens));
  out.counter("vllm:prompt_tokens_total", "Tokens of prompts.", number(state.prompt_tokens));
  out.counter("vllm:generation_tokens_total", "Tokens written.", number(state.generated_tokens));
  out.head("vllm:request_success_total", "Requests by how they ended.", "counter");
  constexpr const char* kReasons[] = {"stop", "length", "abort"};
  for (size_t i = 0; i < std::size(kReasons); ++i)
    out.sample("vllm:request_success_total", fmt::format("finished_reason=\"{}\"", kReasons[i]),
               number(state.finished[i]));
  out.histogram("vllm:time_to_first_token_seconds", "From request to first token.",
                state.first_token);
  out.histogram("vllm:inter_token_latency_seconds", "Between two tokens of an answer.",
                state.between_tokens);
  out.histogram("vllm:e2e_request_latency_seconds", "From request to last token.",
                state.request_time);
  out.histogram("vllm:request_queue_time_seconds", "In the queue.", state.queue_time);
  out.histogram("vllm:request_prefill_time_seconds", "Of the prompt.", state.prefill_time);
  out.histogram("vllm:request_decode_time_seconds", "Of writing.", state.decode_time);
  out.histogram("vllm:request_prompt_tokens", "Tokens of prompts.", state.request_prompt);
  out.histogram("vllm:request_generation_tokens", "Tokens of answers.", state.request_generated);
  out.histogram("vllm:iteration_tokens_total", "Rows of a step.", state.step_tokens);
}

}  // namespace

std::string metrics_text(const Service& service) {
  const SchedulerState state = service.state();
  MetricsWriter out(service.defaults().model_names.front());
  write_own(out, state);
  write_llama_server(out, state);
  write_vllm(out, state);
  return out.take();
}

}  // namespace cachalot
