// The same of two products of the same rows with a norm, also of many.
#include <utility>

#include "held_operations.h"

namespace cachalot {
namespace {

class HeldProducts : public HeldOperation {};

TEST_P(HeldProducts, OfTheSameRows) {
  const View<bf16> x = on_device(random_.bf16s({tokens(), kDim}));
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  operations_.add(cuda::linear, linear_of(x, 512, true));
  // Of another kind, and with no norm.
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  operations_.add(cuda::linear, linear_of(x, 128, true));
  operations_.add(cuda::linear, linear_of(x, 1280, true));
  operations_.add(cuda::linear, linear_of(x, 512, false));
  operations_.expect_same_bytes_together();
}

// Whose rows are left quantized for what follows, unless that is of something else.
TEST_P(HeldProducts, AndAProductOfTheirRows) {
  const View<bf16> x = on_device(random_.bf16s({tokens(), kDim}));
  const auto add_two = [&] {
    const LinearArgs first = linear_of(x, 1280, true);
    operations_.add(cuda::linear, first);
    const LinearArgs second = linear_of(x, 512, true);
    operations_.add(cuda::linear, second);
    return std::pair(first.y, second.y);
  };
  View<bf16> latent = add_two().first;
  operations_.add(cuda::linear, linear_of(latent, 1024, false));
  operations_.add(cuda::linear, linear_of(latent, 256, false));
  operations_.add(cuda::linear, linear_of(add_two().second, 1024, false));
  // Another product has overwritten them.
  latent = add_two().first;
  LinearArgs between = plain_of(on_device(random_.bf16s({tokens(), kDim})), 128, false);
  between.y.data = latent.data;
  operations_.add(cuda::linear, between);
  operations_.add(cuda::linear, linear_of(latent, 1024, false));
  operations_.expect_same_bytes_together();
}

// As in a layer, of released sizes.
TEST_P(HeldProducts, InAGraphBeforeTheyWereTogether) {
  const HyperExpandArgs expand = expand_args();
  operations_.add(cuda::hyper_expand, expand);
  const HyperCollapseArgs collapse = collapse_of(expand.stream);
  operations_.add(cuda::hyper_collapse, collapse);
  const LinearArgs latent = linear_of(collapse.x, 1280, true);
  operations_.add(cuda::linear, latent);
  operations_.add(cuda::linear, linear_of(collapse.x, 512, true));
  operations_.add(cuda::linear, linear_of(latent.y, 4096, false));
  operations_.expect_same_bytes_in_a_first_graph();
}

INSTANTIATE_TEST_SUITE_P(OfTokens, HeldProducts,
                         testing::Values(1, 2, 5, 8, 9, 17, 30, 64, 65, 129, 200));

}  // namespace
}  // namespace cachalot
