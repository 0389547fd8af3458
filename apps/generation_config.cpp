#include "generation_config.h"

#include "base/mapped_file.h"
#include "chat/json_value.h"

namespace cachalot {
namespace {

Status read_number(const Json& config, std::string_view key, double& value) {
  const Json* member = config.find(key);
  if (member == nullptr || member->is_null()) return {};
  if (const double* real = member->real()) {
    value = *real;
  } else if (const auto integer = member->int64()) {
    value = static_cast<double>(*integer);
  } else {
    return fail("{}: expected a number, found {}", key, member->kind_name());
  }
  return {};
}

Status read_count(const Json& config, std::string_view key, int64_t& value) {
  const Json* member = config.find(key);
  if (member == nullptr || member->is_null()) return {};
  const auto integer = member->int64();
  if (!integer || *integer < 0)
    return fail("{}: expected a whole number from 0, found {}", key, member->dump());
  value = *integer;
  return {};
}

Status read_end_tokens(const Json& config, int64_t vocab_size, std::vector<int32_t>& tokens) {
  const Json* member = config.find("eos_token_id");
  if (member == nullptr || member->is_null()) return {};
  const Json::Array one{*member};
  for (const Json& id : member->array() ? *member->array() : one) {
    const auto token = id.int64();
    if (!token || *token < 0 || *token >= vocab_size)
      return fail("eos_token_id: expected token ids from 0 to {}, found {}", vocab_size - 1,
                  id.dump());
    tokens.push_back(static_cast<int32_t>(*token));
  }
  return {};
}

Result<GenerationConfig> parse(std::string_view text, int64_t vocab_size) {
  CACHALOT_TRY(const Json config, parse_json(text));
  if (!config.object()) return fail("expected an object, found {}", config.kind_name());
  GenerationConfig result;
  SamplingParameters& sampling = result.sampling;
  CACHALOT_OK(read_number(config, "temperature", sampling.temperature));
  CACHALOT_OK(read_number(config, "top_p", sampling.top_p));
  CACHALOT_OK(read_number(config, "min_p", sampling.min_p));
  CACHALOT_OK(read_number(config, "repetition_penalty", sampling.repetition_penalty));
  CACHALOT_OK(read_count(config, "top_k", sampling.top_k));
  CACHALOT_OK(read_count(config, "max_new_tokens", result.max_tokens));
  CACHALOT_OK(read_end_tokens(config, vocab_size, result.end_tokens));
  const Json* sample = config.find("do_sample");
  if (sample != nullptr && sample->boolean() && !*sample->boolean()) sampling.temperature = 0;
  CACHALOT_OK(validate(sampling, vocab_size));
  return result;
}

}  // namespace

Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder,
                                                int64_t vocab_size) {
  const std::filesystem::path path = folder / "generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return GenerationConfig{};
  CACHALOT_TRY(const std::string text, read_text_file(path));
  auto config = parse(text, vocab_size);
  if (!config) return fail(config.error().in(path.string()));
  return config;
}

}  // namespace cachalot
