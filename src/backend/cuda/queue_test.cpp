// Every operation on the GPU against the reference, on random arguments of small and odd shapes.
#include "on_gpu.h"

namespace cachalot {
namespace {

#define CACHALOT_TEST_AGREEMENT(function, Args)                                    \
  TEST(GpuAgrees, On_##function) {                                                 \
    uint32_t seed = 0;                                                             \
    for (const RandomCase& of : random_cases()) {                                  \
      SCOPED_TRACE(fmt::format("variant {}, {} tokens", of.variant, of.tokens())); \
      RandomTensors random(++seed);                                                \
      const Args args = random_arguments<Args>(random, of);                        \
      CACHALOT_EXPECT_GPU_AGREES(function, args);                                  \
    }                                                                              \
  }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_TEST_AGREEMENT)
#undef CACHALOT_TEST_AGREEMENT

}  // namespace
}  // namespace cachalot
