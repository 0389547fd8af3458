#include "grammar/schema_leaves.h"

#include <algorithm>

#include "grammar/number_range.h"
#include "grammar/schema_keywords.h"

namespace cachalot {
namespace {

constexpr int kMostDepth = 64;
constexpr size_t kMostWork = 2000000;
constexpr size_t kMostLeaves = 2000;

size_t size_of(const Json& value) {
  size_t result = 1;
  if (value.array())
    for (const Json& element : *value.array()) result += size_of(element);
  if (value.object())
    for (const Json::Member& member : *value.object()) result += size_of(member.value);
  return result;
}

bool names(const Json* list, std::string_view name) {
  return list && std::ranges::any_of(*list->array(),
                                     [&](const Json& entry) { return *entry.string() == name; });
}

bool types_apart(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto numeric = [](std::string_view type) { return type == "integer" || type == "number"; };
  for (const std::string& x : a)
    for (const std::string& y : b)
      if (x == y || (numeric(x) && numeric(y))) return false;
  return true;
}

bool only_type(const Json& schema, std::initializer_list<std::string_view> allowed) {
  return std::ranges::all_of(types_of(schema), [&](const std::string& type) {
    return std::ranges::find(allowed, type) != allowed.end();
  });
}

// Every number of `low` is below every one of `high`.
bool below(const Json& low, const Json& high) {
  for (const auto& [most, most_strict] :
       {std::pair{"maximum", false}, {"exclusiveMaximum", true}}) {
    for (const auto& [least, least_strict] :
         {std::pair{"minimum", false}, {"exclusiveMinimum", true}}) {
      const Json *x = low.find(most), *y = high.find(least);
      const auto a = x ? decimal_of(*x) : std::nullopt, b = y ? decimal_of(*y) : std::nullopt;
      if (!a || !b) continue;
      const int order = compare(*a, *b);
      if (order < 0 || (order == 0 && (most_strict || least_strict))) return true;
    }
  }
  return false;
}

}  // namespace

Result<std::vector<SchemaLeaf>> SchemaLeaves::of(const Json& schema, const std::string& pointer) {
  std::vector<SchemaLeaf> leaves;
  CACHALOT_TRY(Json flat, flattened(schema, pointer, 0));
  CACHALOT_OK(add(std::move(flat), pointer, 0, leaves));
  return leaves;
}

// Both hold. Choices on either side multiply.
Result<Json> SchemaLeaves::merged(const Json& a, const Json& b, const std::string& pointer) {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const Json *x = a.find(keyword), *y = b.find(keyword);
    if (x && y && x->array()->size() * y->array()->size() > kMostLeaves)
      return fail("{}: the schema has too many combinations", pointer);
  }
  Json result = both(a, b);
  work_ += size_of(result);
  if (work_ > kMostWork) return fail("{}: the schema has too many combinations", pointer);
  return result;
}

// Without $ref and allOf.
Result<Json> SchemaLeaves::flattened(const Json& schema, const std::string& pointer, int depth) {
  if (depth > kMostDepth) return fail("{}: refers to itself, or is nested too deeply", pointer);
  work_ += size_of(schema);
  if (work_ > kMostWork) return fail("{}: the schema has too many combinations", pointer);
  Json result{Json::Object{}};
  if (const bool* all = schema.boolean()) {
    if (!*all) result.set("enum", Json(Json::Array{}));
    return result;
  }
  if (!schema.object())
    return fail("{}: expected a schema (an object or a boolean), found {}", pointer,
                schema.kind_name());
  CACHALOT_OK(check_keywords(schema, pointer));
  Json own = modernised(schema);
  own.erase("$ref");
  own.erase("allOf");
  if (const Json* reference = schema.find("$ref")) {
    CACHALOT_TRY(const PlacedSchema target, resolve_reference(document_, *reference, pointer));
    CACHALOT_TRY(result, flattened(*target.schema, target.pointer, depth + 1));
  }
  if (const Json* parts = schema.find("allOf")) {
    for (size_t i = 0; i < parts->array()->size(); ++i) {
      const std::string where = fmt::format("{}/allOf/{}", pointer, i);
      CACHALOT_TRY(const Json part, flattened((*parts->array())[i], where, depth + 1));
      CACHALOT_TRY(result, merged(result, part, where));
    }
  }
  return merged(result, own, pointer);
}

Status SchemaLeaves::add(Json flat, const std::string& pointer, int depth,
                         std::vector<SchemaLeaf>& leaves) {
  for (const char* keyword : {"anyOf", "oneOf"})
    if (flat.find(keyword)) return add_alternatives(flat, keyword, pointer, depth, leaves);
  if (leaves.size() >= kMostLeaves)
    return fail("{}: more than {} alternatives", pointer, kMostLeaves);
  leaves.push_back({std::move(flat), pointer});
  return {};
}

Status SchemaLeaves::add_alternatives(const Json& flat, const char* keyword,
                                      const std::string& pointer, int depth,
                                      std::vector<SchemaLeaf>& leaves) {
  const Json alternatives = *flat.find(keyword);
  Json base = flat;
  base.erase(keyword);
  std::vector<size_t> ends = {leaves.size()};
  for (size_t i = 0; i < alternatives.array()->size(); ++i) {
    const std::string where = fmt::format("{}/{}/{}", pointer, keyword, i);
    CACHALOT_TRY(const Json part, flattened((*alternatives.array())[i], where, depth + 1));
    CACHALOT_TRY(Json alternative, merged(base, part, where));
    CACHALOT_OK(add(std::move(alternative), where, depth + 1, leaves));
    ends.push_back(leaves.size());
  }
  if (std::string_view(keyword) == "anyOf") return {};
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    for (size_t a = ends[i]; a < ends[i + 1]; ++a) {
      for (size_t b = ends[i + 1]; b < leaves.size(); ++b) {
        work_ += 100;
        if (work_ > kMostWork) return fail("{}: too many combinations", pointer);
        if (!apart(leaves[a].schema, leaves[b].schema, 0))
          return fail(
              "{}/oneOf: a value may satisfy both '{}' and '{}', and it cannot be seen that "
              "none does; make them differ in a required property with const, or use anyOf",
              pointer, leaves[a].pointer, leaves[b].pointer);
      }
    }
  }
  return {};
}

bool SchemaLeaves::apart(const Json& a, const Json& b, int depth) {
  return never_satisfies(a, b, depth) && never_satisfies(b, a, depth);
}

bool SchemaLeaves::never_satisfies(const Json& written, const Json& other, int depth) {
  if (const Json* values = written.find("enum")) {
    const Json* others = other.find("enum");
    return std::ranges::all_of(*values->array(), [&](const Json& value) {
      if (!has_type(value, types_of(written)) || !has_type(value, types_of(other))) return true;
      return others && std::ranges::none_of(*others->array(), [&](const Json& candidate) {
               return equal_values(value, candidate);
             });
    });
  }
  if (const Json* others = other.find("enum")) {
    if (std::ranges::none_of(*others->array(), [&](const Json& value) {
          return has_type(value, types_of(written)) && has_type(value, types_of(other));
        })) {
      return true;
    }
  }
  if (types_apart(types_of(written), types_of(other))) return true;
  if (only_type(written, {"integer", "number"}) && (below(written, other) || below(other, written)))
    return true;
  return only_type(written, {"object"}) && property_apart(written, other, depth);
}

bool SchemaLeaves::property_apart(const Json& written, const Json& other, int depth) {
  if (depth > 4) return false;
  const Json *required = written.find("required"), *own = written.find("properties"),
             *others = other.find("properties"), *extra = written.find("additionalProperties"),
             *other_extra = other.find("additionalProperties");
  // A member that the other wants and that is never written.
  const bool closed = (extra && extra->boolean() && !*extra->boolean()) || (!extra && own);
  if (const Json* wanted = other.find("required"); wanted && closed) {
    for (const Json& name : *wanted->array())
      if (!(own && own->find(*name.string())) && !names(required, *name.string())) return true;
  }
  if (!required) return false;
  for (const Json& entry : *required->array()) {
    const std::string& name = *entry.string();
    const Json* theirs = others ? others->find(name) : nullptr;
    // A member that is always written and that the other refuses.
    if (!theirs && other_extra && other_extra->boolean() && !*other_extra->boolean()) return true;
    const Json* mine = own ? own->find(name) : nullptr;
    if (!mine || !theirs) continue;
    const auto x = of(*mine, "#"), y = of(*theirs, "#");
    if (!x || !y) continue;
    const bool all = std::ranges::all_of(*x, [&](const SchemaLeaf& a) {
      return std::ranges::all_of(
          *y, [&](const SchemaLeaf& b) { return never_satisfies(a.schema, b.schema, depth + 1); });
    });
    if (all) return true;
  }
  return false;
}

}  // namespace cachalot
