#include "chat/prompt_writer.h"

#include <algorithm>

#include "chat/control_tokens.h"

namespace cachalot {
namespace {

// The words are the model's training data: not a byte may change.
constexpr std::string_view kToolsIntroduction =
    R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";

constexpr std::string_view kToolsEnd =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";

void write_call(PromptWriter& writer, const ToolCall& call) {
  writer.put("<｜DSML｜ invoke name=\"").put_plain(call.qualified()).put("\">\n");
  bool first = true;
  for (const auto& [key, value] : *call.arguments.object()) {
    if (!first) writer.put("\n");
    first = false;
    const std::string* text = value.string();
    writer.put("<｜DSML｜ parameter name=\"").put_plain(key);
    writer.put(text ? "\" string=\"true\">" : "\" string=\"false\">");
    writer.put_plain(text ? *text : value.dump()).put("</｜DSML｜ parameter>");
  }
  writer.put("\n</｜DSML｜ invoke>");
}

}  // namespace

PromptWriter& PromptWriter::add(std::string_view text, bool trusted) {
  if (text.empty()) return *this;
  auto& pieces = prompt_.pieces;
  if (pieces.empty() || pieces.back().trusted != trusted || !pieces.back().ids.empty())
    pieces.push_back({{}, trusted});
  pieces.back().text += text;
  return *this;
}

PromptWriter& PromptWriter::put_ids(std::vector<int32_t> ids) {
  prompt_.pieces.push_back({{}, true, std::move(ids)});
  return *this;
}

PromptWriter& PromptWriter::put_answer(std::string_view text) {
  size_t plain_from = 0;
  for (size_t at = text.find('<'); at != text.npos;) {
    const std::string_view rest = text.substr(at);
    const auto mark = std::find_if(control::kGrounding.begin(), control::kGrounding.end(),
                                   [&](std::string_view m) { return rest.starts_with(m); });
    if (mark == control::kGrounding.end()) {
      at = text.find('<', at + 1);
      continue;
    }
    put_plain(text.substr(plain_from, at - plain_from)).put(*mark);
    plain_from = at + mark->size();
    at = text.find('<', plain_from);
  }
  return put_plain(text.substr(plain_from));
}

PromptWriter& PromptWriter::put_image(const ImageRecord& image) {
  prompt_.images.push_back(image);
  return put(control::kImage);
}

void write_tools_section(PromptWriter& writer, const std::vector<Tool>& tools) {
  writer.put("\n\n").put(kToolsIntroduction);
  for (size_t i = 0; i < tools.size(); ++i) {
    if (i) writer.put("\n");
    writer.put_plain(tools[i].function.dump());
  }
  writer.put(kToolsEnd);
}

void write_calls(PromptWriter& writer, const std::vector<ToolCall>& calls) {
  write_opened_calls(writer);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i) writer.put("\n");
    write_call(writer, calls[i]);
  }
  writer.put("\n</｜DSML｜ calls>");
}

void write_opened_calls(PromptWriter& writer) { writer.put("\n\n<｜DSML｜ calls>\n"); }

}  // namespace cachalot
