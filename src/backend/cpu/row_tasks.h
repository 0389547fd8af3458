// Cutting work into equal pieces.
#pragma once

#include <cstdint>

#include "base/thread_team.h"

namespace cachalot::cpu {

constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// A fixed share per member, for phases that repeat in one run: member i takes pieces i, i + count,
// ... (work_share.h hands pieces out by demand, once).
template <class F>
void share_pieces(const TeamMember& member, int64_t pieces, F&& body) {
  for (int64_t piece = member.index(); piece < pieces; piece += member.count()) body(piece);
}

}  // namespace cachalot::cpu
