// Picture files from anywhere: decoded, planned, resized and cut into patches.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "vision/preprocess.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cachalot;
  const ImageBudget budget{.min_pixels = 7056, .max_tokens = 16};
  const ImageDecodeOptions options{.max_pixels = 1 << 20, .honour_orientation = true};
  const auto prepared = prepare_image({data, size}, budget, options);
  if (!prepared) return 0;
  CACHALOT_CHECK(prepared->plan.tokens() <= budget.max_tokens);
  const ImagePatches patches = patches_of(prepared->padded);
  CACHALOT_CHECK(patches.rows * patches.columns * 588 ==
                 static_cast<int64_t>(patches.values.size()));
  return 0;
}
