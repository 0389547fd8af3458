#include "engine/engine.h"

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

}  // namespace cachalot
