#include "perplexity_command.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/mapped_file.h"
#include "chat/json_value.h"
#include "engine/engine.h"
#include "model_loader.h"
#include "report.h"
#include "run_input.h"
#include "usage_error.h"

namespace cachalot {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  std::string file;
  int64_t window = 0;  // 0: the context, at most kDefaultWindow
  int64_t stride = 0;  // 0: half a window
  bool json = false;
};

constexpr int64_t kDefaultWindow = 2048;

struct Score {
  double nll = 0;  // nats, of all tokens
  int64_t tokens = 0;
  int64_t windows = 0;
};

double negative_log_probability(const float* logits, int64_t count, int32_t token) {
  const double best = *std::max_element(logits, logits + count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<float>(logits[i] - best));
  return best + std::log(sum) - logits[token];
}

class Scorer {
 public:
  Scorer(Engine& engine, int64_t window, int64_t stride)
      : engine_(engine), window_(window), stride_(stride) {}

  Result<Score> run(const std::vector<int32_t>& text) {
    CACHALOT_TRY(sequence_, engine_.open_sequence());
    int64_t scored = 0;
    for (int64_t start = 0; scored < std::ssize(text); start += stride_) {
      const int64_t end = std::min(std::ssize(text), start + window_ - 1);
      CACHALOT_OK(score_window(text, start, scored, end));
      scored = end;
      ++score_.windows;
      show_progress(scored, std::ssize(text));
    }
    engine_.close_sequence(sequence_);
    score_.tokens = scored;
    return score_;
  }

 private:
  // Token i of the window is predicted by the row of token i - 1; the last token is not computed.
  Status score_window(const std::vector<int32_t>& text, int64_t start, int64_t scored,
                      int64_t end) {
    std::vector<int32_t> ids{static_cast<int32_t>(engine_.config().bos_token_id)};
    ids.insert(ids.end(), text.begin() + start, text.begin() + end);
    const int64_t rows = std::ssize(ids) - 1;
    const int64_t first_scored = scored - start;
    CACHALOT_OK(engine_.truncate(sequence_, 0));
    for (int64_t done = 0; done < rows;) {
      const bool context_only = done < first_scored;
      const int64_t limit = context_only ? first_scored : rows;
      const int64_t count = std::min(limit - done, engine_.options().max_step_tokens);
      CACHALOT_OK(score_step(ids, done, count, context_only));
      done += count;
    }
    return {};
  }

  Status score_step(const std::vector<int32_t>& ids, int64_t first, int64_t count,
                    bool context_only) {
    SequenceStep part;
    part.sequence = sequence_;
    part.tokens = std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    part.logits = context_only ? LogitsOf::none : LogitsOf::all;
    StepRequest request;
    request.sequences = {&part, 1};
    CACHALOT_TRY(const StepResult result, engine_.step(request));
    if (context_only) return {};
    const int64_t vocab_size = engine_.config().vocab_size;
    for (int64_t row = 0; row < count; ++row)
      score_.nll += negative_log_probability(result.logits.data + row * vocab_size, vocab_size,
                                             ids[static_cast<size_t>(first + row + 1)]);
    if (!std::isfinite(score_.nll)) return fail("a logit is not finite: the weights are damaged");
    return {};
  }

  void show_progress(int64_t done, int64_t total) const {
    if (!isatty(STDERR_FILENO)) return;
    report("\r\033[K{} of {} tokens, perplexity {:.4f}{}", done, total,
           std::exp(score_.nll / static_cast<double>(done)), done == total ? "\r\033[K" : "");
    std::fflush(stderr);
  }

  Engine& engine_;
  int64_t window_, stride_;
  int32_t sequence_ = 0;
  Score score_;
};

void print_score(const PerplexityOptions& options, const Score& score, int64_t window,
                 int64_t stride, size_t bytes, double seconds) {
  const double mean = score.nll / static_cast<double>(score.tokens);
  const double bits_per_byte = score.nll / std::log(2.0) / static_cast<double>(bytes);
  const double rate = static_cast<double>(score.tokens) / seconds;
  if (!options.json) {
    fmt::print(
        "perplexity {:.4f} | {:.4f} nats per token, {:.4f} bits per byte\n"
        "{} tokens in {} windows of {}, stride {} | {:.0f} tok/s\n",
        std::exp(mean), mean, bits_per_byte, score.tokens, score.windows, window, stride, rate);
    return;
  }
  const Json json(Json::Object{
      {"perplexity", Json(std::exp(mean))},
      {"nll", Json(mean)},
      {"bits_per_byte", Json(bits_per_byte)},
      {"tokens", Json::integer(score.tokens)},
      {"windows", Json::integer(score.windows)},
      {"window", Json::integer(window)},
      {"stride", Json::integer(stride)},
      {"seconds", Json(seconds)},
      {"tokens_per_second", Json(rate)},
  });
  fmt::print("{}\n", json.dump());
}

Status measure(PerplexityOptions options) {
  if (options.model.prefill_mode() == PrefillMode::shortcut) {
    usage_error(
        "--prefill shortcut: perplexity needs the logits of every token, which the shortcut leaves "
        "out; use --prefill exact");
  }
  CACHALOT_TRY(const std::string text, read_text_file(options.file));
  if (text.empty()) return fail("{}: expected some text, found an empty file", options.file);
  CACHALOT_OK(check_text(text, options.file));
  CACHALOT_TRY(const LoadedModel model, load_model(options.model));
  const int64_t context = model.engine->options().max_context;
  const int64_t window = options.window > 0 ? options.window : std::min(context, kDefaultWindow);
  if (window < 2 || window > context)
    usage_error("--window: expected 2 to {} tokens (the context, see --ctx), found {}", context,
                window);
  const int64_t stride = options.stride > 0 ? options.stride : std::max<int64_t>(1, window / 2);
  if (stride > window - 1)
    usage_error("--stride: expected 1 to {} (one less than the window), found {}", window - 1,
                stride);
  const std::vector<int32_t> ids = model.tokenizer.encode(text, EncodeMode::plain);
  const auto start = std::chrono::steady_clock::now();
  CACHALOT_TRY(const Score score, Scorer(*model.engine, window, stride).run(ids));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_score(options, score, window, stride, text.size(), seconds);
  return {};
}

}  // namespace

void add_perplexity_command(CLI::App& app) {
  auto options = std::make_shared<PerplexityOptions>();
  // All rows of a step have logits here: fewer tokens a step bound their memory.
  options->model.chunk = 128;
  CLI::App* command =
      app.add_subcommand("perplexity", "Measure how well a model predicts a text file");
  command->footer(
      "Windows of BOS and window - 1 tokens, each starting stride tokens after the one before; "
      "every\n"
      "token counts once, in the first window that holds it.");
  command->add_option("model", options->model.model, "Model folder")->required();
  command->add_option("file", options->file, "Text file")->required();
  command
      ->add_option(
          "--window", options->window,
          fmt::format("Tokens per window (default: the context, at most {})", kDefaultWindow))
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 40));
  command
      ->add_option("--stride", options->stride, "Tokens between windows (default: half a window)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_flag("--json", options->json, "Write one JSON object");
  add_engine_options(*command, options->model);
  add_prefill_options(*command, options->model);
  command->callback([options] {
    const Status status = measure(*options);
    if (status) return;
    report("error: {}\n", status.error().message);
    throw CLI::RuntimeError(1);
  });
}

}  // namespace cachalot
