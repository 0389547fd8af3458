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

Result<int32_t> ToolGrammar::invoke(const Tool& tool) {
  const std::string title = fmt::format("tool '{}'", tool.qualified_name.substr(0, 100));
  if (!can_be_written(tool.qualified_name))
    return fail("{}: a name with a quote, a backslash or a control character cannot be called",
                title);
  const int32_t rule = builder_.add_rule(title), end = builder_.add_node();
  const int32_t head =
      tag(builder_.start(rule), "<", fmt::format(" invoke name=\"{}\">\n", tool.qualified_name));
  builder_.set_final(tag(end, "\n</", " invoke>"));
  const Json* schema = tool.function.find("parameters");
  if (!schema || schema->is_null()) {
    builder_.add_empty(head, end);
    return rule;
  }
  const bool strict = is_strict(tool);
  const auto leaves = SchemaLeaves(*schema).of(*schema, "#");
  if (!leaves && strict) return fail(leaves.error().in(title));
  if (!leaves) add_any_parameters(head, end);
  if (leaves && std::ranges::none_of(*leaves, [](const SchemaLeaf& leaf) {
        const std::vector<std::string> types = types_of(leaf.schema);
        return std::ranges::find(types, "object") != types.end();
      }))
    return fail("{}: #: the schema of its parameters must describe an object", title);
  for (const SchemaLeaf& leaf : leaves ? *leaves : std::vector<SchemaLeaf>{}) {
    const Status status = add_parameters(leaf, *schema, strict, head, end);
    if (!status) return fail(status.error().in(title));
  }
  return rule;
}

// Like the members of an object (schema_compiler.cpp), joined by line breaks.
Status ToolGrammar::add_parameters(const SchemaLeaf& leaf, const Json& document, bool strict,
                                   int32_t from, int32_t to) {
  const std::vector<std::string> types = types_of(leaf.schema);
  if (std::ranges::find(types, "object") == types.end()) return {};
  if (leaf.schema.find("enum")) return fail("{}/enum: not supported for parameters", leaf.pointer);
  const Json *properties = leaf.schema.find("properties"), *required = leaf.schema.find("required"),
             *extra = leaf.schema.find("additionalProperties");
  const bool closed = extra && extra->boolean() && !*extra->boolean();
  if (!properties && !required && !closed && !strict) {
    add_any_parameters(from, to);
    return {};
  }
  Json members = properties ? *properties : Json(Json::Object{});
  for (const Json& name : required ? *required->array() : Json::Array{}) {
    if (members.find(*name.string())) continue;
    if (closed)
      return fail(
          "{}: parameter '{}' is required, but neither in properties nor allowed besides "
          "them",
          leaf.pointer, name.string()->substr(0, 100));
    members.set(*name.string(), extra ? *extra : Json(true));
  }
  int32_t first = from, rest = builder_.add_node();
  for (const Json::Member& member : *members.object()) {
    const bool needed = contains(required, member.key);
    const std::string where = pointer_below(leaf.pointer + "/properties", member.key);
    if (!can_be_written(member.key)) {
      if (!needed) continue;
      return fail("{}: a name with a quote, a backslash or a control character", where);
    }
    CACHALOT_TRY(const int32_t one, parameter(member.key, member.value, where, document, strict));
    const int32_t next_first = builder_.add_node();
    const int32_t next_rest = builder_.call(builder_.text(rest, "\n"), one);
    builder_.add_call(first, one, next_rest);
    if (!needed) {
      builder_.add_empty(first, next_first);
      builder_.add_empty(rest, next_rest);
    }
    first = next_first;
    rest = next_rest;
  }
  builder_.add_empty(first, to);
  builder_.add_empty(rest, to);
  return {};
}

Result<int32_t> ToolGrammar::parameter(const std::string& key, const Json& schema,
                                       const std::string& where, const Json& document,
                                       bool strict) {
  const int32_t rule = builder_.add_rule(where), end = builder_.add_node();
  const int32_t kind =
      tag(builder_.start(rule), "<", fmt::format(" parameter name=\"{}\" string=\"", key));
  builder_.set_final(tag(end, "</", " parameter>"));
  const Status status = add_value(schema, where, document, kind, end);
  if (!status && (strict || !rules_.spend(100))) return fail(status.error());
  if (!status) add_any_value(kind, end);
  return rule;
}

Status ToolGrammar::add_value(const Json& schema, const std::string& where, const Json& document,
                              int32_t kind, int32_t to) {
  SchemaCompiler compiler(rules_, document);
  CACHALOT_TRY(const SchemaCompiler::Split split, compiler.split(schema, where));
  const int32_t raw = builder_.text(kind, "true\">"), json = builder_.text(kind, "false\">");
  for (const SchemaLeaf& leaf : split.strings) {
    CACHALOT_TRY(const int32_t end, compiler.add_raw(leaf, raw));
    builder_.add_empty(end, to);
  }
  for (const SchemaLeaf& leaf : split.others) CACHALOT_OK(compiler.add_leaf(leaf, json, to));
  return compiler.finish();
}

void ToolGrammar::add_any_value(int32_t kind, int32_t to) {
  const Automaton text = texts_without(rules_.forbidden());
  builder_.add_empty(rules_.texts().add(builder_.text(kind, "true\">"), text, Spelling::kRaw), to);
  const int32_t json = builder_.text(kind, "false\">");
  builder_.add_empty(builder_.text(json, "null"), to);
  for (const int32_t rule : {rules_.number(), rules_.boolean(), rules_.object(), rules_.array()})
    builder_.add_call(json, rule, to);
}

void ToolGrammar::add_any_parameters(int32_t from, int32_t to) {
  CodePoints letters = CodePoints::of("_-.");
  for (const auto& [first, last] : {std::pair{U'a', U'z'}, {U'A', U'Z'}, {U'0', U'9'}})
    letters.add(first, last);
  const int32_t rule = builder_.add_rule("a parameter"), key_end = builder_.add_node();
  int32_t key = tag(builder_.start(rule), "<", " parameter name=\"");
  for (int i = 0; i < 64; ++i) {
    const int32_t next = builder_.add_node();
    rules_.texts().add(key, letters, Spelling::kRaw, next);
    builder_.add_empty(next, key_end);
    key = next;
  }
  const int32_t value_end = builder_.add_node();
  add_any_value(builder_.text(key_end, "\" string=\""), value_end);
  builder_.set_final(tag(value_end, "</", " parameter>"));
  const int32_t one = builder_.call(from, rule);
  builder_.add_call(builder_.text(one, "\n"), rule, one);
  builder_.add_empty(from, to);
  builder_.add_empty(one, to);
}

}  // namespace cachalot
