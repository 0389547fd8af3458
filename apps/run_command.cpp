#include "run_command.h"

#include <unistd.h>

#include <cstdio>
#include <memory>

#include "answer_json.h"
#include "answer_printer.h"
#include "base/environment.h"
#include "chat_session.h"
#include "draft_options.h"
#include "interrupt.h"
#include "model_loader.h"
#include "report.h"
#include "run_input.h"
#include "sampling_options.h"
#include "usage_error.h"

namespace cachalot {
namespace {

struct RunOptions {
  ModelOptions model;
  InputOptions input;
  SamplingOptions sampling;
  DraftOptions drafts;
  bool json = false;
};

Result<Generator> open_generator(const LoadedModel& model, const RunOptions& options) {
  const int64_t block = model.config().has_drafts() ? model.config().dspark_block_size : 0;
  const DraftParameters drafts = or_usage_error(draft_parameters(options.drafts, block));
  return Generator::open(*model.engine, drafts);
}

bool stdout_is_terminal() { return isatty(STDOUT_FILENO); }
bool styles_allowed() {
  return stdout_is_terminal() && !environment::no_color() && !environment::plain_terminal();
}

Result<int> run_once(const RunOptions& options) {
  CACHALOT_TRY(const Conversation conversation, read_conversation(options.input));
  CACHALOT_TRY(const LoadedModel model, load_model(options.model));
  AnswerParameters parameters = or_usage_error(
      answer_parameters(options.sampling, model.generation, model.config().vocab_size));
  parameters.generation.prefill = options.model.prefill_mode();
  CACHALOT_TRY(Generator generator, open_generator(model, options));

  AnswerPrinter printer(stdout, stdout_is_terminal(), styles_allowed());
  PrefillProgress progress;
  const InterruptGuard interrupt;
  AnswerCallbacks callbacks;
  callbacks.on_prefill = [&](int64_t done, int64_t total) { progress.show(done, total); };
  callbacks.cancelled = [&] { return interrupt.interrupted(); };
  if (!options.json) callbacks.on_event = [&](const ParserEvent& event) { printer.show(event); };
  CACHALOT_TRY(const Answer answer,
               answer_conversation(conversation, model.tokenizer, *model.pictures, generator,
                                   parameters, callbacks));
  const WeightStore* storage = model.engine->storage();
  if (options.json) {
    Json result = answer_json(answer, model.load_seconds);
    if (storage) result.set("storage", storage_json(storage->statistics()));
    fmt::print("{}\n", result.dump());
  } else {
    printer.finish(answer.message);
    report("[{} | load {:.2f} s | {}]\n", model.engine->description(), model.load_seconds,
           timing_line(answer));
    if (storage) report("[{}]\n", storage_line(storage->statistics()));
  }
  CACHALOT_OK(save_expert_profile(options.model.storage, *model.engine));
  const std::string departure = model.engine->first_departure();
  if (!departure.empty())
    return fail("the checked backend departs from the reference: {}", departure);
  return answer.generation.finish == FinishReason::cancelled ? kInterruptedExit : 0;
}

Result<int> run_chat(const RunOptions& options) {
  if (options.json)
    usage_error("--json: expected a prompt (argument, --file, --messages or stdin)");
  if (options.input.raw) usage_error("--raw: expected a prompt (argument, --file or stdin)");
  CACHALOT_TRY(ChatSettings settings, read_chat_settings(options.input));
  CACHALOT_TRY(const LoadedModel model, load_model(options.model));
  AnswerParameters parameters = or_usage_error(
      answer_parameters(options.sampling, model.generation, model.config().vocab_size));
  parameters.generation.prefill = options.model.prefill_mode();
  CACHALOT_TRY(Generator generator, open_generator(model, options));
  fmt::print("{} | {} | context {}\n", options.model.model, model.engine->description(),
             model.engine->options().max_context);
  ChatSession session(model.tokenizer, *model.pictures, std::move(generator), std::move(parameters),
                      std::move(settings), styles_allowed());
  session.run();
  if (const WeightStore* storage = model.engine->storage()) {
    report("[{}]\n", storage_line(storage->statistics()));
  }
  CACHALOT_OK(save_expert_profile(options.model.storage, *model.engine));
  return 0;
}

}  // namespace

void add_run_command(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Answer a question, or chat");
  command->footer(
      "Without a prompt on a terminal, a chat begins (/help there). The answer goes to stdout as "
      "it\n"
      "appears, timings to stderr. Thinking is shown dim on a terminal and left out elsewhere;\n"
      "--json has it. Calls of tools are shown as [call] NAME ARGUMENTS.\n"
      "Exit codes: 0 answered, 1 error, 2 wrong usage, 130 interrupted.");
  add_model_option(*command, options->model);
  add_input_options(*command, options->input);
  command->add_flag("--json", options->json,
                    "Write one JSON object: ids, text, reasoning_content, content, tool_calls, "
                    "finish_reason, usage, timings, drafts, storage");
  add_sampling_options(*command, options->sampling);
  add_engine_options(*command, options->model);
  add_prefill_options(*command, options->model);
  add_storage_options(*command, options->model.storage);
  add_draft_options(*command, options->drafts);
  command->callback([options] {
    const bool chat = !options->input.has_source() && isatty(STDIN_FILENO);
    const Result<int> code = chat ? run_chat(*options) : run_once(*options);
    if (!code) report("error: {}\n", code.error().message);
    const int exit_code = code ? *code : 1;
    if (exit_code != 0) throw CLI::RuntimeError(exit_code);
  });
}

}  // namespace cachalot
