// Pictures from the vision tower to the last token of the answer: tiny-a's trace, and what the
// trained model says about the pictures of its examples.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <future>

#include "chat/render.h"
#include "engine/image_prompt.h"
#include "engine/scheduler.h"
#include "golden_tensors.h"
#include "pictures/picture_reader.h"
#include "test_engine.h"

namespace cachalot {
namespace {

using test::data_path;
using test::nano_path;
using test::open_checkpoint;
using test::open_engine;

struct Picture {
  PatchGrid grid;
  std::vector<bf16> patches;
  std::vector<float> features;  // the reference's
};

Picture golden_picture() {
  const GoldenTensors golden("tiny-a.golden.safetensors");
  const auto grid = golden.values<int32_t>("image.grid");
  Picture picture{.grid = {grid[0], grid[1]}, .features = golden.values<float>("image.features")};
  for (const float value : golden.values<float>("image.patches")) {
    picture.patches.push_back(to_bf16(value));
  }
  return picture;
}

std::unique_ptr<ImageEncoder> tiny_encoder(const ImageEncoderOptions& options) {
  return std::move(
      *ImageEncoder::make(open_checkpoint(data_path("tiny-a")), test::on_test_backend(options)));
}

// Relative L2 error per row of the grid's features, ascending.
std::vector<double> errors(const EncodedImage& image, const std::vector<float>& features) {
  std::vector<double> out;
  for (int64_t cell = 0; cell < image.grid_width * image.grid_height; ++cell) {
    const int64_t place = 1 + cell + cell / image.grid_width;
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < image.dim; ++i) {
      const double expected = features[cell * image.dim + i];
      const double found = to_float(image.rows[place * image.dim + i]);
      difference += (found - expected) * (found - expected);
      norm += expected * expected;
    }
    out.push_back(std::sqrt(difference / norm));
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The bounds of the comparison tool that comes with the goldens.
void expect_golden_features(const ImageEncoderOptions& options) {
  const Picture picture = golden_picture();
  const auto image = tiny_encoder(options)->encode(picture.grid, picture.patches, {});
  ASSERT_EQ(static_cast<size_t>(image->grid_width * image->grid_height * image->dim),
            picture.features.size());
  const std::vector<double> sorted = errors(*image, picture.features);
  EXPECT_LE(sorted[sorted.size() / 2], 0.012);
  EXPECT_LE(sorted[sorted.size() * 9 / 10], 0.02);
}

TEST(VisionTower, GivesTheReferencesFeaturesOnEveryInstructionSet) {
  for (const Isa isa : test::supported_isas()) {
    SCOPED_TRACE(name_of(isa));
    expect_golden_features({.isa = isa});
  }
}

TEST(VisionTower, GivesTheReferencesFeaturesOnTheReferenceQueue) {
  expect_golden_features({.backend = Backend::reference});
}

TEST(VisionTower, DoesNotDependOnTheNumberOfThreads) {
  const Picture picture = golden_picture();
  std::vector<std::shared_ptr<const EncodedImage>> images;
  for (const int threads : {1, 2, 3}) {
    images.push_back(tiny_encoder({.threads = threads})->encode(picture.grid, picture.patches, {}));
  }
  const auto bits = [](const EncodedImage& image) {
    std::vector<uint16_t> out;
    for (const bf16 value : image.rows) out.push_back(value.bits);
    return out;
  };
  EXPECT_EQ(bits(*images[0]), bits(*images[1]));
  EXPECT_EQ(bits(*images[0]), bits(*images[2]));
}

TEST(ImageEncoder, KeepsWhatItHasSeenByContent) {
  const Picture picture = golden_picture();
  const auto encoder = tiny_encoder({});
  const auto first = encoder->encode(picture.grid, picture.patches, {1});
  EXPECT_EQ(encoder->encode(picture.grid, picture.patches, {1}), first);
  EXPECT_EQ(encoder->hits(), 1);
  EXPECT_NE(encoder->encode(picture.grid, picture.patches, {2}), first);
  const auto none = tiny_encoder({.cache_bytes = 0});
  EXPECT_NE(none->encode(picture.grid, picture.patches, {1}), nullptr);
  EXPECT_EQ(none->cached_bytes(), 0);
}

TEST(ImageEncoder, RefusesAModelWithoutAVisionTower) {
  const auto encoder = ImageEncoder::make(open_checkpoint(data_path("tiny-b")));
  ASSERT_FALSE(encoder.has_value());
  EXPECT_EQ(encoder.error().message, "this model has no vision tower: it cannot see pictures");
}

TEST(ImagePrompt, PutsSpansInPlaceOfPlaceholders) {
  const auto image = std::make_shared<EncodedImage>(EncodedImage{
      .digest = {7}, .grid_width = 2, .grid_height = 1, .dim = 1, .rows = std::vector<bf16>(5)});
  const std::vector<std::shared_ptr<const EncodedImage>> images = {image, image};
  const std::vector<int32_t> ids = {3, 9, 9, 4};
  const auto prompt = expand_images(ids, 9, images);
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->ids, (std::vector<int32_t>{3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 4}));
  const PromptImages& spans = *prompt->images;
  EXPECT_EQ(spans.index, (std::vector<int32_t>{-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1}));
  EXPECT_EQ(spans.rows.size(), 10u);
  EXPECT_EQ(spans.key.front(), 3);
  EXPECT_EQ(spans.key.back(), 4);
  for (size_t i = 1; i < 6; ++i) {
    EXPECT_LT(spans.key[i], 0);
    EXPECT_EQ(spans.key[i], spans.key[i + 5]);  // the same picture again
    EXPECT_NE(spans.key[i], spans.key[i % 5 + 1]);
  }
  EXPECT_FALSE(expand_images(ids, 9, std::span(images).first(1)));
  EXPECT_EQ(expand_images(ids, 5, {})->images, nullptr);
}

// A prompt with the golden's picture at every place of a step.
TEST(PicturesInPrompts, GiveTheSameLogitsHoweverTheyAreCut) {
  const Picture picture = golden_picture();
  const auto image = tiny_encoder({})->encode(picture.grid, picture.patches, {});
  const int32_t mark = static_cast<int32_t>(tiny_encoder({})->config().image_token_id);
  const std::vector<int32_t> ids = {10, 11, 12, 13, mark, 14, mark, 15, 16};
  const std::vector<std::shared_ptr<const EncodedImage>> images = {image, image};
  const ImagePrompt prompt = *expand_images(ids, mark, images);
  std::vector<float> whole;
  for (const int64_t chunk : {512, 1, 2, 3, 5, 11}) {
    const auto engine = open_engine(data_path("tiny-a"), {});
    const int32_t sequence = *engine->open_sequence();
    std::vector<float> logits;
    for (int64_t first = 0; first < std::ssize(prompt.ids); first += chunk) {
      const auto count = std::min(chunk, std::ssize(prompt.ids) - first);
      SequenceStep part{.sequence = sequence,
                        .tokens = std::span(prompt.ids).subspan(first, count),
                        .logits = LogitsOf::all};
      StepImages rows;
      rows.add(part, prompt.images.get(), first);
      const auto result = engine->step({.sequences = {&part, 1}, .image_rows = rows.rows()});
      ASSERT_TRUE(result.has_value()) << result.error().message;
      logits.insert(logits.end(), result->logits.data,
                    result->logits.data + result->logits.elements());
    }
    if (whole.empty()) whole = logits;
    EXPECT_EQ(logits, whole) << "chunks of " << chunk;
  }
}

struct Question {
  std::string id;
  std::vector<int32_t> expected_prompt, completion;
  ImagePrompt prompt;
};

std::vector<int32_t> ids_of(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : *json.array()) ids.push_back(static_cast<int32_t>(*id.int64()));
  return ids;
}

std::vector<Json> image_examples() {
  std::vector<Json> result;
  std::ifstream file(nano_path() / "examples.jsonl");
  for (std::string line; std::getline(file, line);) {
    Json json = *parse_json(line);
    if (*json.find("family")->string() == "image") result.push_back(std::move(json));
  }
  return result;
}

std::vector<Question> questions() {
  PictureReader reader(open_checkpoint(nano_path()), {});
  const Tokenizer tokenizer = *Tokenizer::load(nano_path());
  std::vector<Question> result;
  for (const Json& json : image_examples()) {
    const Prompt prompt = *render(*parse_conversation(json));
    auto expanded = reader.expand(encode_prompt(prompt, tokenizer), prompt.images);
    if (!expanded) throw std::runtime_error(expanded.error().message);
    result.push_back({*json.find("id")->string(), ids_of(*json.find("prompt_ids")),
                      ids_of(*json.find("completion_ids")), std::move(*expanded)});
  }
  return result;
}

GenerationParameters greedy(const ModelConfig& config) {
  GenerationParameters parameters;
  parameters.sampling.temperature = 0;
  parameters.max_tokens = 64;
  parameters.end_tokens = {static_cast<int32_t>(config.eos_token_id)};
  return parameters;
}

void expect_oracle_answers(const EngineOptions& options, const DraftParameters& drafts) {
  const auto engine = open_engine(nano_path(), options);
  Generator generator = *Generator::open(*engine, drafts);
  const std::vector<Question> all = questions();
  ASSERT_EQ(all.size(), 5u);
  for (int round = 0; round < 2; ++round) {  // the second time with what the caches still hold
    for (const Question& question : all) {
      EXPECT_EQ(question.prompt.ids, question.expected_prompt) << question.id;
      const auto result = generator.generate(question.prompt.ids, greedy(engine->config()), {},
                                             question.prompt.images.get());
      ASSERT_TRUE(result.has_value()) << result.error().message;
      EXPECT_EQ(result->ids, question.completion) << question.id;
    }
  }
}

TEST(NanoPictures, AreAnsweredAsByTheOracle) { expect_oracle_answers({}, {}); }

TEST(NanoPictures, AreAnsweredAsByTheOracleInSmallSteps) {
  expect_oracle_answers({.max_step_tokens = 5}, {});
}

TEST(NanoPictures, AreAnsweredAsByTheOracleWithDrafts) {
  expect_oracle_answers({}, {.mode = DraftMode::fixed, .depth = 3});
}

// Another picture of the same size makes the same ids: the sequence's caches must not be taken
// over.
TEST(NanoPictures, AreToldApartThoughTheirTokensAreEqual) {
  const auto engine = open_engine(nano_path(), {});
  Generator generator = *Generator::open(*engine);
  const std::vector<Question> all = questions();
  const Question& first = all[0];
  auto other = std::make_shared<PromptImages>(*first.prompt.images);
  for (int64_t& key : other->key) key = key < 0 ? key + 1 : key;
  const auto parameters = greedy(engine->config());
  ASSERT_TRUE(generator.generate(first.prompt.ids, parameters, {}, first.prompt.images.get()));
  const auto again =
      generator.generate(first.prompt.ids, parameters, {}, first.prompt.images.get());
  EXPECT_EQ(again->reused_tokens, again->prompt_tokens - 1);
  const auto changed = generator.generate(first.prompt.ids, parameters, {}, other.get());
  const auto span = std::ranges::find_if(other->key, [](int64_t key) { return key < 0; });
  EXPECT_LE(changed->reused_tokens, span - other->key.begin());
}

// What `request` i of the batch below asks beside the pictures.
std::vector<int32_t> text_prompt(size_t i) {
  return {277, 457, 338, static_cast<int32_t>(300 + i)};
}

std::vector<std::vector<int32_t>> answers_alone(size_t count, int64_t max_tokens) {
  const auto engine = open_engine(nano_path(), {});
  Generator generator = *Generator::open(*engine);
  GenerationParameters parameters = greedy(engine->config());
  parameters.max_tokens = max_tokens;
  std::vector<std::vector<int32_t>> answers;
  for (size_t i = 0; i < count; ++i)
    answers.push_back(generator.generate(text_prompt(i), parameters)->ids);
  return answers;
}

// Text and pictures in one batch, with drafts, twice: the second round finds the first one's
// states.
TEST(NanoPictures, AreAnsweredInBatchesWithTextAsAlone) {
  constexpr int64_t kTextTokens = 12;
  const auto engine =
      open_engine(nano_path(), {.max_sequences = 4, .max_context = 512, .max_step_tokens = 24});
  Scheduler scheduler(*engine, {.drafts = {.mode = DraftMode::fixed, .depth = 3},
                                .cache = {.bytes = int64_t{64} << 20}});
  const std::vector<Question> all = questions();
  const auto alone = answers_alone(all.size() * 2, kTextTokens);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::promise<GenerationOutcome>> ends(all.size() * 2);
    std::vector<std::vector<int32_t>> answers(all.size() * 2);
    for (size_t i = 0; i < answers.size(); ++i) {
      const Question& question = all[i / 2];
      GenerationRequest request{.parameters = greedy(engine->config())};
      request.prompt = question.prompt.ids;
      if (i % 2 == 0) {
        request.images = question.prompt.images;
      } else {
        request.prompt = text_prompt(i);
        request.parameters.max_tokens = kTextTokens;
      }
      GenerationListener listener;
      listener.on_token = [&answers, i](const GeneratedToken& token) {
        answers[i].push_back(token.id);
        return true;
      };
      listener.on_finish = [&ends, i](const GenerationOutcome& outcome) {
        ends[i].set_value(outcome);
      };
      ASSERT_TRUE(scheduler.submit(std::move(request), std::move(listener)));
    }
    for (size_t i = 0; i < ends.size(); ++i) {
      const GenerationOutcome outcome = ends[i].get_future().get();
      EXPECT_EQ(outcome.error, "");
      if (round == 1) {
        EXPECT_EQ(outcome.cached_tokens, outcome.prompt_tokens - 1);
      }
      if (i % 2 == 0) {
        EXPECT_EQ(answers[i], all[i / 2].completion) << all[i / 2].id;
      } else {
        EXPECT_EQ(answers[i], alone[i]);
      }
    }
  }
  scheduler.drain();
}

TEST(PictureReader, CountsTokensWithoutEncoding) {
  PictureReader reader(open_checkpoint(nano_path()), {});
  const Tokenizer tokenizer = *Tokenizer::load(nano_path());
  for (const Json& json : image_examples()) {
    const Prompt prompt = *render(*parse_conversation(json));
    const auto count = reader.count(encode_prompt(prompt, tokenizer), prompt.images);
    ASSERT_TRUE(count.has_value()) << count.error().message;
    EXPECT_EQ(*count, std::ssize(*json.find("prompt_ids")->array()));
  }
}

TEST(PictureReader, NamesThePictureAtFault) {
  PictureReader reader(open_checkpoint(nano_path()), {});
  const std::vector<int32_t> ids = {1};
  const auto error = [&](PictureReader& of, const std::string& location) {
    const std::vector<ImageRecord> pictures = {{location, "messages[0].content[1]"}};
    return of.expand(ids, pictures).error().message;
  };
  EXPECT_EQ(error(reader, "/etc/passwd"),
            "messages[0].content[1]: expected a data: URL, found \"/etc/passwd\"");
  EXPECT_EQ(error(reader, "data:image/png;base64,SGVsbG8="),
            "messages[0].content[1]: expected JPEG, PNG, WebP or GIF, found none of them (the file "
            "begins with 48 65 6c 6c 6f)");
  PictureReader blind(open_checkpoint(data_path("tiny-b")), {});
  EXPECT_EQ(error(blind, "data:,"),
            "messages[0].content[1]: this model has no vision tower: it cannot see pictures");
}

}  // namespace
}  // namespace cachalot
