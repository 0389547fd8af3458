#include "inspect/occurrences.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace cachalot {
namespace {

void append_scope(std::string& path, const PartScope& scope) {
  if (!path.empty()) path += '/';
  path += scope.part->slug;
  if (scope.number >= 0) path += fmt::format("#{}", scope.number);
}

// Puts a record below the scopes from `depth` on.
void add(Occurrence& parent, const meta::Record& record, size_t index, size_t depth) {
  parent.first_record = std::min(parent.first_record, index);
  parent.end_record = index + 1;
  if (depth == record.parts.size()) {
    parent.records.push_back(index);
    return;
  }
  if (parent.children.empty() || parent.children.back().entry != record.entries[depth]) {
    const PartScope& scope = record.parts[depth];
    std::string path = parent.path;
    append_scope(path, scope);
    parent.children.push_back({.part = scope.part,
                               .number = scope.number,
                               .where = scope.where,
                               .entry = record.entries[depth],
                               .first_record = index,
                               .path = std::move(path)});
  }
  add(parent.children.back(), record, index, depth + 1);
}

// What the operation is and on what shapes it works; one expert stands for all.
std::string signature_of(const meta::Record& record) {
  std::string text(record.name);
  for (const meta::Operand& operand : record.operands) {
    if (operand.instance > 0) continue;
    text += fmt::format("|{} {} {} {}", operand.field, static_cast<int>(operand.role),
                        name_of(operand.dtype), operand.shape.text());
  }
  for (const meta::Member& member : record.members) {
    text += fmt::format("|{} x {}", member.name, member.count);
  }
  return text;
}

void add_members(Occurrence& occurrence, const meta::Record& record, size_t index) {
  for (const meta::Member& member : record.members) {
    const auto& parts = occurrence.part->members;
    const auto part =
        std::ranges::find_if(parts, [&](const Part& p) { return member.name == p.slug; });
    CACHALOT_CHECK(part != parts.end(), "{}: no description of {}", occurrence.part->slug,
                   member.name);
    occurrence.children.push_back({.part = &*part,
                                   .where = occurrence.where,
                                   .first_record = index,
                                   .end_record = index + 1,
                                   .records = {index},
                                   .member = std::string(member.name),
                                   .signature = std::string(member.name)});
  }
}

void finish(Occurrence& occurrence, const std::vector<meta::Record>& records) {
  std::string text = fmt::format("{}({})", occurrence.part->slug, occurrence.part->title);
  for (Occurrence& child : occurrence.children) {
    finish(child, records);
    text.append("{").append(child.signature).append("}");
  }
  for (const size_t index : occurrence.records)
    text.append("<").append(signature_of(records[index])).append(">");
  occurrence.signature = std::move(text);
  if (!occurrence.records.empty()) {
    add_members(occurrence, records[occurrence.records[0]], occurrence.records[0]);
  }
}

bool same_unit(const Occurrence& a, const Occurrence& b) {
  return b.number >= 0 && std::strcmp(a.part->unit, b.part->unit) == 0;
}

}  // namespace

std::string path_of(std::span<const PartScope> parts) {
  std::string path;
  for (const PartScope& scope : parts) {
    if (scope.part->top) path.clear();
    append_scope(path, scope);
  }
  return path;
}

std::vector<Occurrence> occurrences_of(const std::vector<meta::Record>& records) {
  std::vector<Occurrence> tops;
  for (size_t index = 0; index < records.size(); ++index) {
    const meta::Record& record = records[index];
    size_t depth = record.parts.size();
    while (depth > 0 && !record.parts[depth - 1].part->top) --depth;
    CACHALOT_CHECK(depth > 0, "operation {} ({}) lies in no part", record.name, record.label);
    const PartScope& scope = record.parts[depth - 1];
    auto top = std::ranges::find(tops, scope.part, &Occurrence::part);
    if (top == tops.end()) {
      tops.push_back({.part = scope.part,
                      .where = scope.where,
                      .first_record = index,
                      .path = path_of({&scope, 1})});
      top = tops.end() - 1;
    }
    add(*top, record, index, depth);
  }
  for (Occurrence& top : tops) finish(top, records);
  return tops;
}

void gather_records(const Occurrence& occurrence, std::vector<size_t>& records) {
  for (const Occurrence& child : occurrence.children) {
    if (child.member.empty()) gather_records(child, records);
  }
  records.insert(records.end(), occurrence.records.begin(), occurrence.records.end());
}

size_t numbered_until(const std::vector<Occurrence>& siblings, size_t begin) {
  size_t end = begin;
  while (end < siblings.size() && same_unit(siblings[begin], siblings[end])) ++end;
  return end;
}

std::vector<Pattern> patterns_of(const std::vector<Occurrence>& siblings, size_t begin,
                                 size_t end) {
  std::vector<Pattern> patterns;
  const auto equal = [&](size_t a, size_t b, size_t length) {
    return std::equal(
        siblings.begin() + static_cast<long>(a), siblings.begin() + static_cast<long>(a + length),
        siblings.begin() + static_cast<long>(b),
        [](const Occurrence& x, const Occurrence& y) { return x.signature == y.signature; });
  };
  for (size_t at = begin; at < end;) {
    size_t length = 1;
    if (siblings[at].part->place == PartPlace::leads) {
      while (at + length < end && siblings[at + length].part->place == PartPlace::follows) ++length;
    }
    Pattern* last = patterns.empty() ? nullptr : &patterns.back();
    if (last != nullptr && last->length == length && equal(last->first, at, length)) {
      ++last->repeats;
    } else {
      patterns.push_back({at, length, 1});
    }
    at += length;
  }
  return patterns;
}

}  // namespace cachalot
