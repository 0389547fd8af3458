// From surveys of a model to the explorer's tree.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "inspect/data_flow.h"
#include "inspect/explorer.h"
#include "inspect/occurrences.h"
#include "inspect/survey.h"

namespace cachalot {

// Surveys of one model that differ in size alone.
struct SurveySet {
  Survey base, more_tokens, more_sequences, more_context;  // tell shapes apart
  Survey decode, prefill;                                  // at the size asked for
};

// Whether an account is that of the draft head.
inline bool is_of_drafts(std::string_view account) { return account == "DSpark"; }

class NodeBuilder {
 public:
  NodeBuilder(const PlannedModel& model, const SurveySet& surveys);

  Node build(std::string title);
  const std::vector<ExplorerLayer>& layers() const { return layers_; }
  const std::unordered_map<std::string, NodePlace>& places() const { return places_; }
  std::vector<HandOff> hand_offs() const;

 private:
  // The same scope in every layer that did the same.
  struct Instance {
    const Occurrence* occurrence;
    int64_t layer;
  };
  using Instances = std::vector<Instance>;
  struct Around {  // what a node is built inside of
    std::string id;
    std::vector<CountTerm> terms;
    const char* account = "";
    const char* cost_unit = "";
    bool borrows = false;
  };

  Node node_of(const Instances& instances, const std::string& slug, const Around& around);
  void add_children(Node& node, const Instances& instances, const Around& inside);
  void add_numbered(Node& node, const Instances& instances, size_t begin, size_t end,
                    const Around& inside);
  Node group_of(const Instances& instances, const Pattern& pattern, const Around& inside,
                const Node& parent);
  Node run_of(const Instances& instances, size_t first, size_t length, size_t step, size_t repeats,
              const std::string& slug, const Around& inside);
  void describe(Node& node, const Part& part, const Occurrence& occurrence) const;
  void fill_leaf(Node& node, const Instances& instances);
  void add_weights(Node& node, const Instances& instances) const;
  void add_cost(Node& node, const Occurrence& occurrence) const;
  void add_caches(Node& node, const Instances& instances);
  NodeOperand operand_at(OperandPlace place) const;
  double bytes_per_token(size_t record, size_t operand) const;
  void add_member_flow(Node& node, const Occurrence& occurrence) const;
  void add_copied_flow(Node& node, const meta::Record& record) const;
  void add_flow(Node& node, std::span<const Occurrence> siblings) const;

  const PlannedModel& model_;
  const SurveySet& surveys_;
  ConfigKeys keys_;
  std::vector<Occurrence> tops_;
  DataFlow flow_;
  std::unordered_map<const void*, size_t> tensors_;  // by planned address
  std::vector<ExplorerLayer> layers_;
  std::unordered_map<std::string, NodePlace> places_;
  std::unordered_set<const void*> cached_;  // addresses of the caches that nodes have written
};

}  // namespace cachalot
