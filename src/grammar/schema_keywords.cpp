#include "grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <optional>

#include "grammar/number_range.h"

namespace cachalot {
namespace {

constexpr std::array<std::string_view, 18> kUnsupported = {"not",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "dependentRequired",
                                                           "dependentSchemas",
                                                           "dependencies",
                                                           "patternProperties",
                                                           "propertyNames",
                                                           "unevaluatedItems",
                                                           "contains",
                                                           "minContains",
                                                           "maxContains",
                                                           "minProperties",
                                                           "maxProperties",
                                                           "$dynamicRef",
                                                           "$recursiveRef",
                                                           "$anchor"};

constexpr std::array<std::string_view, 24> kAboutValues = {"type",
                                                           "enum",
                                                           "anyOf",
                                                           "oneOf",
                                                           "properties",
                                                           "required",
                                                           "items",
                                                           "minItems",
                                                           "maxItems",
                                                           "minLength",
                                                           "maxLength",
                                                           "pattern",
                                                           "format",
                                                           "minimum",
                                                           "maximum",
                                                           "prefixItems",
                                                           "exclusiveMinimum",
                                                           "exclusiveMaximum",
                                                           "multipleOf",
                                                           "additionalProperties",
                                                           "$ref",
                                                           "allOf",
                                                           "const",
                                                           "nullable"};

constexpr size_t kMostProperties = 1000;

enum class Kind {
  kSchema,
  kSchemas,
  kSchemaMap,
  kString,
  kNumber,
  kCount,
  kStrings,
  kBoolean,
  kArray
};
struct Expected {
  std::string_view keyword;
  Kind kind;
  const char* words;
};
constexpr std::array<Expected, 22> kExpected = {{
    {"properties", Kind::kSchemaMap, "an object of schemas"},
    {"$defs", Kind::kSchemaMap, "an object of schemas"},
    {"definitions", Kind::kSchemaMap, "an object of schemas"},
    {"additionalProperties", Kind::kSchema, "a schema"},
    {"anyOf", Kind::kSchemas, "an array of schemas, not empty"},
    {"oneOf", Kind::kSchemas, "an array of schemas, not empty"},
    {"allOf", Kind::kSchemas, "an array of schemas, not empty"},
    {"prefixItems", Kind::kSchemas, "an array of schemas, not empty"},
    {"required", Kind::kStrings, "an array of strings"},
    {"enum", Kind::kArray, "an array, not empty"},
    {"minItems", Kind::kCount, "a whole number from 0"},
    {"maxItems", Kind::kCount, "a whole number from 0"},
    {"minLength", Kind::kCount, "a whole number from 0"},
    {"maxLength", Kind::kCount, "a whole number from 0"},
    {"minimum", Kind::kNumber, "a number"},
    {"maximum", Kind::kNumber, "a number"},
    {"multipleOf", Kind::kNumber, "a number"},
    {"pattern", Kind::kString, "a string"},
    {"format", Kind::kString, "a string"},
    {"$ref", Kind::kString, "a string"},
    {"nullable", Kind::kBoolean, "a boolean"},
    {"uniqueItems", Kind::kBoolean, "a boolean"},
}};

bool is_schema(const Json& value) { return value.object() || value.boolean(); }
bool is_number(const Json& value) { return value.is_integer() || value.real(); }

bool is_kind(const Json& value, Kind kind) {
  const auto all = [&](auto condition) {
    return value.array() && std::ranges::all_of(*value.array(), condition);
  };
  switch (kind) {
    case Kind::kSchema:
      return is_schema(value);
    case Kind::kSchemas:
      return all(is_schema) && !value.array()->empty();
    case Kind::kSchemaMap:
      return value.object() && std::ranges::all_of(*value.object(), [](const Json::Member& m) {
               return is_schema(m.value);
             });
    case Kind::kString:
      return value.string() != nullptr;
    case Kind::kNumber:
      return is_number(value);
    case Kind::kCount:
      return value.int64() && *value.int64() >= 0;
    case Kind::kStrings:
      return all([](const Json& element) { return element.string() != nullptr; });
    case Kind::kBoolean:
      return value.boolean() != nullptr;
    case Kind::kArray:
      return value.array() && !value.array()->empty();
  }
  return false;
}

const std::vector<std::string>& all_types() {
  static const std::vector<std::string> types = {"null",   "boolean", "integer", "number",
                                                 "string", "array",   "object"};
  return types;
}

Status check_type(const Json& type, const std::string& pointer) {
  const auto known = [](const Json& name) {
    return name.string() && std::ranges::find(all_types(), *name.string()) != all_types().end();
  };
  if (known(type)) return {};
  if (type.array() && !type.array()->empty() && std::ranges::all_of(*type.array(), known))
    return {};
  return fail(
      "{}/type: expected null, boolean, integer, number, string, array, object or an array "
      "of these, found {}",
      pointer, type.dump().substr(0, 100));
}

std::string decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) -> int {
      if (at >= text.size()) return -1;
      const char c = text[at];
      if (c >= '0' && c <= '9') return c - '0';
      const char lower = static_cast<char>(c | 0x20);
      return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
    };
    if (text[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
      result.push_back(static_cast<char>(digit(i + 1) * 16 + digit(i + 2)));
      i += 2;
    } else if (text[i] == '~' && i + 1 < text.size() &&
               (text[i + 1] == '0' || text[i + 1] == '1')) {
      result.push_back(text[++i] == '0' ? '~' : '/');
    } else {
      result.push_back(text[i]);
    }
  }
  return result;
}

Json all_of(const Json& a, const Json& b) {
  Json result{Json::Object{}};
  result.set("allOf", Json(Json::Array{a, b}));
  return result;
}

// The stricter of two bounds; `sign` 1: the larger one.
const Json& stricter(const Json& a, const Json& b, int sign) {
  const auto x = decimal_of(a), y = decimal_of(b);
  if (!x || !y) return x ? a : b;
  return compare(*x, *y) * sign >= 0 ? a : b;
}

void merge_types(Json& result, const Json& a, const Json& b) {
  Json::Array types;
  const std::vector<std::string> left = types_of(a), right = types_of(b);
  const auto has = [](const std::vector<std::string>& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  const auto lets = [&](const std::vector<std::string>& names, std::string_view name) {
    return has(names, name) || (name == "integer" && has(names, "number"));
  };
  for (const std::string& name : all_types()) {
    if (lets(left, name) && lets(right, name) && (has(left, name) || has(right, name)))
      types.push_back(Json(name));
  }
  result.set("type", Json(std::move(types)));
}

void merge_enums(Json& result, const Json& a, const Json& b) {
  Json::Array values;
  for (const Json& value : *a.array())
    if (std::ranges::any_of(*b.array(), [&](const Json& v) { return equal_values(v, value); }))
      values.push_back(value);
  result.set("enum", Json(std::move(values)));
}

// What a schema says about a property it does not name; nullptr: nothing.
const Json* about_property(const Json& schema, std::string_view name) {
  if (const Json* properties = schema.find("properties"))
    if (const Json* property = properties->find(name)) return property;
  return schema.find("additionalProperties");
}

void merge_properties(Json& result, const Json& a, const Json& b) {
  Json properties{Json::Object{}};
  for (const Json* schema : {&a, &b}) {
    const Json* own = schema->find("properties");
    if (!own) continue;
    for (const Json::Member& member : *own->object()) {
      const Json *left = about_property(a, member.key), *right = about_property(b, member.key);
      properties.set(member.key, left && right ? all_of(*left, *right) : left ? *left : *right);
    }
  }
  result.set("properties", std::move(properties));
}

void merge_arrays(Json& result, const Json& a, const Json& b) {
  const Json *x = a.find("prefixItems"), *y = b.find("prefixItems");
  const auto item = [](const Json& schema, const Json* prefix, size_t i) -> const Json* {
    if (prefix && i < prefix->array()->size()) return &(*prefix->array())[i];
    return schema.find("items");
  };
  const size_t count = std::max(x ? x->array()->size() : 0, y ? y->array()->size() : 0);
  Json::Array prefix;
  for (size_t i = 0; i < count; ++i) {
    const Json *left = item(a, x, i), *right = item(b, y, i);
    prefix.push_back(left && right ? all_of(*left, *right)
                     : left        ? *left
                     : right       ? *right
                                   : Json(true));
  }
  if (!prefix.empty()) result.set("prefixItems", Json(std::move(prefix)));
}

// Exactly one (at least one) of either list holds: the same of the pairs.
Json pairs(const Json& a, const Json& b) {
  Json::Array result;
  for (const Json& left : *a.array())
    for (const Json& right : *b.array()) result.push_back(all_of(left, right));
  return Json(std::move(result));
}

}  // namespace

std::string pointer_below(const std::string& pointer, std::string_view key) {
  std::string result = pointer + "/";
  for (const char c : key.substr(0, 200)) {
    if (c == '~')
      result += "~0";
    else if (c == '/')
      result += "~1";
    else
      result += c;
  }
  return result;
}

Result<PlacedSchema> resolve_reference(const Json& document, const Json& reference,
                                       const std::string& where) {
  const std::string& text = *reference.string();
  if (text.empty() || text[0] != '#' || (text.size() > 1 && text[1] != '/'))
    return fail("{}/$ref: expected \"#\" or \"#/...\" (a place in this schema), found '{}'", where,
                text.substr(0, 100));
  PlacedSchema result{&document, "#"};
  for (size_t at = 1; at < text.size();) {
    const size_t end = std::min(text.find('/', at + 1), text.size());
    const std::string key = decoded(std::string_view(text).substr(at + 1, end - at - 1));
    const Json* next = result.schema->find(key);
    if (const Json::Array* array = result.schema->array()) {
      const bool digits =
          !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == key.npos;
      if (digits && std::stoul(key) < array->size()) next = &(*array)[std::stoul(key)];
    }
    if (!next)
      return fail("{}/$ref: '{}' names nothing in this schema", where, text.substr(0, 100));
    result = {next, pointer_below(result.pointer, key)};
    at = end;
  }
  if (!is_schema(*result.schema))
    return fail("{}/$ref: '{}' is no schema", where, text.substr(0, 100));
  return result;
}

Status check_keywords(const Json& schema, const std::string& pointer) {
  for (const std::string_view keyword : kUnsupported)
    if (schema.find(keyword)) return fail("{}/{}: this keyword is not supported", pointer, keyword);
  if (const Json* unique = schema.find("uniqueItems");
      unique && unique->boolean() && *unique->boolean())
    return fail("{}/uniqueItems: this keyword is not supported", pointer);
  for (const auto& [keyword, kind, words] : kExpected) {
    const Json* value = schema.find(keyword);
    if (value && !is_kind(*value, kind))
      return fail("{}/{}: expected {}, found {}", pointer, keyword, words,
                  value->dump().substr(0, 100));
  }
  if (const Json* type = schema.find("type")) CACHALOT_OK(check_type(*type, pointer));
  if (const Json* properties = schema.find("properties");
      properties && properties->object()->size() > kMostProperties)
    return fail("{}/properties: more than {} properties", pointer, kMostProperties);
  for (const std::string_view keyword : {"exclusiveMinimum", "exclusiveMaximum"}) {
    const Json* value = schema.find(keyword);
    if (value && !is_number(*value) && !value->boolean())
      return fail("{}/{}: expected a number, found {}", pointer, keyword, value->kind_name());
  }
  const Json* items = schema.find("items");
  if (items && !is_schema(*items) && !is_kind(*items, Kind::kSchemas))
    return fail("{}/items: expected a schema, found {}", pointer, items->kind_name());
  return {};
}

Json modernised(const Json& schema) {
  Json result{Json::Object{}};
  for (const Json::Member& member : *schema.object())
    if (std::ranges::find(kAboutValues, member.key) != kAboutValues.end())
      result.set(member.key, member.value);
  for (const std::string_view keyword : {"pattern", "format", "multipleOf"})
    if (const Json* value = result.find(keyword); value && !value->array())
      result.set(keyword, Json(Json::Array{*value}));
  if (const Json* value = result.find("const")) {
    Json only{Json::Array{*value}};
    if (const Json* values = result.find("enum")) {
      merge_enums(result, *values, only);
    } else {
      result.set("enum", std::move(only));
    }
    result.erase("const");
  }
  // Draft 4's exclusive bounds were booleans beside the bound.
  for (const auto& [keyword, bound] :
       {std::pair{"exclusiveMinimum", "minimum"}, std::pair{"exclusiveMaximum", "maximum"}}) {
    const Json* exclusive = result.find(keyword);
    if (!exclusive || !exclusive->boolean()) continue;
    const bool on = *exclusive->boolean();
    result.erase(keyword);
    const Json* value = result.find(bound);
    if (!on || !value) continue;
    result.set(keyword, Json(*value));
    result.erase(bound);
  }
  // Draft 7's tuples.
  if (const Json* items = result.find("items"); items && items->array()) {
    result.set("prefixItems", Json(*items));
    result.erase("items");
    if (const Json* rest = schema.find("additionalItems")) result.set("items", *rest);
  }
  if (const Json* nullable = result.find("nullable")) {
    const bool on = nullable->boolean() && *nullable->boolean();
    result.erase("nullable");
    const Json* type = result.find("type");
    if (on && type) {
      Json::Array types = type->array() ? *type->array() : Json::Array{*type};
      types.push_back("null");
      result.set("type", Json(std::move(types)));
    }
  }
  return result;
}

Json both(const Json& a, const Json& b) {
  if (a.object()->empty()) return b;
  if (b.object()->empty()) return a;
  Json result = a;
  for (const Json::Member& member : *b.object()) {
    const std::string& key = member.key;
    const Json* own = a.find(key);
    if (!own) {
      result.set(key, member.value);
    } else if (key == "enum") {
      merge_enums(result, *own, member.value);
    } else if (key == "required" || key == "pattern" || key == "format" || key == "multipleOf") {
      Json::Array values = *own->array();
      for (const Json& value : *member.value.array())
        if (std::ranges::none_of(values, [&](const Json& v) { return equal_values(v, value); }))
          values.push_back(value);
      result.set(key, Json(std::move(values)));
    } else if (key.starts_with("min") || key == "exclusiveMinimum") {
      result.set(key, stricter(*own, member.value, 1));
    } else if (key.starts_with("max") || key == "exclusiveMaximum") {
      result.set(key, stricter(*own, member.value, -1));
    } else if (key == "items" || key == "additionalProperties") {
      result.set(key, all_of(*own, member.value));
    } else if (key == "anyOf" || key == "oneOf") {
      result.set(key, pairs(*own, member.value));
    }
  }
  if (a.find("type") && b.find("type")) merge_types(result, a, b);
  if (a.find("properties") || b.find("properties")) merge_properties(result, a, b);
  merge_arrays(result, a, b);
  return result;
}

std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> result;
  if (const Json* type = schema.find("type")) {
    if (type->string()) return {*type->string()};
    for (const Json& name : *type->array()) result.push_back(*name.string());
    return result;
  }
  const auto speaks_of = [&](std::initializer_list<std::string_view> keywords) {
    return std::ranges::any_of(keywords, [&](std::string_view k) { return schema.find(k); });
  };
  if (schema.find("enum")) return all_types();
  if (speaks_of({"properties", "required", "additionalProperties"})) result.push_back("object");
  if (speaks_of({"items", "prefixItems", "minItems", "maxItems"})) result.push_back("array");
  if (speaks_of({"minLength", "maxLength", "pattern", "format"})) result.push_back("string");
  if (speaks_of({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}))
    result.push_back("number");
  return result.empty() ? all_types() : result;
}

bool equal_values(const Json& a, const Json& b) {
  if (is_number(a) && is_number(b)) {
    const auto x = decimal_of(a), y = decimal_of(b);
    return x && y ? compare(*x, *y) == 0 : a.dump() == b.dump();
  }
  if (a.array() && b.array()) return std::ranges::equal(*a.array(), *b.array(), equal_values);
  if (a.object() && b.object()) {
    return a.object()->size() == b.object()->size() &&
           std::ranges::all_of(*a.object(), [&](const Json::Member& member) {
             const Json* other = b.find(member.key);
             return other && equal_values(member.value, *other);
           });
  }
  return a.dump() == b.dump();
}

bool has_type(const Json& value, const std::vector<std::string>& types) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(types, name) != types.end();
  };
  if (value.is_null()) return has("null");
  if (value.boolean()) return has("boolean");
  if (value.string()) return has("string");
  if (value.array()) return has("array");
  if (value.object()) return has("object");
  if (has("number")) return true;
  const auto decimal = decimal_of(value);
  return has("integer") && (value.is_integer() || (decimal && decimal->fraction.empty()));
}

}  // namespace cachalot
