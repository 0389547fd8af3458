#include "server/common_fields.h"

#include <charconv>
#include <limits>

#include "server/reply.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {
namespace {

constexpr int64_t kMostTokenIds = 4096;  // of stop_token_ids and logit_bias

// A field that replaces a default of the same meaning.
template <class T, class U>
ApiStatus replace(ApiResult<std::optional<T>> given, U& value) {
  if (!given) return fail(given.error());
  if (*given) value = static_cast<U>(**given);
  return {};
}

ApiStatus read_sampling(const RequestFields& fields, SamplingParameters& sampling) {
  CACHALOT_OK(replace(fields.number("temperature", 0, 2), sampling.temperature));
  CACHALOT_OK(replace(fields.number("top_p", 0, 1), sampling.top_p));
  CACHALOT_OK(replace(fields.number("min_p", 0, 1), sampling.min_p));
  CACHALOT_OK(replace(fields.number("presence_penalty", -2, 2), sampling.presence_penalty));
  CACHALOT_OK(replace(fields.number("frequency_penalty", -2, 2), sampling.frequency_penalty));
  for (const char* name : {"repeat_penalty", "repetition_penalty"})
    CACHALOT_OK(replace(fields.number(name, 1e-6, 10), sampling.repetition_penalty));
  CACHALOT_OK(replace(fields.integer("top_k", -1, int64_t{1} << 31), sampling.top_k));
  sampling.top_k = std::max<int64_t>(sampling.top_k, 0);
  CACHALOT_TRY(const auto seed, fields.integer("seed", -1, std::numeric_limits<int64_t>::max()));
  if (seed && *seed >= 0) sampling.seed = static_cast<uint64_t>(*seed);
  return {};
}

ApiStatus read_logit_bias(const RequestFields& fields, int64_t vocab_size,
                          SamplingParameters& sampling) {
  CACHALOT_TRY(const Json* given, fields.object("logit_bias"));
  if (!given) return {};
  if (std::ssize(*given->object()) > kMostTokenIds)
    return refuse("logit_bias", "expected at most {} tokens, found {}", kMostTokenIds,
                  given->object()->size());
  for (const Json::Member& member : *given->object()) {
    int32_t id = -1;
    const char* const end = member.key.data() + member.key.size();
    const auto [stop, error] = std::from_chars(member.key.data(), end, id);
    if (error != std::errc() || stop != end || id < 0 || id >= vocab_size)
      return refuse("logit_bias", "expected token ids from 0 to {} as keys, found \"{}\"",
                    vocab_size - 1, member.key);
    const RequestFields values(*given, fields.path("logit_bias"));
    CACHALOT_TRY(const auto bias, values.number(member.key, -100, 100));
    if (bias) sampling.logit_bias.emplace_back(id, *bias);
  }
  return {};
}

ApiStatus read_stops(const RequestFields& fields, int64_t vocab_size, ChatRequest& request) {
  CACHALOT_TRY(auto stops, fields.strings("stop", kMostStops, true));
  if (stops) {
    for (const std::string& stop : *stops)
      if (stop.empty()) return refuse("stop", "expected some text, found an empty string");
    request.stops = std::move(*stops);
  }
  CACHALOT_TRY(const Json* ids, fields.array("stop_token_ids"));
  if (ids) {
    CACHALOT_TRY(request.stop_token_ids,
                 read_token_ids(*ids, fields.path("stop_token_ids"), vocab_size, kMostTokenIds));
  }
  CACHALOT_OK(replace(fields.boolean("ignore_eos"), request.ignore_end));
  return {};
}

// What a field asks of the text, if it is there.
struct NamedConstraint {
  std::string name;
  Constraint constraint;
};

ApiResult<Constraint> schema_constraint(const RequestFields& fields, std::string_view key) {
  const Json* given = fields.member(key);
  Constraint constraint{
      .kind = Constraint::kJsonSchema, .schema = *given, .text = {}, .choices = {}};
  // Some clients send the schema as text.
  if (const std::string* text = given->string()) {
    auto parsed = parse_json(*text);
    if (!parsed) return refuse(fields.path(key), "{}", parsed.error().message);
    constraint.schema = std::move(*parsed);
  }
  if (!constraint.schema.object() && !constraint.schema.boolean())
    return refuse(fields.path(key), "expected a JSON schema, found {}", found(constraint.schema));
  return constraint;
}

ApiResult<Constraint> text_constraint(const RequestFields& fields, std::string_view key,
                                      Constraint::Kind kind) {
  CACHALOT_TRY(auto text, fields.string(key));
  if (text->empty()) return refuse(fields.path(key), "expected some text, found an empty string");
  return Constraint{.kind = kind, .schema = {}, .text = std::move(*text), .choices = {}};
}

ApiResult<Constraint> choice_constraint(const RequestFields& fields, std::string_view key) {
  constexpr size_t kMostChoiceTexts = 10000;
  CACHALOT_TRY(auto choices, fields.strings(key, kMostChoiceTexts));
  if (choices->empty()) return refuse(fields.path(key), "expected at least one string");
  return Constraint{
      .kind = Constraint::kChoice, .schema = {}, .text = {}, .choices = std::move(*choices)};
}

// {"type": "text" | "json_object" | "json_schema", ...}; OpenAI's form of the schema, or
// llama.cpp's
// {"type": "json_object", "schema": ...}.
ApiResult<Constraint> response_format(const RequestFields& fields) {
  CACHALOT_TRY(const Json* format, fields.object("response_format"));
  const RequestFields inner(*format, fields.path("response_format"));
  CACHALOT_TRY(const auto type, inner.string("type"));
  if (!type) return refuse(inner.path("type"), "expected text, json_object or json_schema");
  if (*type == "text") return Constraint();
  if (*type == "json_object") {
    if (inner.member("schema")) return schema_constraint(inner, "schema");
    Constraint constraint;
    constraint.kind = Constraint::kJsonObject;
    return constraint;
  }
  if (*type != "json_schema")
    return refuse(inner.path("type"), "expected text, json_object or json_schema, found \"{}\"",
                  *type);
  CACHALOT_TRY(const Json* holder, inner.object("json_schema"));
  if (!holder) return refuse(inner.path("json_schema"), "expected an object with a schema");
  const RequestFields schema(*holder, inner.path("json_schema"));
  CACHALOT_TRY([[maybe_unused]] const auto name, schema.string("name"));
  CACHALOT_TRY([[maybe_unused]] const auto strict, schema.boolean("strict"));
  if (!schema.member("schema")) return refuse(schema.path("schema"), "expected a JSON schema");
  return schema_constraint(schema, "schema");
}

}  // namespace

ApiResult<std::vector<int32_t>> read_token_ids(const Json& array, std::string_view path,
                                               int64_t vocab_size, int64_t most) {
  const Json::Array& items = *array.array();
  if (std::ssize(items) > most)
    return refuse(path, "expected at most {} token ids, found {}", most, items.size());
  std::vector<int32_t> ids;
  ids.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const auto id = items[i].int64();
    if (!id || *id < 0 || *id >= vocab_size)
      return refuse(fmt::format("{}[{}]", path, i), "expected a token id from 0 to {}, found {}",
                    vocab_size - 1, found(items[i]));
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

ApiStatus read_common_fields(const RequestFields& fields, const Service& service,
                             ChatRequest& request) {
  const int64_t vocab_size = service.tokenizer().vocab_size();
  CACHALOT_OK(read_sampling(fields, request.sampling));
  CACHALOT_OK(read_logit_bias(fields, vocab_size, request.sampling));
  CACHALOT_OK(read_stops(fields, vocab_size, request));
  CACHALOT_OK(replace(fields.integer("n", 1, kMostChoices), request.choices));
  constexpr int64_t kPriorities = int64_t{1} << 31;
  CACHALOT_OK(replace(fields.integer("priority", -kPriorities, kPriorities), request.priority));
  CACHALOT_TRY(request.timeout_seconds, fields.number("timeout", 0.001, 1e9));
  CACHALOT_OK(replace(fields.boolean("cache_prompt"), request.reuse_cache));
  CACHALOT_TRY(const auto prefill, fields.string("prefill"));
  if (!prefill) return {};
  if (*prefill != "exact" && *prefill != "shortcut")
    return refuse(fields.path("prefill"), "expected exact or shortcut, found \"{}\"", *prefill);
  request.prefill = *prefill == "exact" ? PrefillMode::exact : PrefillMode::shortcut;
  return {};
}

ApiStatus read_max_tokens(const RequestFields& fields, int64_t least, ChatRequest& request) {
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    CACHALOT_OK(replace(fields.integer(name, least, std::numeric_limits<int64_t>::max()),
                        request.max_tokens));
  }
  return {};
}

ApiStatus read_constraint(const RequestFields& fields, ChatRequest& request) {
  std::string taken;
  const auto take = [&](const RequestFields& holder, std::string_view key,
                        ApiResult<Constraint> constraint) -> ApiStatus {
    if (!constraint) return fail(constraint.error());
    if (constraint->kind == Constraint::kNone) return {};
    if (!taken.empty())
      return refuse(holder.path(key), "the text is constrained by {} already; give one of them",
                    taken);
    taken = request.constraint_field = holder.path(key);
    request.constraint = std::move(*constraint);
    return {};
  };
  if (fields.member("response_format"))
    CACHALOT_OK(take(fields, "response_format", response_format(fields)));
  const auto take_all = [&](const RequestFields& holder, std::string_view prefix) -> ApiStatus {
    const auto name = [&](std::string_view key) { return fmt::format("{}{}", prefix, key); };
    if (holder.member(name("json")))
      CACHALOT_OK(take(holder, name("json"), schema_constraint(holder, name("json"))));
    if (holder.member(name("regex")))
      CACHALOT_OK(
          take(holder, name("regex"), text_constraint(holder, name("regex"), Constraint::kRegex)));
    if (holder.member(name("choice")))
      CACHALOT_OK(take(holder, name("choice"), choice_constraint(holder, name("choice"))));
    if (holder.member(name("grammar")))
      CACHALOT_OK(take(holder, name("grammar"),
                       text_constraint(holder, name("grammar"), Constraint::kGrammar)));
    return {};
  };
  CACHALOT_OK(take_all(fields, "guided_"));
  CACHALOT_TRY(const Json* outputs, fields.object("structured_outputs"));
  if (outputs)
    CACHALOT_OK(take_all(RequestFields(*outputs, fields.path("structured_outputs")), ""));
  // llama-server's clients send an empty one for none.
  const Json* grammar = fields.member("grammar");
  if (grammar && !(grammar->string() && grammar->string()->empty()))
    CACHALOT_OK(take(fields, "grammar", text_constraint(fields, "grammar", Constraint::kGrammar)));
  if (fields.member("json_schema"))
    CACHALOT_OK(take(fields, "json_schema", schema_constraint(fields, "json_schema")));
  return {};
}

ApiResult<std::string> read_model(const RequestFields& fields, const Service& service) {
  const std::vector<std::string>& names = service.defaults().model_names;
  CACHALOT_TRY(const auto given, fields.string("model"));
  if (!given || given->empty()) return names.front();
  if (service.answers_to(*given)) return *given;
  return fail(ApiError(
      404,
      fmt::format("model: there is no model \"{}\" here; use {}", *given, fmt::join(names, " or ")),
      "model", "model_not_found"));
}

ApiStatus read_thinking(const RequestFields& fields, ChatOptions& options) {
  std::optional<bool> explicitly;
  const auto effort = [&](const RequestFields& holder) -> ApiStatus {
    const Json* given = holder.member("reasoning_effort");
    if (!given) return {};
    const bool none = given->string() && *given->string() == "none";
    const auto status = set_effort(options, *given, EffortNames::kPublic, true);
    if (!status) {
      const std::string path = holder.path("reasoning_effort");
      return fail(ApiError(400, status.error().in(path).message, path));
    }
    options.thinking = !none;
    return {};
  };
  CACHALOT_TRY(const Json* kwargs, fields.object("chat_template_kwargs"));
  if (kwargs) {
    const RequestFields inner(*kwargs, fields.path("chat_template_kwargs"));
    CACHALOT_OK(effort(inner));
    for (const char* name : {"enable_thinking", "thinking"}) {
      CACHALOT_TRY(const auto thinking, inner.boolean(name));
      if (thinking) explicitly = *thinking;
    }
    CACHALOT_OK(replace(inner.boolean("drop_thinking"), options.drop_thinking));
  }
  CACHALOT_OK(effort(fields));
  const Json* thinking = fields.member("thinking");
  if (thinking && thinking->boolean()) {
    explicitly = *thinking->boolean();
  } else if (thinking) {
    CACHALOT_TRY(const Json* object, fields.object("thinking"));
    const RequestFields inner(*object, fields.path("thinking"));
    CACHALOT_TRY(const auto type, inner.string("type"));
    if (!type || (*type != "enabled" && *type != "disabled" && *type != "auto"))
      return refuse(inner.path("type"), "expected enabled or disabled, found {}",
                    type ? *type : "nothing");
    if (*type != "auto") explicitly = *type == "enabled";
  }
  if (explicitly) options.thinking = *explicitly;
  return {};
}

}  // namespace cachalot
