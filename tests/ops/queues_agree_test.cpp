// Every operation on the CPU queue, under each instruction set this machine has, against the
// reference on random arguments; results must not depend on the number of threads at all.
#include <cstring>

#include "ops/checked.h"
#include "random_arguments.h"
#include "test_queues.h"

namespace cachalot {
namespace {

std::string text(const checked::Departure& departure) {
  return fmt::format("{} departs in {}: {} exceeds {}", departure.operation, departure.field,
                     departure.error.error, departure.error.limit);
}

// run(auto& queue, const Args&)
template <class Args, class Run>
void expect_agreement(Run run) {
  uint32_t seed = 0;
  for (const RandomCase& of : random_cases()) {
    SCOPED_TRACE(fmt::format("variant {}, {} tokens", of.variant, of.tokens()));
    ++seed;
    on_cpu_queues([&](cpu::Queue& inner) {
      RandomTensors random(seed);
      checked::Queue<cpu::Queue> queue(inner);
      run(queue, random_arguments<Args>(random, of));
      EXPECT_FALSE(queue.first_departure()) << text(*queue.first_departure());
    });
  }
}

// The bytes of all fields the operation may write.
template <class Args>
std::vector<std::byte> written_bytes(const Args& args) {
  std::vector<std::byte> out;
  args.fields([&](const char*, const auto& view, Access role) {
    if (role == Access::in || view.absent()) return;
    const auto* bytes = reinterpret_cast<const std::byte*>(view.data);
    out.insert(out.end(), bytes, bytes + view.bytes());
  });
  return out;
}

template <class Args, class Run>
void expect_equal_on_any_number_of_threads(Run run) {
  for (const Isa isa : kAllIsas) {
    if (!supports(isa)) continue;
    uint32_t seed = 100;
    for (const RandomCase& of : random_cases()) {
      ++seed;
      std::vector<std::byte> alone;
      for (const int threads : {1, 2, 3}) {
        ThreadTeam team(threads);
        cpu::Queue queue(team, isa, Arena(kTestArenaBytes));
        RandomTensors random(seed);
        const Args args = random_arguments<Args>(random, of);
        run(queue, args);
        if (threads == 1) alone = written_bytes(args);
        EXPECT_EQ(written_bytes(args), alone)
            << name_of(isa) << ", " << threads << " threads, variant " << of.variant << ", "
            << of.tokens() << " tokens";
      }
    }
  }
}

#define CACHALOT_TEST_AGREEMENT(function, Args)                                           \
  TEST(QueuesAgree, On_##function) {                                                      \
    expect_agreement<Args>([](auto& queue, const Args& args) { function(queue, args); }); \
  }                                                                                       \
  TEST(ThreadsAgree, On_##function) {                                                     \
    expect_equal_on_any_number_of_threads<Args>(                                          \
        [](auto& queue, const Args& args) { function(queue, args); });                    \
  }
CACHALOT_FOR_EACH_OPERATION(CACHALOT_TEST_AGREEMENT)
#undef CACHALOT_TEST_AGREEMENT

}  // namespace
}  // namespace cachalot
