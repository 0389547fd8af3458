// How the kernel of a single token divides its experts among blocks that run at once.
//
// Each block has as much as the others as far as whole parts allow. Gate and up come in units of 32
// hidden values: 32 rows of w1 and of w3, whose values are one group of the quantizer. Of w2 a
// block has some octets of rows, of all experts: then it adds up the experts' outputs by itself.
#pragma once

#include <algorithm>

namespace cachalot::cuda {

inline constexpr int kUnitValues = 32;
inline constexpr int kOctetRows = 8;

// Parts of a block, each a run of consecutive ones.
struct TokenShare {
  int shared_unit, shared_units;  // of the shared expert
  int routed_unit, routed_units;  // of all chosen experts, one after the other
  int octet, octets;
};

// Blocks are sorted: first those with one more unit of the shared expert, and among equals first
// those with one more routed unit. Octets are fewer in front, where there is most of the rest.
class TokenExpertsPlan {
 public:
  // shared_first: the shared expert begins before the others are known.
  constexpr TokenExpertsPlan(int blocks, int choices, int dim, int width, bool shared_first)
      : blocks_(blocks),
        shared_(width / kUnitValues / blocks),
        more_shared_(width / kUnitValues % blocks),
        octets_(dim / kOctetRows / blocks),
        fewer_octets_(blocks - dim / kOctetRows % blocks) {
    // A unit of FP8 has 128 bytes for 68 of FP4; begun earlier it counts as one of the others.
    constexpr int kRouted = 68;
    const int one_shared = shared_first ? kRouted : 128;
    const int sizes[2] = {more_shared_, blocks - more_shared_};
    const int before[2] = {(shared_ + 1) * one_shared, shared_ * one_shared};
    // One more to each block of whichever class has less, until there are none.
    int left = choices * (width / kUnitValues);
    while (left > 0) {
      const int loads[2] = {before[0] + routed_[0] * kRouted, before[1] + routed_[1] * kRouted};
      const int to = sizes[0] > 0 && (sizes[1] == 0 || loads[0] <= loads[1]) ? 0 : 1;
      if (left < sizes[to]) {
        more_routed_[to] = left;
        break;
      }
      ++routed_[to];
      left -= sizes[to];
    }
  }

  constexpr TokenShare of(int block) const {
    const int in_class = block < more_shared_ ? 0 : 1;
    const int place = in_class == 0 ? block : block - more_shared_;
    TokenShare share{};
    share.shared_unit = block * shared_ + std::min(block, more_shared_);
    share.shared_units = shared_ + (in_class == 0 ? 1 : 0);
    share.routed_unit = (in_class == 0 ? 0 : more_shared_ * routed_[0] + more_routed_[0]) +
                        place * routed_[in_class] + std::min(place, more_routed_[in_class]);
    share.routed_units = routed_[in_class] + (place < more_routed_[in_class] ? 1 : 0);
    share.octet = block * octets_ + std::max(block - fewer_octets_, 0);
    share.octets = octets_ + (block < fewer_octets_ ? 0 : 1);
    return share;
  }

 private:
  int blocks_;
  int shared_, more_shared_;
  int routed_[2] = {}, more_routed_[2] = {};  // of blocks with more shared units, and of the others
  int octets_, fewer_octets_;
};

}  // namespace cachalot::cuda
