// A survey's records as the tree of scopes the model's code opened, and which of those did the
// same.
#pragma once

#include <string>
#include <vector>

#include "inspect/survey.h"

namespace cachalot {

// One time a scope was open; or one of the groups of weights inside an operation.
struct Occurrence {
  const Part* part = nullptr;
  int64_t number = -1;
  CodePlace where;
  size_t entry = 0;
  size_t first_record = 0, end_record = 0;
  std::vector<size_t> records;       // directly in it
  std::vector<Occurrence> children;  // scopes, then members
  std::string member;                // the group of weights inside the record's operation
  std::string path;                  // path_of its scopes
  std::string signature;             // equal: the same operations on the same shapes
};

// "drafts/proposal/stage#41": a place in the code by its scopes, from the last one that is marked
// top on; what meta::Queue and timed::Queue record.
std::string path_of(std::span<const PartScope> parts);

// The parts that are marked top, in the order they were first entered.
std::vector<Occurrence> occurrences_of(const std::vector<meta::Record>& records);

// Appends the records of the occurrence and of all scopes inside it.
void gather_records(const Occurrence& occurrence, std::vector<size_t>& records);

// Siblings `first` to `first + length * repeats`, `repeats` times the same pattern.
struct Pattern {
  size_t first = 0, length = 1, repeats = 1;
};

// How siblings that are numbered group together: leaders with their followers, then equal ones in
// a row.
std::vector<Pattern> patterns_of(const std::vector<Occurrence>& siblings, size_t begin, size_t end);

// Where the siblings from `begin` on stop being numbered scopes of one unit.
size_t numbered_until(const std::vector<Occurrence>& siblings, size_t begin);

}  // namespace cachalot
