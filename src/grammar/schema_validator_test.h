// Whether a value satisfies a schema, word for word and without thought of speed: what the tests
// hold the compiled grammars to. Nothing here is shared with the compiler but Json.
#pragma once

#include <cmath>
#include <regex>
#include <string>

#include "chat/json_value.h"

namespace cachalot {

class SchemaValidator {
 public:
  explicit SchemaValidator(const Json& document) : document_(document) {}

  bool valid(const Json& value) const { return valid(value, document_); }

 private:
  const Json& document_;

  static double number(const Json& value) { return std::stod(value.dump()); }
  static bool is_number(const Json& value) { return value.is_integer() || value.real(); }
  static size_t length(const std::string& text) {
    size_t count = 0;
    for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
    return count;
  }
  static bool equal(const Json& a, const Json& b) {
    if (is_number(a) && is_number(b)) return number(a) == number(b);
    return a.dump() == b.dump();
  }

  const Json& resolve(const std::string& reference) const {
    const Json* at = &document_;
    size_t begin = 1;
    while (begin < reference.size()) {
      const size_t end = std::min(reference.find('/', begin + 1), reference.size());
      std::string key = reference.substr(begin + 1, end - begin - 1);
      for (const auto& [from, to] : {std::pair{"~1", "/"}, {"~0", "~"}})
        for (size_t i = key.find(from); i != key.npos; i = key.find(from, i + 1))
          key.replace(i, 2, to);
      at = at->array() ? &(*at->array())[std::stoul(key)] : at->find(key);
      begin = end;
    }
    return *at;
  }

  static bool is_type(const Json& value, const std::string& type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.boolean();
    if (type == "string") return value.string();
    if (type == "array") return value.array();
    if (type == "object") return value.object();
    return is_number(value) && (type == "number" || number(value) == std::floor(number(value)));
  }

  bool valid(const Json& value, const Json& schema) const {
    if (schema.boolean()) return *schema.boolean();
    const auto find = [&](const char* keyword) { return schema.find(keyword); };
    if (const Json* r = find("$ref"); r && !valid(value, resolve(*r->string()))) return false;
    if (const Json* type = find("type")) {
      bool any = false;
      const Json::Array types = type->array() ? *type->array() : Json::Array{*type};
      for (const Json& t : types) any = any || is_type(value, *t.string());
      const Json* nullable = find("nullable");
      if (!any && !(nullable && value.is_null())) return false;
    }
    if (const Json* c = find("const"); c && !equal(value, *c)) return false;
    if (const Json* values = find("enum")) {
      bool any = false;
      for (const Json& v : *values->array()) any = any || equal(value, v);
      if (!any) return false;
    }
    return combined(value, schema) && (!is_number(value) || valid_number(value, schema)) &&
           (!value.string() || valid_string(*value.string(), schema)) &&
           (!value.array() || valid_array(*value.array(), schema)) &&
           (!value.object() || valid_object(value, schema));
  }

  bool combined(const Json& value, const Json& schema) const {
    for (const std::string keyword : {"allOf", "anyOf", "oneOf"}) {
      const Json* parts = schema.find(keyword);
      if (!parts) continue;
      size_t count = 0;
      for (const Json& part : *parts->array()) count += valid(value, part);
      if (keyword == "allOf" && count != parts->array()->size()) return false;
      if (keyword == "anyOf" && count == 0) return false;
      if (keyword == "oneOf" && count != 1) return false;
    }
    return true;
  }

  static bool valid_number(const Json& value, const Json& schema) {
    const double x = number(value);
    const auto bound = [&](const char* keyword, auto holds) {
      const Json* limit = schema.find(keyword);
      return !limit || holds(number(*limit));
    };
    return bound("minimum", [x](double y) { return x >= y; }) &&
           bound("maximum", [x](double y) { return x <= y; }) &&
           bound("exclusiveMinimum", [x](double y) { return x > y; }) &&
           bound("exclusiveMaximum", [x](double y) { return x < y; }) &&
           bound("multipleOf",
                 [x](double y) { return std::abs(x / y - std::round(x / y)) < 1e-6; });
  }

  static bool valid_string(const std::string& text, const Json& schema) {
    const Json *least = schema.find("minLength"), *most = schema.find("maxLength");
    if (least && static_cast<int64_t>(length(text)) < *least->int64()) return false;
    if (most && static_cast<int64_t>(length(text)) > *most->int64()) return false;
    if (const Json* pattern = schema.find("pattern"))
      return std::regex_search(text, std::regex(*pattern->string()));
    return true;
  }

  bool valid_array(const Json::Array& values, const Json& schema) const {
    const Json *least = schema.find("minItems"), *most = schema.find("maxItems");
    if (least && static_cast<int64_t>(values.size()) < *least->int64()) return false;
    if (most && static_cast<int64_t>(values.size()) > *most->int64()) return false;
    const Json *prefix = schema.find("prefixItems"), *items = schema.find("items");
    for (size_t i = 0; i < values.size(); ++i) {
      const Json* item = prefix && i < prefix->array()->size() ? &(*prefix->array())[i] : items;
      if (item && !valid(values[i], *item)) return false;
    }
    return true;
  }

  bool valid_object(const Json& value, const Json& schema) const {
    const Json *properties = schema.find("properties"),
               *extra = schema.find("additionalProperties");
    if (const Json* required = schema.find("required"))
      for (const Json& name : *required->array())
        if (!value.find(*name.string())) return false;
    for (const Json::Member& member : *value.object()) {
      const Json* property = properties ? properties->find(member.key) : nullptr;
      if (!property) property = extra;
      if (property && !valid(member.value, *property)) return false;
    }
    return true;
  }
};

}  // namespace cachalot
