// Messages -> turns: what happens to a conversation before it becomes text.
//
// The prompt knows no tool role. A tool message becomes a block of the user turn before it (or
// opens one); neighbouring user messages share a turn unless the first has a task; two or more tool
// results of a turn take the order of the calls they answer, text keeping its places.
#pragma once

#include <vector>

#include "chat/messages.h"

namespace cachalot {

// `message` of each turn keeps its role, texts and calls; `blocks` of user turns are merged. A user
// turn has the task of its last message that has one.
std::vector<Message> merge_turns(const std::vector<Message>& messages);

// The last turn that is a user's, or a system's other than at the very start; -1 if there is none.
// Reasoning of the turns before it may be dropped.
ptrdiff_t last_user_index(const std::vector<Message>& turns);

}  // namespace cachalot
