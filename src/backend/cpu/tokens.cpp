// best_tokens, take_drafts (contract: ops/tokens.h).
#include <algorithm>
#include <limits>

#include "backend/cpu/queue.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Tokens of a row per piece of work.
constexpr int64_t kPiece = 8192;

// The largest logit of a piece; +inf where a row means nothing. Without a branch, so that it is
// vectorised.
float largest_of(const float* logits, int64_t count) {
  float best = -kInfinity;
  uint32_t unusable = 0;
  for (int64_t i = 0; i < count; ++i) {
    unusable |= static_cast<uint32_t>(!(logits[i] < kInfinity));
    best = logits[i] > best ? logits[i] : best;
  }
  return unusable ? kInfinity : best;
}

}  // namespace

void best_tokens(Queue& queue, const BestTokensArgs& args) {
  check_shapes(args);
  const int64_t rows = args.logits.extent(0), vocab = args.logits.extent(1);
  const int64_t pieces = (vocab + kPiece - 1) / kPiece;
  ScratchLayout shared;
  const size_t at = shared.add(rows * pieces, sizeof(float));
  float* largest = reinterpret_cast<float*>(queue.scratch().reserve_shared(shared.bytes()) + at);
  WorkShare share(rows * pieces, queue.team().size());
  queue.run(rows * vocab, [&](const TeamMember&) {
    share.each([&](int64_t task) {
      const int64_t first = task % pieces * kPiece;
      largest[task] =
          largest_of(args.logits.row(task / pieces) + first, std::min(kPiece, vocab - first));
    });
  });
  for (int64_t row = 0; row < rows; ++row) {
    // The first of equal ones: pieces are in ascending order of the vocabulary.
    const float* of_row = largest + row * pieces;
    const int64_t piece = std::max_element(of_row, of_row + pieces) - of_row;
    const float best = of_row[piece];
    const float* logits = args.logits.row(row);
    const bool usable = best < kInfinity && best > -kInfinity;
    args.best.data[row] =
        usable ? static_cast<int32_t>(std::find(logits + piece * kPiece, logits + vocab, best) -
                                      logits)
               : -1;
  }
}

void take_drafts(Queue&, const TakeDraftsArgs& args) {
  check_shapes(args);
  for (int64_t t = 0; t < args.ids.extent(0); ++t) {
    const int32_t place = args.places.data[t];
    args.ids.data[t] = place < 0 ? args.given.data[t] : args.drafts.data[place];
  }
}

}  // namespace cachalot::cpu
