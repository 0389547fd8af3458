#include "render_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "chat/render.h"
#include "default_model.h"
#include "report.h"
#include "tokenizer/tokenizer.h"

namespace cachalot {
namespace {

Result<std::string> render_line(const Tokenizer& tokenizer, const std::string& text) {
  CACHALOT_TRY(const Json request, parse_json(text));
  CACHALOT_TRY(const Conversation conversation, parse_conversation(request));
  CACHALOT_TRY(const Prompt prompt, render(conversation));
  Json::Array ids;
  for (const int32_t id : encode_prompt(prompt, tokenizer)) ids.push_back(Json::integer(id));
  return Json(Json::Object{{"prompt", prompt.text()}, {"ids", std::move(ids)}}).dump();
}

}  // namespace

Status render_lines(const std::string& model, std::istream& in, std::ostream& out) {
  CACHALOT_TRY(const Tokenizer tokenizer, Tokenizer::load(model));
  std::string text;
  for (size_t number = 1; std::getline(in, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto result = render_line(tokenizer, text);
    if (!result) {
      out.flush();
      return fail(result.error().in(fmt::format("line {}", number)));
    }
    out << *result << '\n';
    // A reader that waits for this answer before it sends the next line must get it.
    if (in.rdbuf()->in_avail() <= 0) out.flush();
    if (!out) return fail("line {}: the result cannot be written", number);
  }
  out.flush();
  return {};
}

void add_render_command(CLI::App& app) {
  auto model = std::make_shared<std::string>(default_model());
  CLI::App* command = app.add_subcommand(
      "render", "JSON lines with messages on stdin become {\"prompt\", \"ids\"} on stdout");
  command->add_option("-m,--model", *model, "Model folder (its tokenizer files suffice)")
      ->capture_default_str();
  command->callback([model] {
    std::ios::sync_with_stdio(false);
    const Status status = render_lines(*model, std::cin, std::cout);
    if (status) return;
    report("error: {}\n", status.error().message);
    throw CLI::RuntimeError(1);
  });
}

}  // namespace cachalot
