#include "sampling_options.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <random>

namespace cachalot {
namespace {

template <class T>
bool parse_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Result<std::pair<int32_t, double>> parse_bias(const std::string& text) {
  const size_t equals = text.find('=');
  std::pair<int32_t, double> bias;
  if (equals == std::string::npos ||
      !parse_whole(std::string_view(text).substr(0, equals), bias.first) ||
      !parse_whole(std::string_view(text).substr(equals + 1), bias.second))
    return fail("--logit-bias: expected ID=VALUE, for example 42=-5, found '{}'", text);
  return bias;
}

// CLI11 alone takes -1 for a huge number and a number that is too big for the biggest.
template <class T>
std::string whole_number_error(const std::string& text) {
  T value{};
  if (parse_whole(text, value)) return "";
  return fmt::format("expected a whole number from {} to {}, found {}",
                     std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), text);
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

void add_sampling_options(CLI::App& command, SamplingOptions& options) {
  constexpr const char* kGroup = "Sampling (defaults: the model's generation_config.json)";
  const auto add = [&](const char* names, auto& value, const char* help) {
    return command.add_option(names, value, help)->group(kGroup);
  };
  add("--temperature,--temp", options.temperature, "0 to 2; 0: always the most probable token");
  add("--top-k", options.top_k, "Keep the K most probable tokens; 0: all")
      ->check(whole_number_error<int64_t>);
  add("--top-p", options.top_p, "Keep the most probable tokens that reach this probability");
  add("--min-p", options.min_p, "Keep tokens of at least this share of the best one's probability");
  add("--seed", options.seed, "Same seed, same answer (default: random)")
      ->check(whole_number_error<uint64_t>);
  add("--repetition-penalty,--repeat-penalty", options.repetition_penalty,
      "Above 1: tokens of prompt and answer become less likely");
  add("--presence-penalty", options.presence_penalty, "-2 to 2, once for tokens of the answer");
  add("--frequency-penalty", options.frequency_penalty, "-2 to 2, per occurrence in the answer");
  add("--logit-bias", options.logit_bias, "ID=VALUE, -100 to 100, may be repeated")
      ->allow_extra_args(false);
  add("--stop", options.stops, "End the answer before this text, may be repeated")
      ->allow_extra_args(false);
  add("-n,--max-tokens", options.max_tokens,
      "Longest answer in tokens; 0: until the context is full")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
}

Result<AnswerParameters> answer_parameters(const SamplingOptions& options,
                                           const GenerationConfig& defaults, int64_t vocab_size) {
  AnswerParameters parameters;
  parameters.generation.end_tokens = defaults.end_tokens;
  parameters.generation.max_tokens = options.max_tokens.value_or(defaults.max_tokens);
  SamplingParameters& sampling = parameters.generation.sampling;
  sampling = defaults.sampling;
  const auto replace = [](auto& value, const auto& given) { value = given.value_or(value); };
  replace(sampling.temperature, options.temperature);
  replace(sampling.top_k, options.top_k);
  replace(sampling.top_p, options.top_p);
  replace(sampling.min_p, options.min_p);
  replace(sampling.repetition_penalty, options.repetition_penalty);
  replace(sampling.presence_penalty, options.presence_penalty);
  replace(sampling.frequency_penalty, options.frequency_penalty);
  sampling.seed = options.seed ? *options.seed : random_seed();
  for (const std::string& text : options.logit_bias) {
    CACHALOT_TRY(const auto bias, parse_bias(text));
    sampling.logit_bias.push_back(bias);
  }
  CACHALOT_OK(validate(sampling, vocab_size));
  for (const std::string& stop : options.stops)
    if (stop.empty()) return fail("--stop: expected some text, found an empty string");
  parameters.stops = options.stops;
  return parameters;
}

}  // namespace cachalot
