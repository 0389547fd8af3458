// How many drafts to verify: a trade between tokens gained and rows paid for, decided per sequence
// and cycle. With greedy drafts the depth never changes a token, so it may follow measured times.
// With probabilistic ones it does: there it follows from the answer and the confidence alone, which
// are the same in every run, and whether a draft is checked does not depend on the draft itself,
// which would favour some tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace cachalot {

enum class DraftMode {
  off,
  automatic,  // as many as pay on this machine for this text, none if they do not
  fixed,      // always `depth`
};

// How drafts are chosen and checked.
enum class DraftMethod {
  // The best tokens; the answer is drawn from the target and accepts the drafts that equal it. The
  // text is the plain text token for token.
  greedy,
  // Drawn from the draft head's own distribution, accepted by the ratio of probabilities. The text
  // is distributed as plain text is, but another one for the same seed.
  probabilistic,
};

struct DraftParameters {
  DraftMode mode = DraftMode::off;
  int64_t depth = 0;  // fixed: 1 .. the model's block
  DraftMethod method = DraftMethod::greedy;
};

// What steps and drafts cost here, from the runs so far. Shared by the sequences of an engine.
class StepCosts {
 public:
  void record_step(int64_t rows, double seconds) { update(steps_, rows, seconds); }
  void record_draft(int64_t sequences, double seconds) { update(drafts_, sequences, seconds); }

  // Expected seconds; between measured sizes on a straight line, beyond them as the line's end goes
  // on. 0: nothing is known yet.
  double step(int64_t rows) const { return estimate(steps_, rows); }
  double draft(int64_t sequences) const { return estimate(drafts_, sequences); }
  bool has_measured_step(int64_t rows) const { return steps_.contains(rows); }

 private:
  using Seconds = std::map<int64_t, double>;  // size -> moving average

  static void update(Seconds& known, int64_t size, double seconds);
  static double estimate(const Seconds& known, int64_t size);

  Seconds steps_, drafts_;
};

// One sequence's view of its own drafts.
class DraftDepth {
 public:
  DraftDepth(const DraftParameters& parameters, int64_t block);

  // Whether to run the draft head in this cycle. `other_rows`: rows of the step's other sequences.
  bool wants_draft(const StepCosts& costs, int64_t other_rows) const;

  // Drafts to verify, given the draft head's log-odds per position.
  int64_t choose(std::span<const float> confidence, const StepCosts& costs,
                 int64_t other_rows) const;

  // What came of a cycle: `accepted` of `drafted` were the target's own choice. `seconds` is what
  // it took, `plain_seconds` what one plain step would have.
  void record(std::span<const float> confidence, int64_t drafted, int64_t accepted, double seconds,
              double plain_seconds);

  DraftMethod method() const { return parameters_.method; }
  // Whether choose() says the same whatever the draft head thinks of its drafts.
  bool is_fixed() const { return parameters_.mode == DraftMode::fixed; }
  // Drafts that choose() may ask for.
  int64_t most() const {
    return parameters_.mode == DraftMode::fixed ? std::min(parameters_.depth, block_) : block_;
  }

  // Time saved against plain decoding so far; negative: lost.
  double saved_seconds() const { return saved_; }

 private:
  double survival(std::span<const float> confidence, int64_t position) const;
  int64_t confident_places(std::span<const float> confidence) const;

  DraftParameters parameters_;
  int64_t block_;
  // Per position of the block: hits over what the confidence promised, of late, and plain hit
  // rates.
  std::vector<double> calibration_, hit_rate_;
  std::vector<int64_t> observations_;
  int64_t cycles_ = 0;
  double saved_ = 0;
  // What tries have lost since drafts last paid, at most 0, and the time of all cycles.
  double balance_ = 0, total_ = 0;
};

}  // namespace cachalot
