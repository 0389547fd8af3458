#include "chat/turns.h"

#include <algorithm>
#include <map>

namespace cachalot {
namespace {

// Ids of the calls of the nearest assistant turn with calls, and their places.
using CallOrder = std::map<std::string, size_t>;

CallOrder order_of(const std::vector<ToolCall>& calls) {
  CallOrder order;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i].id.empty()) order[calls[i].id] = i;
  }
  return order;
}

void sort_tool_results(std::vector<ContentBlock>& blocks, const CallOrder& order) {
  std::vector<size_t> places;
  std::vector<ToolResultBlock> results;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (auto* result = std::get_if<ToolResultBlock>(&blocks[i])) {
      places.push_back(i);
      results.push_back(std::move(*result));
    }
  }
  const auto rank = [&](const ToolResultBlock& result) {
    const auto at = order.find(result.tool_call_id);
    return at == order.end() ? 0 : at->second;
  };
  std::stable_sort(
      results.begin(), results.end(),
      [&](const ToolResultBlock& a, const ToolResultBlock& b) { return rank(a) < rank(b); });
  for (size_t i = 0; i < places.size(); ++i) blocks[places[i]] = std::move(results[i]);
}

}  // namespace

std::vector<Message> merge_turns(const std::vector<Message>& messages) {
  std::vector<Message> turns;
  for (const Message& message : messages) {
    const bool is_tool = message.role == Role::kTool;
    const bool after_user = !turns.empty() && turns.back().role == Role::kUser;
    if ((is_tool && after_user) ||
        (message.role == Role::kUser && after_user && turns.back().task.empty())) {
      Message& turn = turns.back();
      turn.blocks.insert(turn.blocks.end(), message.blocks.begin(), message.blocks.end());
      if (!message.task.empty()) turn.task = message.task;
      continue;
    }
    turns.push_back(message);
    if (is_tool) turns.back().role = Role::kUser;
  }
  CallOrder order;
  for (Message& turn : turns) {
    if (turn.role == Role::kAssistant && !turn.tool_calls.empty())
      order = order_of(turn.tool_calls);
    if (turn.role == Role::kUser && !order.empty()) sort_tool_results(turn.blocks, order);
  }
  return turns;
}

ptrdiff_t last_user_index(const std::vector<Message>& turns) {
  for (size_t i = turns.size(); i-- > 0;) {
    if (turns[i].role == Role::kUser || (turns[i].role == Role::kSystem && i > 0)) {
      return static_cast<ptrdiff_t>(i);
    }
  }
  return -1;
}

}  // namespace cachalot
