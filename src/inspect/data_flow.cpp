#include "inspect/data_flow.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tensor/planned_memory.h"

namespace cachalot {
namespace {

constexpr size_t kNobody = static_cast<size_t>(-1);

bool holds(const std::vector<size_t>& ascending, size_t value) {
  return std::ranges::binary_search(ascending, value);
}

bool is_written(const meta::Operand& operand) { return operand.role != Access::in; }

// What operations of one step hand to one another.
bool flows(const meta::Operand& operand) {
  return is_in(PlannedMemory::arena, operand.data) || is_in(PlannedMemory::caches, operand.data);
}

}  // namespace

NodeOperand::Kind kind_of(const meta::Operand& operand) {
  using Kind = NodeOperand::Kind;
  if (is_in(PlannedMemory::caches, operand.data)) return Kind::cache;
  if (is_in(PlannedMemory::arena, operand.data)) return Kind::activation;
  if (operand.data != nullptr) return Kind::constant;
  return operand.dtype == DType::bf16 ? Kind::activation : Kind::step;
}

// Of latents a step writes the rows that end a group and leaves the others as they are: in and out,
// but nobody reads what was there.
bool is_read(const meta::Operand& operand) {
  return operand.role != Access::out &&
         (operand.role != Access::inout || operand.field != "latent");
}

bool is_weight(const meta::Operand& operand) { return is_in(PlannedMemory::weights, operand.data); }

// An address is used again by other temporaries: what is read must be as large as what was written.
bool DataFlow::same_memory(OperandPlace written, OperandPlace read) const {
  const auto bytes = [&](OperandPlace place) {
    const meta::Operand& operand = records_[place.record].operands[place.operand];
    return operand.shape.elements() * size_of(operand.dtype);
  };
  return bytes(written) == bytes(read);
}

DataFlow::DataFlow(const std::vector<meta::Record>& records) : records_(records) {
  std::unordered_map<const void*, OperandPlace> last;
  writers_.resize(records.size());
  readers_.resize(records.size());
  for (size_t r = 0; r < records.size(); ++r) {
    const auto& operands = records[r].operands;
    writers_[r].assign(operands.size(), kNobody);
    readers_[r].resize(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!flows(operands[i]) || !is_read(operands[i])) continue;
      const auto found = last.find(operands[i].data);
      if (found == last.end() || !same_memory(found->second, {r, i})) continue;
      writers_[r][i] = found->second.record;
      readers_[found->second.record][found->second.operand].push_back(r);
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      if (flows(operands[i]) && is_written(operands[i])) {
        last[operands[i].data] = {r, i};
      }
    }
  }
}

std::vector<OperandPlace> DataFlow::inputs_of(const std::vector<size_t>& records) const {
  std::vector<OperandPlace> inputs;
  std::unordered_set<const void*> seen;
  std::unordered_set<std::string> named;  // what a step brings has no address
  for (const size_t r : records) {
    for (size_t i = 0; i < records_[r].operands.size(); ++i) {
      const meta::Operand& operand = records_[r].operands[i];
      if (is_weight(operand) || !is_read(operand)) continue;
      const auto kind = kind_of(operand);
      const bool ids = kind == NodeOperand::Kind::step && operand.field == "ids";
      if (kind != NodeOperand::Kind::activation && !ids) continue;
      const size_t writer = writers_[r][i];
      if (writer != kNobody && holds(records, writer)) continue;
      // Filled piece by piece: nobody has written it before.
      if (writer == kNobody && operand.role == Access::inout) continue;
      if (operand.data != nullptr ? !seen.insert(operand.data).second
                                  : !named.insert(operand.field).second)
        continue;
      inputs.push_back({r, i});
    }
  }
  return inputs;
}

std::vector<OperandPlace> DataFlow::outputs_of(const std::vector<size_t>& records) const {
  std::vector<OperandPlace> outputs;
  for (const size_t r : records) {
    for (size_t i = 0; i < records_[r].operands.size(); ++i) {
      const meta::Operand& operand = records_[r].operands[i];
      if (!flows(operand) || !is_written(operand)) continue;
      const auto& readers = readers_[r][i];
      // What a cache keeps for later steps alone is nothing that this one hands on.
      const bool unread = readers.empty() && kind_of(operand) != NodeOperand::Kind::cache;
      // Beside whoever looks for the best among them the caller reads logits.
      const bool leaves =
          unread || std::ranges::any_of(readers, [&](size_t reader) {
            return !holds(records, reader) || records_[reader].name == "best_tokens";
          });
      if (!leaves) continue;
      // Written again further down: the later place stands.
      std::erase_if(outputs, [&](const OperandPlace& place) {
        return records_[place.record].operands[place.operand].data == operand.data;
      });
      outputs.push_back({r, i});
    }
  }
  return outputs;
}

}  // namespace cachalot
