#include "bench/generation_speed.h"

#include <fstream>
#include <numeric>

#include "checkpoint/json_text.h"
#include "engine/generation.h"
#include "tokenizer/engram_token_map.h"
#include "tokenizer/tokenizer.h"

namespace cachalot::bench {
namespace {

using Prompt = std::vector<int32_t>;

std::filesystem::path examples_of(const std::filesystem::path& folder) {
  return folder / "examples.jsonl";
}

// Spread over the file, which is sorted by kind of text.
Result<std::vector<Prompt>> read_prompts(const std::filesystem::path& file, int64_t wanted) {
  std::vector<Prompt> all;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto json = parse_json_strictly(line);
    const std::string where = fmt::format("{}:{}", file.string(), all.size() + 1);
    if (!json) return fail(json.error().in(where));
    if (!json->is_object() || !json->contains("prompt_ids")) {
      return fail("{}: expected an object with prompt_ids", where);
    }
    Prompt prompt;
    for (const auto& id : json->at("prompt_ids")) {
      if (!id.is_number_integer()) return fail("{}: expected integers as prompt_ids", where);
      prompt.push_back(id.get<int32_t>());
    }
    all.push_back(std::move(prompt));
  }
  if (all.empty()) return fail("{}: expected examples, found none", file.string());
  std::vector<Prompt> chosen;
  const auto count = std::min(wanted, std::ssize(all));
  for (int64_t i = 0; i < count; ++i) {
    chosen.push_back(all[static_cast<size_t>(i * std::ssize(all) / count)]);
  }
  return chosen;
}

struct Answers {
  std::vector<std::vector<int32_t>> ids;
  double seconds = 0;
  int64_t tokens = 0, cycles = 0;  // after the first of each answer
};

Result<Answers> answer(Generator& generator, const std::vector<Prompt>& prompts,
                       const GenerationOptions& options, int32_t end_token) {
  GenerationParameters parameters;
  parameters.sampling.temperature = 0;
  parameters.max_tokens = options.most_tokens;
  parameters.end_tokens = {end_token};
  Answers answers;
  for (const Prompt& prompt : prompts) {
    CACHALOT_TRY(GenerationResult result, generator.generate(prompt, parameters));
    answers.seconds += result.decode_seconds;
    answers.tokens += std::ssize(result.ids) - 1;
    answers.cycles += result.cycles;
    answers.ids.push_back(std::move(result.ids));
  }
  return answers;
}

Row row_of(std::string name, const std::vector<Answers>& rounds) {
  Row row{.name = std::move(name),
          .shape = fmt::format("{} answers, {} tokens", rounds[0].ids.size(), rounds[0].tokens),
          .repetitions = std::ssize(rounds)};
  std::vector<double> seconds;
  for (const Answers& round : rounds) {
    seconds.push_back(round.seconds / static_cast<double>(std::max<int64_t>(1, round.tokens)));
  }
  std::ranges::sort(seconds);
  row.best_seconds = seconds.front();
  row.seconds = seconds[seconds.size() / 2];
  row.tokens_per_second = 1 / row.best_seconds;
  return row;
}

}  // namespace

bool has_examples(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(examples_of(folder), ignored);
}

Result<GenerationSpeed> measure_generation(const std::filesystem::path& folder,
                                           const GenerationOptions& options) {
  CACHALOT_TRY(auto opened, Checkpoint::open(folder));
  const auto checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
  CACHALOT_TRY(const Tokenizer tokenizer, Tokenizer::load(folder));
  CACHALOT_TRY(EngramTokenMap classes, engram_token_map(tokenizer));
  CACHALOT_TRY(const auto engine,
               make_engine(checkpoint, std::move(classes.class_of), options.engine));
  CACHALOT_TRY(const std::vector<Prompt> prompts,
               read_prompts(examples_of(folder), options.prompts));
  const auto end_token = static_cast<int32_t>(engine->config().eos_token_id);
  std::vector<Answers> plain, drafted;
  const DraftMode modes[] = {DraftMode::off, DraftMode::automatic};
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (DraftMode mode : modes) {
      if (mode != DraftMode::off && !engine->config().has_drafts()) continue;
      CACHALOT_TRY(Generator generator, Generator::open(*engine, {.mode = mode}));
      CACHALOT_TRY(Answers answers, answer(generator, prompts, options, end_token));
      (mode == DraftMode::off ? plain : drafted).push_back(std::move(answers));
    }
  }
  GenerationSpeed speed;
  speed.rows.push_back(row_of("answers/plain/tokens1", plain));
  if (drafted.empty()) return speed;
  if (drafted[0].ids != plain[0].ids) {
    return fail("{}: answers with drafts differ from those without", folder.string());
  }
  speed.rows.push_back(row_of("answers/drafts/tokens1", drafted));
  speed.tokens_per_cycle = static_cast<double>(drafted[0].tokens) /
                           static_cast<double>(std::max<int64_t>(1, drafted[0].cycles));
  speed.speed_up = speed.rows[0].best_seconds / speed.rows[1].best_seconds;
  return speed;
}

}  // namespace cachalot::bench
