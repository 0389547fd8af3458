// Small helpers for the component descriptions in tokenizer.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace cachalot {

// Text for error messages; never throws.
inline std::string dump_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A component's "type", "null" for null, and "(no type)" where there is none.
inline std::string kind_of(const nlohmann::json& component) {
  if (component.is_null()) return "null";
  if (!component.is_object() || !component.contains("type")) return "(no type)";
  const nlohmann::json& type = component["type"];
  return type.is_string() ? type.get<std::string>() : dump_text(type);
}

}  // namespace cachalot
