#include "engine/engine.h"

#include "base/clock.h"
#include "engine/drafted_parts.h"

namespace cachalot {

Result<std::shared_ptr<const SavedSequence>> Engine::save(int32_t) {
  return fail("this engine saves no sequences");
}

Status Engine::restore(int32_t, const SavedSequence&) {
  return fail("this engine saves no sequences");
}

void Engine::read_page(const SavedSequence&, int64_t, std::span<std::byte>) const {
  CACHALOT_CHECK(false, "this engine saves no sequences");
}

Result<std::shared_ptr<const SavedSequence>> Engine::load(const SequenceProgress&,
                                                          std::vector<std::byte>,
                                                          const SavedSequence*, int64_t,
                                                          const FillPage&) {
  return fail("this engine saves no sequences");
}

Result<DraftedStep> Engine::draft_and_step(const StepRequest& request,
                                           std::span<const int64_t> drafts) {
  DraftedParts parts(request.sequences, drafts, config());
  DraftedStep result;
  const double start = wall_seconds();
  CACHALOT_TRY(const DraftResult proposed, draft(parts.asked()));
  result.draft_seconds = wall_seconds() - start;
  result.tokens.assign(proposed.tokens.data, proposed.tokens.data + proposed.tokens.elements());
  result.confidence.assign(proposed.confidence.data,
                           proposed.confidence.data + proposed.confidence.elements());
  parts.take(proposed.tokens);
  StepRequest whole = request;
  whole.sequences = parts.sequences();
  CACHALOT_TRY(result.step, step(whole));
  return result;
}

}  // namespace cachalot
