// The checked queue finds what it is for: one wrong value in one operation.
#include <gtest/gtest.h>

#include "ops/checked.h"
#include "random_arguments.h"
#include "tensor/buffer.h"

namespace cachalot {

// The reference, but one operation's first written value is wrong.
namespace faulty {

class Queue {
 public:
  explicit Queue(std::string_view wrong) : reference_(Arena(0)), wrong_(wrong) {}

  Arena& arena() { return reference_.arena(); }
  void label(std::string_view) {}

  template <class Args, class Run>
  void run(std::string_view operation, const Args& args, Run run_reference) {
    run_reference(reference_, args);
    if (operation != wrong_) return;
    bool done = false;
    args.fields([&](const char*, const auto& view, Access role) {
      if (done || role == Access::in || view.absent()) return;
      if constexpr (!std::is_const_v<std::remove_reference_t<decltype(*view.data)>>) {
        spoil(*view.data);
        done = true;
      }
    });
  }

 private:
  static void spoil(bf16& value) { value.bits = 0x7F00; }  // 1.7e38: wrong in any row
  static void spoil(float& value) { value = 2 * value + 1; }
  template <class Integer>
  static void spoil(Integer& value) {
    value = static_cast<Integer>(value + 1);
  }

  reference::Queue reference_;
  std::string wrong_;
};

#define CACHALOT_FAULTY(function, Args)                                                       \
  void function(Queue& queue, const Args& args) {                                             \
    queue.run(#function, args,                                                                \
              [](reference::Queue& on, const Args& with) { reference::function(on, with); }); \
  }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_FAULTY)
#undef CACHALOT_FAULTY

}  // namespace faulty

namespace {

// Every operation once, each labelled with its own name; one sequence that ends a group.
template <class Q>
void run_every_operation(Q& queue) {
  RandomTensors random(7);
  const RandomCase of{.parts = {{.slot = 1, .first = 63, .count = 1}}, .variant = 0};
#define CACHALOT_RUN(function, Args)  \
  queue.label("label of " #function); \
  function(queue, random_arguments<Args>(random, of));
  CACHALOT_FOR_EACH_OPERATION(CACHALOT_RUN)
#undef CACHALOT_RUN
}

TEST(CheckedQueue, FindsNoDepartureInTheReferenceItself) {
  reference::Queue inner{Arena(0)};
  checked::Queue<reference::Queue> queue(inner);
  run_every_operation(queue);
  EXPECT_FALSE(queue.first_departure());
}

TEST(CheckedQueue, NamesTheOperationThatWritesOneWrongValue){
#define CACHALOT_EXPECT(function, Args)                               \
  {                                                                   \
    faulty::Queue inner(#function);                                   \
    checked::Queue<faulty::Queue> queue(inner);                       \
    run_every_operation(queue);                                       \
    ASSERT_TRUE(queue.first_departure()) << #function;                \
    EXPECT_EQ(queue.first_departure()->operation, #function);         \
    EXPECT_EQ(queue.first_departure()->label, "label of " #function); \
  }
    CACHALOT_FOR_EACH_OPERATION(CACHALOT_EXPECT)
#undef CACHALOT_EXPECT
}

TEST(CheckedQueue, NamesTheFieldAndItsError) {
  faulty::Queue inner("hyper_expand");
  checked::Queue<faulty::Queue> queue(inner);
  run_every_operation(queue);
  ASSERT_TRUE(queue.first_departure());
  EXPECT_EQ(queue.first_departure()->field, "stream");
  EXPECT_GT(queue.first_departure()->error.error, queue.first_departure()->error.limit);
}

// One unit in the last place of a BF16 result is what two correct queues may differ by.
TEST(CheckedQueue, AllowsRoundingAndNothingMore) {
  Buffer<bf16> found({2, 64}), expected({2, 64});
  for (size_t i = 0; i < 128; ++i)
    expected.values()[i] = to_bf16(1.0f + static_cast<float>(i) / 64);
  found.values() = expected.values();
  for (bf16& value : found.values()) ++value.bits;
  const auto error = [&](std::string_view operation) {
    return FieldComparison(operation).compare(View<const bf16>(found.view()),
                                              expected.values().data(), nullptr);
  };
  EXPECT_FALSE(error("linear").departs());
  EXPECT_TRUE(error("embed").departs());
  for (bf16& value : found.values()) ++value.bits;
  EXPECT_TRUE(error("linear").departs());
}

TEST(CheckedQueue, TreatsNaNOnOneSideAsADeparture) {
  const std::vector<float> expected(8, 1.0f);
  std::vector<float> found = expected;
  found[3] = std::nanf("");
  const View<const float> view(found.data(), {1, 8});
  EXPECT_TRUE(FieldComparison("route").compare(view, expected.data(), nullptr).departs());
}

}  // namespace
}  // namespace cachalot
