// A step of a sequence that has started takes no memory from the system: what it needs is reserved.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/engine.h"
#include "test_engine.h"

namespace {
std::atomic<long> allocations{0};
}

// Counts; everything else as usual. Inlined, GCC would take malloc and delete for a pair.
__attribute__((noinline)) void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace cachalot {
namespace {

TEST(StepMemory, ADecodeStepAllocatesNothing) {
  const auto engine = test::open_engine(test::nano_path(), {.threads = 2, .max_sequences = 2});
  const int32_t sequence = *engine->open_sequence();
  const std::vector<int32_t> prompt(40, 65);
  const auto step = [&](std::span<const int32_t> tokens) {
    const SequenceStep one{.sequence = sequence, .tokens = tokens, .image_index = {}};
    ASSERT_TRUE(engine->step({.sequences = {&one, 1}, .image_rows = {}}));
  };
  step(prompt);
  const std::vector<int32_t> token = {66};
  for (int warm = 0; warm < 4; ++warm) step(token);
  const long before = allocations;
  ASSERT_GT(before, 0);  // it counts
  for (int i = 0; i < 8; ++i) step(token);
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace cachalot
