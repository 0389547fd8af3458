#include "chat/parsed_message.h"

#include <unordered_map>

#include "chat/json_value.h"
#include "chat/tools.h"

namespace cachalot {

std::string arguments_text(const std::vector<ParsedParameter>& parameters) {
  std::vector<const ParsedParameter*> kept;
  std::unordered_map<std::string_view, size_t> places;
  for (const ParsedParameter& parameter : parameters) {
    const auto [place, is_new] = places.try_emplace(parameter.key, kept.size());
    if (is_new) {
      kept.push_back(&parameter);
    } else {
      kept[place->second] = &parameter;
    }
  }
  std::string out = "{";
  for (const ParsedParameter* parameter : kept) {
    if (out.size() > 1) out += ", ";
    out.append("\"").append(parameter->key).append("\": ");
    if (!parameter->is_string) {
      out += parameter->value;
      continue;
    }
    out += '"';
    append_json_escaped(out, parameter->value);
    out += '"';
  }
  return out + "}";
}

void set_call_name(ParsedCall& call, std::string_view qualified) {
  auto split = split_name(qualified);
  if (!split) {
    call.name = qualified;
    return;
  }
  call.name = std::move(split->name);
  call.name_space = std::move(split->name_space);
}

}  // namespace cachalot
