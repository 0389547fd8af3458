#include "grammar/tool_grammar.h"

#include <algorithm>

#include "chat/control_tokens.h"
#include "grammar/schema_compiler.h"
#include "grammar/schema_keywords.h"

namespace cachalot {
namespace {

// Longer names are taken for runaway output by the parser of answers.
constexpr size_t kLongestName = 1000;

// Names stand between quotes and, in the arguments, in JSON, as they are.
bool can_be_written(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && std::ranges::all_of(name, [](char c) {
    return static_cast<uint8_t>(c) >= 0x20 && c != '"' && c != '\\';
  });
}

bool contains(const Json* names, std::string_view name) {
  return names && std::ranges::any_of(*names->array(),
                                      [&](const Json& entry) { return *entry.string() == name; });
}

}  // namespace

const std::vector<std::string>& forbidden_in_values() {
  static const std::vector<std::string> texts = {fmt::format("/{}", control::kMarkup), "/|DSML|"};
  return texts;
}

bool is_strict(const Tool& tool) {
  const Json* strict = tool.function.find("strict");
  return strict && strict->boolean() && *strict->boolean();
}

// `before`, the marker, `after`.
int32_t ToolGrammar::tag(int32_t from, std::string_view before, std::string_view after) {
  from = builder_.text(from, before);
  const auto marker = tokenizer_.id_of(control::kMarkup);
  from = marker ? builder_.token(from, *marker) : builder_.text(from, control::kMarkup);
  return builder_.text(from, after);
}

Result<ToolGrammar::Block> ToolGrammar::add(const std::vector<Tool>& tools, bool parallel) {
  const int32_t any = builder_.add_rule("a call"), any_end = builder_.add_node();
  builder_.set_final(any_end);
  for (const Tool& tool : tools) {
    CACHALOT_TRY(const int32_t rule, invoke(tool));
    builder_.add_call(builder_.start(any), rule, any_end);
  }
  Block block{builder_.add_rule("calls"), builder_.add_rule("the block of calls")};
  const int32_t call = builder_.call(builder_.start(block.opened), any);
  if (parallel) builder_.add_call(builder_.text(call, "\n"), any, call);
  builder_.set_final(tag(call, "\n</", " calls>"));
  const int32_t opened = tag(builder_.start(block.whole), "\n\n<", " calls>\n");
  builder_.set_final(builder_.call(opened, block.opened));
  return block;
}

int32_t ToolGrammar::invoke_start(int32_t rule, const Tool& tool) {
  return tag(builder_.start(rule), "<", fmt::format(" invoke name=\"{}\">\n", tool.qualified_name));
}

Result<int32_t> ToolGrammar::invoke(const Tool& tool) {
  const std::string title = fmt::format("tool '{}'", tool.qualified_name.substr(0, 100));
  if (!can_be_written(tool.qualified_name))
    return fail("{}: a name with a quote, a backslash or a control character cannot be called",
                title);
  const bool strict = is_strict(tool);
  auto rule = typed_invoke(tool, strict);
  if (rule) return rule;
  if (strict) return fail(rule.error().in(title));
  const int32_t loose = builder_.add_rule(title);
  builder_.set_final(tag(any_parameters(invoke_start(loose, tool)), "\n</", " invoke>"));
  return loose;
}

// Parameters of any name and value, joined by line breaks.
int32_t ToolGrammar::any_parameters(int32_t from) {
  const int32_t parameter = builder_.add_rule("a parameter"), start = builder_.start(parameter);
  CodePoints letters = CodePoints::of("_-.");
  for (const auto& [first, last] : {std::pair{'a', 'z'}, {'A', 'Z'}, {'0', '9'}})
    letters.add(static_cast<char32_t>(first), static_cast<char32_t>(last));
  int32_t at = tag(start, "<", " parameter name=\"");
  const int32_t key_end = builder_.add_node();
  for (int i = 0; i < 64; ++i) {
    const int32_t next = builder_.add_node();
    rules_.texts().add(at, letters, Spelling::kRaw, next);
    builder_.add_empty(next, key_end);
    at = next;
  }
  const int32_t kind = builder_.text(key_end, "\" string=\"");
  const int32_t raw = rules_.texts().add(builder_.text(kind, "true\">"),
                                         texts_without(rules_.forbidden()), Spelling::kRaw);
  const int32_t json = builder_.text(kind, "false\">"), json_end = builder_.add_node();
  builder_.add_empty(builder_.text(json, "null"), json_end);
  for (const int32_t rule : {rules_.number(), rules_.boolean(), rules_.object(), rules_.array()})
    builder_.add_call(json, rule, json_end);
  builder_.add_empty(raw, json_end);
  builder_.set_final(tag(json_end, "</", " parameter>"));
  const int32_t end = builder_.add_node(), one = builder_.call(from, parameter);
  builder_.add_call(builder_.text(one, "\n"), parameter, one);
  builder_.add_empty(from, end);
  builder_.add_empty(one, end);
  return end;
}

Result<int32_t> ToolGrammar::typed_invoke(const Tool& tool, bool strict) {
  const int32_t rule =
      builder_.add_rule(fmt::format("tool '{}'", tool.qualified_name.substr(0, 100)));
  const int32_t head = invoke_start(rule, tool), end = builder_.add_node();
  builder_.set_final(tag(end, "\n</", " invoke>"));
  const Json* given = tool.function.find("parameters");
  const Json nothing{Json::Object{}};
  if (!given || given->is_null()) {
    builder_.add_empty(head, end);
    return rule;
  }
  SchemaCompiler compiler(rules_, *given);
  SchemaLeaves leaves(*given);
  CACHALOT_TRY(const std::vector<SchemaLeaf> objects, leaves.of(*given, "#"));
  for (const SchemaLeaf& leaf : objects) {
    const std::vector<std::string> types = types_of(leaf.schema);
    if (std::ranges::find(types, "object") == types.end()) continue;
    if (leaf.schema.find("enum"))
      return fail("{}/enum: not supported for parameters", leaf.pointer);
    const Json *properties = leaf.schema.find("properties"),
               *required = leaf.schema.find("required"),
               *extra = leaf.schema.find("additionalProperties");
    const bool closed = extra && extra->boolean() && !*extra->boolean();
    if (!properties && !required && !closed && !strict) {
      builder_.add_empty(any_parameters(head), end);
      continue;
    }
    Json members = properties ? *properties : nothing;
    if (required && !closed) {
      for (const Json& name : *required->array())
        if (!members.find(*name.string())) members.set(*name.string(), extra ? *extra : Json(true));
    }
    int32_t first = head, rest = builder_.add_node();
    for (const Json::Member& member : *members.object()) {
      const bool needed = contains(required, member.key);
      const std::string where = pointer_below(leaf.pointer + "/properties", member.key);
      if (!can_be_written(member.key)) {
        if (!needed) continue;
        return fail("{}: a name with a quote, a backslash or a control character", where);
      }
      CACHALOT_TRY(const SchemaCompiler::Split split, compiler.split(member.value, where));
      const int32_t parameter = builder_.add_rule(where), value_end = builder_.add_node();
      const int32_t kind = tag(builder_.start(parameter), "<",
                               fmt::format(" parameter name=\"{}\" string=\"", member.key));
      const int32_t raw = builder_.text(kind, "true\">"), json = builder_.text(kind, "false\">");
      for (const SchemaLeaf& value : split.strings) {
        CACHALOT_TRY(const int32_t text_end, compiler.add_raw(value, raw));
        builder_.add_empty(text_end, value_end);
      }
      for (const SchemaLeaf& value : split.others)
        CACHALOT_OK(compiler.add_leaf(value, json, value_end));
      builder_.set_final(tag(value_end, "</", " parameter>"));
      const int32_t next_first = builder_.add_node();
      const int32_t next_rest = builder_.call(builder_.text(rest, "\n"), parameter);
      builder_.add_call(first, parameter, next_rest);
      if (!needed) {
        builder_.add_empty(first, next_first);
        builder_.add_empty(rest, next_rest);
      }
      first = next_first;
      rest = next_rest;
    }
    for (const Json& name : required ? *required->array() : Json::Array{})
      if (!members.find(*name.string()))
        return fail(
            "{}: parameter '{}' is required, but neither in properties nor allowed besides "
            "them",
            leaf.pointer, name.string()->substr(0, 100));
    builder_.add_empty(first, end);
    builder_.add_empty(rest, end);
  }
  CACHALOT_OK(compiler.finish());
  return rule;
}

}  // namespace cachalot
