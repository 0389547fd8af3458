#include "inspect/node_builder.h"

#include <algorithm>

#include "base/check.h"

namespace cachalot {
namespace {

std::string plural(const Part& part) { return std::string(part.unit) + "s"; }

std::string lower(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

std::string slug_of(const Occurrence& occurrence, std::string_view operation) {
  return occurrence.part != nullptr ? occurrence.part->slug : std::string(operation);
}

// The slug, or one that no sibling has.
std::string unused(const Node& parent, const std::string& slug, int64_t number) {
  const auto taken = [&](const std::string& name) {
    return std::ranges::any_of(parent.children, [&](const Node& child) {
      return child.id.ends_with(fmt::format("/{}", name));
    });
  };
  if (!taken(slug)) return slug;
  std::string name = fmt::format("{}-{}", slug, number);
  for (int64_t i = 2; taken(name); ++i) name = fmt::format("{}-{}", slug, i);
  return name;
}

bool has_engram(const Occurrence& layer) {
  return std::ranges::any_of(layer.children, [](const Occurrence& child) {
    return std::string_view(child.part->slug) == "engram";
  });
}

// "1 source + 5 reusing".
std::string pattern_text(const std::vector<Occurrence>& siblings, const Pattern& pattern) {
  std::string text;
  for (size_t at = pattern.first; at < pattern.first + pattern.length;) {
    size_t end = at;
    while (end < pattern.first + pattern.length &&
           siblings[end].signature == siblings[at].signature) {
      ++end;
    }
    text += fmt::format("{}{} {}", text.empty() ? "" : " + ", end - at, siblings[at].part->slug);
    if (has_engram(siblings[at])) text += " with engram";
    at = end;
  }
  return text;
}

}  // namespace

NodeBuilder::NodeBuilder(const PlannedModel& model, const SurveySet& surveys)
    : model_(model),
      surveys_(surveys),
      keys_(model.config()),
      tops_(occurrences_of(surveys.base.records)),
      flow_(surveys.base.records) {
  const auto& tensors = model.checkpoint().tensors();
  for (size_t i = 0; i < tensors.size(); ++i) tensors_.emplace(tensors[i].bytes.data(), i);
}

Node NodeBuilder::build(std::string title) {
  Node root;
  root.id = "model";
  root.title = std::move(title);
  root.sentence = "The whole model, as its code runs it.";
  for (const Occurrence& top : tops_) {
    root.children.push_back(node_of({{&top, -1}}, top.part->slug, Around{}));
  }
  return root;
}

void NodeBuilder::describe(Node& node, const Part& part, const Occurrence& occurrence) const {
  node.title = part.title;
  node.sentence = part.sentence;
  node.formula = part.formula;
  node.config_keys = keys_.keys_in(part.dimensions);
  const bool drafts = is_of_drafts(node.account);
  std::erase_if(node.config_keys, [&](const std::string& key) { return !keys_.fits(key, drafts); });
  if (auto excerpt = scope_excerpt(occurrence.where)) node.code.push_back(std::move(*excerpt));
}

Node NodeBuilder::node_of(const Instances& instances, const std::string& slug,
                          const Around& around) {
  const Occurrence& first = *instances[0].occurrence;
  const Part& part = *first.part;
  Around inside = around;
  inside.id = around.id.empty() ? slug : fmt::format("{}/{}", around.id, slug);
  if (part.account[0] != '\0') inside.account = part.account;
  if (part.cost_unit[0] != '\0') inside.cost_unit = part.cost_unit;
  inside.borrows = around.borrows || part.borrows;
  Node node;
  node.id = inside.id;
  node.terms = around.terms;
  node.account = inside.account;
  node.borrows = inside.borrows;
  node.cost_unit = inside.cost_unit;
  describe(node, part, first);
  for (const Instance& instance : instances) {
    if (instance.layer >= 0) node.layers.push_back(instance.layer);
    if (instance.occurrence->records.empty() || !first.member.empty()) continue;
    places_.emplace(instance.occurrence->path, NodePlace{node.id, instance.layer});
  }
  if (first.member.empty()) add_flow(node, {&first, 1});
  if (!first.records.empty()) fill_leaf(node, instances);
  if (!first.member.empty()) add_member_flow(node, first);
  add_children(node, instances, inside);
  return node;
}

void NodeBuilder::add_children(Node& node, const Instances& instances, const Around& inside) {
  const auto& siblings = instances[0].occurrence->children;
  for (size_t at = 0; at < siblings.size();) {
    const size_t end = numbered_until(siblings, at);
    if (end > at) {
      add_numbered(node, instances, at, end, inside);
      at = end;
      continue;
    }
    Instances of_child;
    for (const Instance& instance : instances) {
      of_child.push_back({&instance.occurrence->children[at], instance.layer});
    }
    const Occurrence& child = siblings[at];
    Around around = inside;
    const std::string slug = unused(node, slug_of(child, ""), static_cast<int64_t>(at));
    if (!child.member.empty()) {
      for (const meta::Member& member : surveys_.base.records[child.records[0]].members) {
        if (member.name == child.member && member.count > 1) {
          around.terms.push_back({member.count, plural(*child.part)});
        }
      }
    }
    node.children.push_back(node_of(of_child, slug, around));
    ++at;
  }
}

void NodeBuilder::add_numbered(Node& node, const Instances& instances, size_t begin, size_t end,
                               const Around& inside) {
  const auto& siblings = instances[0].occurrence->children;
  const auto patterns = patterns_of(siblings, begin, end);
  const size_t count = end - begin;
  if (count > 1 && siblings[begin].records.empty()) {
    node.title += fmt::format(": {} {}", count, plural(*siblings[begin].part));
  }
  for (const Pattern& pattern : patterns) {
    const Occurrence& first = siblings[pattern.first];
    if (pattern.length > 1) {
      node.children.push_back(group_of(instances, pattern, inside, node));
      continue;
    }
    std::string slug = first.part->slug;
    if (pattern.repeats > 1) slug += "s";
    if (patterns.size() > 1) slug += fmt::format("-{}", first.number);
    slug = unused(node, slug, first.number);
    Node run = run_of(instances, pattern.first, pattern.repeats, 1, 1, slug, inside);
    if (pattern.repeats == 1) {
      run.title.insert(std::string_view(first.part->title).size(),
                       fmt::format(" {}", first.number));
    }
    node.children.push_back(std::move(run));
  }
}

Node NodeBuilder::group_of(const Instances& instances, const Pattern& pattern, const Around& inside,
                           const Node& parent) {
  const auto& siblings = instances[0].occurrence->children;
  const Occurrence& first = siblings[pattern.first];
  const int64_t last = siblings[pattern.first + pattern.length * pattern.repeats - 1].number;
  const std::string units = plural(*first.part);
  Node group;
  const std::string slug = pattern.repeats > 1
                               ? fmt::format("groups-{}x{}", pattern.repeats, pattern.length)
                               : fmt::format("{}-{}-{}", units, first.number, last);
  Around around = inside;
  around.id = fmt::format("{}/{}", inside.id, unused(parent, slug, first.number));
  if (pattern.repeats > 1) {
    around.terms.push_back({static_cast<int64_t>(pattern.repeats), "groups"});
  }
  group.account = inside.account;
  describe(group, *first.part, first);
  group.id = around.id;
  group.terms = around.terms;
  group.borrows = inside.borrows;
  group.cost_unit = inside.cost_unit;
  group.formula.clear();
  const std::string holds = pattern_text(siblings, pattern);
  group.title = pattern.repeats > 1 ? fmt::format("{} groups of {} {}: {}", pattern.repeats,
                                                  pattern.length, units, holds)
                                    : fmt::format("Layers {} to {}: {}", first.number, last, holds);
  group.sentence = fmt::format(
      "{} {} to {}: the first of each group chooses entries for itself and those that follow it.",
      units == "layers" ? "Layers" : units, first.number, last);
  for (int64_t number = first.number; number <= last; ++number) group.layers.push_back(number);
  add_flow(group, std::span(siblings).subspan(pattern.first, pattern.length));
  for (size_t at = 0; at < pattern.length;) {
    size_t end = at;
    const auto& signature = siblings[pattern.first + at].signature;
    while (end < pattern.length && siblings[pattern.first + end].signature == signature) ++end;
    const std::string run_slug =
        unused(group, siblings[pattern.first + at].part->slug, siblings[pattern.first + at].number);
    Node run = run_of(instances, pattern.first + at, end - at, pattern.length, pattern.repeats,
                      run_slug, around);
    group.children.push_back(std::move(run));
    at = end;
  }
  return group;
}

// `length` siblings from `first` on, `repeats` times at a distance of `step`.
Node NodeBuilder::run_of(const Instances& instances, size_t first, size_t length, size_t step,
                         size_t repeats, const std::string& slug, const Around& inside) {
  const auto& siblings = instances[0].occurrence->children;
  const Part& part = *siblings[first].part;
  const std::string_view unit = part.unit;
  Instances members;
  for (const Instance& instance : instances) {
    for (size_t repeat = 0; repeat < repeats; ++repeat) {
      for (size_t i = 0; i < length; ++i) {
        const Occurrence& child = instance.occurrence->children[first + repeat * step + i];
        const bool is_layer = unit == "layer" || unit == "stage" || unit == "tap";
        members.push_back({&child, is_layer ? child.number : instance.layer});
      }
    }
  }
  Around around = inside;
  if (length > 1) around.terms.push_back({static_cast<int64_t>(length), plural(part)});
  Node node = node_of(members, slug, around);
  if (length > 1) node.title = fmt::format("{} {}s", length, lower(part.title));
  if (has_engram(siblings[first])) node.title += " with engram";
  if (!node.borrows) {
    for (const int64_t layer : node.layers) {
      const bool known = std::ranges::any_of(
          layers_, [&](const ExplorerLayer& other) { return other.layer == layer; });
      if (!known) layers_.push_back({layer, node.id});
    }
  }
  return node;
}

}  // namespace cachalot
