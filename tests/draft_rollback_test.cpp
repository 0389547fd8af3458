// Rejected drafts leave nothing behind: not in windows, rings, open groups, pages or draft windows.
#include <gtest/gtest.h>

#include <algorithm>

#include "draft_examples.h"

namespace cachalot {
namespace {

// Prompts, one behind the other.
std::vector<int32_t> running_text(size_t count) {
  std::vector<int32_t> text;
  for (const test::FamilyPrompt& prompt : test::family_prompts(60)) {
    text.insert(text.end(), prompt.ids.begin(), prompt.ids.end());
  }
  text.resize(count);
  return text;
}

// What a step left to be seen: the last row of logits, and what the draft head makes of the caches.
struct Outcome {
  std::vector<float> logits, draft_logits, confidence;
  std::vector<int32_t> drafts;

  bool operator==(const Outcome&) const = default;
};

class RollbackWalk {
 public:
  RollbackWalk(Engine& engine, std::vector<int32_t> text)
      : engine_(engine), text_(std::move(text)), sequence_(*engine.open_sequence()) {}
  ~RollbackWalk() { engine_.close_sequence(sequence_); }

  int64_t length() const { return engine_.length(sequence_); }

  void advance(int64_t to) {
    const auto first = static_cast<size_t>(length()), count = static_cast<size_t>(to) - first;
    run(std::span(text_).subspan(first, count));
  }

  // The next token of the text and `wrong` others behind it, which are taken back.
  Outcome draft_in_vain(int64_t wrong) {
    const int64_t before = length();
    std::vector<int32_t> block = {text_[static_cast<size_t>(before)]};
    for (int64_t i = 0; i < wrong; ++i) {
      block.push_back((text_[static_cast<size_t>(before + 1 + i)] * 7 + 11) % 2000);
    }
    Outcome outcome{.logits = run(block), .draft_logits = {}, .confidence = {}, .drafts = {}};
    EXPECT_TRUE(engine_.truncate(sequence_, before + 1));
    return with_drafts(std::move(outcome));
  }

  Outcome next() {
    const auto at = static_cast<size_t>(length());
    return with_drafts({.logits = run(std::span(text_).subspan(at, 1)),
                        .draft_logits = {},
                        .confidence = {},
                        .drafts = {}});
  }

 private:
  // The logits of the first row.
  std::vector<float> run(std::span<const int32_t> tokens) {
    const SequenceStep part{.sequence = sequence_, .tokens = tokens, .logits = LogitsOf::all};
    const auto result = engine_.step({.sequences = {&part, 1}, .draft_taps = true});
    if (!result) throw std::runtime_error(result.error().message);
    return {result->logits.data, result->logits.data + engine_.config().vocab_size};
  }

  Outcome with_drafts(Outcome outcome) {
    const DraftRequest request{
        .sequence = sequence_, .anchor = text_[static_cast<size_t>(length())], .show_logits = true};
    const auto drafts = engine_.draft({&request, 1});
    if (!drafts) throw std::runtime_error(drafts.error().message);
    const auto copy = [](const auto& view, auto& to) {
      to.assign(view.data, view.data + view.elements());
    };
    copy(drafts->tokens, outcome.drafts);
    copy(drafts->logits, outcome.draft_logits);
    copy(drafts->confidence, outcome.confidence);
    return outcome;
  }

  Engine& engine_;
  std::vector<int32_t> text_;
  int32_t sequence_;
};

// Around the window's size, the ring's (window + rollback, and twice that), a page's border and
// two; every offset in a group of the compressor, and every number of rejected drafts.
TEST(DraftRollback, LeavesNothingBehindAtBordersOfWindowRingAndPage) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2, .max_sequences = 2});
  const int64_t window = engine->config().window_size, ring = window + engine->options().rollback;
  RollbackWalk plain(*engine, running_text(600)), rejecting(*engine, running_text(600));
  for (const int64_t border : {window, ring, 2 * window, 2 * ring, int64_t{256}, int64_t{512}}) {
    plain.advance(border - 4);
    rejecting.advance(border - 4);
    for (int64_t at = border - 4; at < border + 3; ++at) {
      const Outcome expected = plain.next(), found = rejecting.draft_in_vain((at + 4) % 6);
      ASSERT_TRUE(found.logits == expected.logits) << "logits of token " << at;
      ASSERT_TRUE(found == expected) << "drafts behind token " << at;
    }
  }
}

// As far back as the caches allow, and on with another text.
TEST(DraftRollback, MayReachBackAcrossABorderAndGoOnDifferently) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2, .max_sequences = 2});
  for (const int64_t border : {int64_t{64}, int64_t{72}, int64_t{128}, int64_t{256}}) {
    for (const int64_t past : {1, 3, 6}) {
      const std::vector<int32_t> first = running_text(600);
      std::vector<int32_t> second = first;
      const auto cut = static_cast<size_t>(border - 2);
      std::rotate(second.begin() + static_cast<ptrdiff_t>(cut),
                  second.begin() + static_cast<ptrdiff_t>(cut) + 1, second.end());
      const int32_t sequence = *engine->open_sequence();
      const auto feed = [&](const std::vector<int32_t>& text, int64_t from, int64_t to) {
        const SequenceStep part{.sequence = sequence,
                                .tokens = std::span(text).subspan(static_cast<size_t>(from),
                                                                  static_cast<size_t>(to - from))};
        ASSERT_TRUE(engine->step({.sequences = {&part, 1}, .draft_taps = true}));
      };
      const auto drafts = [&] {
        const DraftRequest request{.sequence = sequence, .anchor = 16, .show_logits = true};
        const auto result = engine->draft({&request, 1});
        return std::vector<float>(result->logits.data,
                                  result->logits.data + result->logits.elements());
      };
      feed(first, 0, border + past);
      ASSERT_TRUE(engine->truncate(sequence, border - 2));
      feed(second, border - 2, border + 4);
      const std::vector<float> found = drafts();
      ASSERT_TRUE(engine->truncate(sequence, 0));
      feed(second, 0, border + 4);
      EXPECT_TRUE(found == drafts()) << "border " << border << ", " << past << " past it";
      engine->close_sequence(sequence);
    }
  }
}

}  // namespace
}  // namespace cachalot
