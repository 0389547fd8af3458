// Which operation of a survey reads what another one wrote, by the addresses of their operands.
#pragma once

#include <vector>

#include "inspect/explorer.h"
#include "inspect/survey.h"

namespace cachalot {

// An operand of a record.
struct OperandPlace {
  size_t record = 0, operand = 0;
  bool operator==(const OperandPlace&) const = default;
};

NodeOperand::Kind kind_of(const meta::Operand& operand);
bool is_weight(const meta::Operand& operand);
bool is_read(const meta::Operand& operand);

class DataFlow {
 public:
  explicit DataFlow(const std::vector<meta::Record>& records);

  // What the records read that none of them wrote before, and what they wrote that others read, or
  // nobody. `records` ascending; of inputs temporaries and token ids only, of outputs temporaries
  // and caches that others read in the same step.
  std::vector<OperandPlace> inputs_of(const std::vector<size_t>& records) const;
  std::vector<OperandPlace> outputs_of(const std::vector<size_t>& records) const;

 private:
  bool same_memory(OperandPlace written, OperandPlace read) const;

  const std::vector<meta::Record>& records_;
  std::vector<std::vector<size_t>> writers_;               // [record][operand]: kNobody or a record
  std::vector<std::vector<std::vector<size_t>>> readers_;  // [record][operand]
};

}  // namespace cachalot
