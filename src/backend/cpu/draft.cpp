// markov_step, draft_confidence (contract: ops/draft.h).
#include <algorithm>

#include "backend/cpu/kernels/row_kernels.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/work_share.h"

namespace cachalot::cpu {
namespace {

// Vocabulary rows per piece of work.
constexpr int64_t kVocabularyBlock = 256;

struct Best {
  float logit;
  int32_t token;
};

}  // namespace

void markov_step(Queue& queue, const MarkovStepArgs& args) {
  check_shapes(args);
  const RowKernels& rows = queue.rows();
  const int64_t sequences = args.drafts.extent(0), block = args.drafts.extent(1);
  const int64_t vocab = args.embed.extent(0), rank = args.embed.extent(1);
  for (int64_t s = 0; s < sequences; ++s) {
    int32_t* chain = args.chain.row(s);
    if (args.step == 0) chain[0] = args.ids.data[s * block];
    std::copy_n(args.embed.row(chain[args.step]), rank, args.features.row(s * block + args.step));
  }
  const int64_t pieces = (vocab + kVocabularyBlock - 1) / kVocabularyBlock;
  ScratchLayout shared, own;
  const size_t best_at = shared.add(pieces * sequences, sizeof(Best));
  own.add(sequences * kVocabularyBlock, sizeof(float));
  Best* best = reinterpret_cast<Best*>(queue.scratch().reserve_shared(shared.bytes()) + best_at);
  queue.scratch().reserve_per_thread(own.bytes());
  WorkShare share(pieces, queue.team().size());

  queue.run(sequences * vocab * rank, [&](const TeamMember& member) {
    float* bias = reinterpret_cast<float*>(queue.scratch().of_thread(member.index()));
    share.each([&](int64_t piece) {
      const int64_t first = piece * kVocabularyBlock;
      const int64_t count = std::min(kVocabularyBlock, vocab - first);
      rows.dots(args.features.row(args.step), block * rank, sequences, args.head.row(first), rank,
                count, rank, bias, kVocabularyBlock);
      for (int64_t s = 0; s < sequences; ++s) {
        float* logits = args.logits.row(s * block + args.step) + first;
        for (int64_t v = 0; v < count; ++v) logits[v] += bias[s * kVocabularyBlock + v];
        const float* largest = std::max_element(logits, logits + count);
        best[s * pieces + piece] = {*largest, static_cast<int32_t>(first + (largest - logits))};
      }
    });
  });
  for (int64_t s = 0; s < sequences; ++s) {
    // The first of equal ones: pieces are in ascending order of the vocabulary.
    const Best* chosen = std::max_element(best + s * pieces, best + (s + 1) * pieces,
                                          [](Best a, Best b) { return a.logit < b.logit; });
    args.drafts.row(s)[args.step] = chosen->token;
    args.chain.row(s)[args.step + 1] = chosen->token;
  }
}

void draft_confidence(Queue& queue, const DraftConfidenceArgs& args) {
  check_shapes(args);
  const int64_t dim = args.x.extent(1), rank = args.features.extent(1);
  for (int64_t r = 0; r < args.x.extent(0); ++r) {
    float parts[2];
    queue.rows().dots(args.x.row(r), dim, 1, args.projection.data, dim, 1, dim, &parts[0], 1);
    queue.rows().dots(args.features.row(r), rank, 1, args.projection.data + dim, rank, 1, rank,
                      &parts[1], 1);
    args.confidence.data[r] = parts[0] + parts[1];
  }
}

}  // namespace cachalot::cpu
