#include "engine/engine.h"

namespace cachalot {

Result<std::shared_ptr<const SavedSequence>> Engine::save(int32_t) {
  return fail("this engine saves no sequences");
}

Status Engine::restore(int32_t, const SavedSequence&) {
  return fail("this engine saves no sequences");
}

}  // namespace cachalot
