#include "grammar/schema_compiler.h"

#include <algorithm>
#include <array>

#include "grammar/number_range.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_values.h"

namespace cachalot {
namespace {

// Of all schemas met on the way, merged ones included.
constexpr size_t kMostTextBytes = size_t{16} << 20;

bool names(const Json* list, std::string_view name) {
  return list && std::ranges::any_of(*list->array(),
                                     [&](const Json& entry) { return *entry.string() == name; });
}

bool speaks_of(const Json& schema, std::initializer_list<const char*> keywords) {
  return std::ranges::any_of(keywords, [&](const char* keyword) { return schema.find(keyword); });
}

bool is_false(const Json* schema) { return schema && schema->boolean() && !*schema->boolean(); }

}  // namespace

int32_t SchemaCompiler::rule(const Json& schema, const std::string& pointer) {
  std::string text = schema.dump();
  text_bytes_ += text.size();
  const auto [entry, added] = known_.try_emplace(std::move(text), 0);
  if (added) {
    entry->second = builder_.add_rule(pointer);
    open_.push_back({entry->second, schema, pointer});
  }
  return entry->second;
}

Status SchemaCompiler::finish() {
  while (!open_.empty()) {
    const Open next = std::move(open_.back());
    open_.pop_back();
    if (text_bytes_ > kMostTextBytes || builder_.full())
      return fail("{}: the schema is too large or has too many combinations", next.pointer);
    CACHALOT_TRY(const std::vector<SchemaLeaf> leaves, leaves_.of(next.schema, next.pointer));
    const int32_t end = builder_.add_node();
    builder_.set_final(end);
    for (const SchemaLeaf& leaf : leaves)
      CACHALOT_OK(add_leaf(leaf, builder_.start(next.rule), end));
  }
  return {};
}

Status SchemaCompiler::add_leaf(const SchemaLeaf& leaf, int32_t from, int32_t to) {
  if (const Json* values = leaf.schema.find("enum")) return add_values(leaf, *values, from, to);
  const std::vector<std::string> types = types_of(leaf.schema);
  const auto has = [&](std::string_view name) {
    return std::ranges::find(types, name) != types.end();
  };
  if (has("object")) CACHALOT_OK(add_object(leaf, from, to));
  if (has("array")) CACHALOT_OK(add_array(leaf, from, to));
  if (has("string")) CACHALOT_OK(add_string(leaf, from, to));
  if (has("number") || has("integer")) CACHALOT_OK(add_number(leaf, !has("number"), from, to));
  if (has("boolean")) builder_.add_call(from, rules_.boolean(), to);
  if (has("null")) builder_.add_empty(builder_.text(from, "null"), to);
  return {};
}

Result<StringConstraint> SchemaCompiler::strings_of(const SchemaLeaf& leaf) {
  // Every length has a state for each place within the texts that must not occur, except that the
  // first lengths are too short for most of them.
  const size_t places = texts_without(rules_.forbidden()).states.size();
  const size_t longest = (kMostAutomatonStates + places * (places - 1) / 2) / places - 1;
  auto result = string_constraint(leaf, static_cast<int64_t>(longest));
  if (!rules_.spend(result ? result->states : kMostAutomatonStates))
    return fail("{}: the patterns, formats and lengths are too complex in all", leaf.pointer);
  return result;
}

Result<std::optional<Automaton>> SchemaCompiler::numbers_of(const SchemaLeaf& leaf, bool integer) {
  auto result = number_constraint(leaf, integer);
  const size_t states = !result ? kMostAutomatonStates : *result ? (*result)->states.size() : 0;
  if (!rules_.spend(states)) return fail("{}: the bounds are too complex in all", leaf.pointer);
  return result;
}

Result<Json::Array> SchemaCompiler::values_of(const SchemaLeaf& leaf, const Json::Array& values) {
  const Json& schema = leaf.schema;
  CACHALOT_TRY(const StringConstraint strings, strings_of(leaf));
  std::optional<Automaton> numbers;
  if (speaks_of(schema,
                {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) {
    CACHALOT_TRY(numbers, numbers_of(leaf, false));
  }
  const bool about_objects = speaks_of(schema, {"properties", "required", "additionalProperties"});
  const bool about_arrays = speaks_of(schema, {"items", "prefixItems", "minItems", "maxItems"});
  Json::Array result;
  for (const Json& value : values) {
    if (!has_type(value, types_of(schema))) continue;
    if ((value.object() && about_objects) || (value.array() && about_arrays))
      return fail("{}/enum: objects and arrays are not supported beside keywords about them",
                  leaf.pointer);
    if (value.string() && strings.automaton && !strings.automaton->accepts(*value.string()))
      continue;
    if (numbers && (value.is_integer() || value.real())) {
      const auto decimal = decimal_of(value);
      if (!decimal || !numbers->accepts(text_of(*decimal))) continue;
    }
    result.push_back(value);
  }
  return result;
}

Status SchemaCompiler::add_values(const SchemaLeaf& leaf, const Json& values, int32_t from,
                                  int32_t to) {
  CACHALOT_TRY(const Json::Array fitting, values_of(leaf, *values.array()));
  std::vector<std::string> texts;
  for (const Json& value : fitting) {
    if (value.string()) {
      texts.push_back(*value.string());
      continue;
    }
    CACHALOT_TRY(const int32_t end, rules_.literal(from, value));
    builder_.add_empty(end, to);
  }
  if (texts.empty()) return {};
  CACHALOT_TRY(const int32_t end, rules_.quoted(from, one_of(texts), Spelling::kJson));
  builder_.add_empty(end, to);
  return {};
}

Status SchemaCompiler::add_string(const SchemaLeaf& leaf, int32_t from, int32_t to) {
  CACHALOT_TRY(const StringConstraint constraint, strings_of(leaf));
  if (!constraint.automaton) {
    builder_.add_call(from, rules_.string(), to);
    return {};
  }
  const auto end =
      rules_.quoted(from, *constraint.automaton,
                    constraint.lengths_only ? Spelling::kJsonEscapes : Spelling::kJson);
  if (!end) return fail(end.error().in(leaf.pointer));
  builder_.add_empty(*end, to);
  return {};
}

Status SchemaCompiler::add_number(const SchemaLeaf& leaf, bool integer, int32_t from, int32_t to) {
  CACHALOT_TRY(const auto constraint, numbers_of(leaf, integer));
  if (constraint) {
    builder_.add_empty(rules_.texts().add(from, *constraint, Spelling::kRaw), to);
  } else {
    builder_.add_call(from, rules_.number(), to);
  }
  return {};
}

int32_t SchemaCompiler::comma(int32_t from) {
  return builder_.call(builder_.text(from, ","), rules_.space());
}

// Members in order, optional ones with a way around them. `first` is where no member has been
// written yet and `rest` where one has, so that commas stand between members only.
Status SchemaCompiler::add_object(const SchemaLeaf& leaf, int32_t from, int32_t to) {
  const Json &schema = leaf.schema, *properties = schema.find("properties"),
             *required = schema.find("required"), *extra = schema.find("additionalProperties");
  const bool open = extra ? !is_false(extra) : !properties;
  if (open && !properties && !required && (!extra || extra->boolean())) {
    builder_.add_call(from, rules_.object(), to);
    return {};
  }
  const Json any(true);
  std::vector<std::string> keys;
  int32_t first = builder_.call(builder_.text(from, "{"), rules_.space()),
          rest = builder_.add_node();
  const auto member = [&](const std::string& key, const Json& value, const std::string& pointer,
                          bool needed) -> Status {
    if (builder_.full()) return fail("{}: the schema is too large", pointer);
    keys.push_back(key);
    const int32_t pair = builder_.add_rule(pointer);
    CACHALOT_TRY(int32_t at,
                 rules_.quoted(builder_.start(pair), one_of({&key, 1}), Spelling::kJson));
    at = builder_.call(builder_.text(at, ":"), rules_.space());
    builder_.set_final(builder_.call(at, rule(value, pointer)));
    const int32_t next_first = builder_.add_node(), next_rest = builder_.call(comma(rest), pair);
    builder_.add_call(first, pair, next_rest);
    if (!needed) {
      builder_.add_empty(first, next_first);
      builder_.add_empty(rest, next_rest);
    }
    first = next_first;
    rest = next_rest;
    return {};
  };
  if (properties) {
    const std::string below = leaf.pointer + "/properties";
    for (const Json::Member& property : *properties->object())
      CACHALOT_OK(member(property.key, property.value, pointer_below(below, property.key),
                         names(required, property.key)));
  }
  if (required) {
    for (const Json& name : *required->array()) {
      if (std::ranges::find(keys, *name.string()) != keys.end()) continue;
      if (is_false(extra))
        return fail(
            "{}: property '{}' is required, but neither in properties nor allowed besides "
            "them",
            leaf.pointer, name.string()->substr(0, 100));
      CACHALOT_OK(member(*name.string(), extra ? *extra : any,
                         leaf.pointer + "/additionalProperties", true));
    }
  }
  if (open) {
    const std::string where = leaf.pointer + "/additionalProperties";
    const int32_t pair = builder_.add_rule(where), others = builder_.add_node();
    CACHALOT_TRY(int32_t at, rules_.quoted(builder_.start(pair), none_of(keys), Spelling::kJson));
    at = builder_.call(builder_.text(at, ":"), rules_.space());
    builder_.set_final(builder_.call(at, extra ? rule(*extra, where) : rules_.value()));
    builder_.add_call(first, pair, others);
    builder_.add_call(comma(rest), pair, others);
    builder_.add_call(comma(others), pair, others);
    builder_.add_bytes(builder_.call(others, rules_.space()), '}', '}', to);
  }
  builder_.add_bytes(first, '}', '}', to);
  builder_.add_bytes(builder_.call(rest, rules_.space()), '}', '}', to);
  return {};
}

Status SchemaCompiler::add_array(const SchemaLeaf& leaf, int32_t from, int32_t to) {
  const Json &schema = leaf.schema, *prefix = schema.find("prefixItems"),
             *items = schema.find("items");
  const Json *fewest = schema.find("minItems"), *most_items = schema.find("maxItems");
  const int64_t tuple = prefix ? std::ssize(*prefix->array()) : 0;
  if (!prefix && !items && !fewest && !most_items) {
    builder_.add_call(from, rules_.array(), to);
    return {};
  }
  int64_t least = fewest ? *fewest->int64() : most_items ? 0 : tuple;
  int64_t most = most_items ? *most_items->int64() : -1;
  if (!items && prefix && !(fewest && *fewest->int64() > tuple) && most < 0) most = tuple;
  if (is_false(items)) most = most < 0 ? tuple : std::min(most, tuple);
  if (most >= 0 && least > most)
    return fail("{}: at least {} items are asked for and at most {} allowed", leaf.pointer, least,
                most);
  const int32_t other = items ? rule(*items, leaf.pointer + "/items") : rules_.value();
  const auto element = [&](int64_t i) {
    if (i >= tuple) return other;
    return rule((*prefix->array())[static_cast<size_t>(i)],
                fmt::format("{}/prefixItems/{}", leaf.pointer, i));
  };
  int32_t at = builder_.call(builder_.text(from, "["), rules_.space());
  if (least == 0) builder_.add_bytes(at, ']', ']', to);
  const int32_t closing = builder_.add_node();
  builder_.add_bytes(builder_.call(closing, rules_.space()), ']', ']', to);
  const int64_t chain = most >= 0 ? most : std::max({least, tuple, int64_t{1}});
  for (int64_t i = 0; i < chain; ++i) {
    if (builder_.full()) return fail("{}: minItems or maxItems is too large", leaf.pointer);
    at = builder_.call(i == 0 ? at : comma(at), element(i));
    if (i + 1 >= least) builder_.add_empty(at, closing);
  }
  if (most < 0) builder_.add_call(comma(at), element(chain), at);
  return {};
}

Result<SchemaCompiler::Split> SchemaCompiler::split(const Json& schema,
                                                    const std::string& pointer) {
  CACHALOT_TRY(const std::vector<SchemaLeaf> leaves, leaves_.of(schema, pointer));
  Split result;
  for (const SchemaLeaf& leaf : leaves) {
    Json::Array rest;
    bool strings = false;
    for (const std::string& type : types_of(leaf.schema)) {
      if (type == "string") {
        strings = true;
      } else {
        rest.push_back(Json(type));
      }
    }
    if (strings) {
      result.strings.push_back(leaf);
      result.strings.back().schema.set("type", Json("string"));
    }
    if (!rest.empty()) {
      result.others.push_back(leaf);
      result.others.back().schema.set("type", Json(std::move(rest)));
    }
  }
  return result;
}

Result<int32_t> SchemaCompiler::add_raw(const SchemaLeaf& leaf, int32_t from) {
  Automaton automaton = texts_without(rules_.forbidden());
  if (const Json* values = leaf.schema.find("enum")) {
    std::vector<std::string> texts;
    CACHALOT_TRY(const Json::Array fitting, values_of(leaf, *values->array()));
    for (const Json& value : fitting) texts.push_back(*value.string());
    CACHALOT_TRY(automaton, intersection(automaton, one_of(texts)));
  } else {
    CACHALOT_TRY(const StringConstraint constraint, strings_of(leaf));
    if (constraint.automaton) {
      auto both = intersection(automaton, *constraint.automaton);
      if (!both) return fail(both.error().in(leaf.pointer));
      automaton = std::move(*both);
    }
  }
  return rules_.texts().add(from, automaton, Spelling::kRaw);
}

}  // namespace cachalot
