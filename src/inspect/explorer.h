// The architecture of a model as a tree: what `inspect` prints and the explorer's page draws.
//
// Nothing of it is written by hand. The model's own code runs on the recording queue (survey.h);
// the scopes it opens are the nodes, layers that did the same are one node with a count, the
// addresses of the operands name the tensors. docs/explorer.md tells how a part is described.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "inspect/dimensions.h"
#include "inspect/source_text.h"
#include "inspect/stored_tensors.h"
#include "ops/part.h"

namespace cachalot {

// A tensor of the table, and where the files hold it.
struct ExplorerTensor {
  std::string name;
  DType dtype = DType::u8;
  Shape shape;
  int64_t parameters = 0, bytes = 0;
  std::string file;            // empty: a configuration without files, or not in them
  int64_t begin = 0, end = 0;  // bytes of the file
};

// What an operation reads, writes or both, beside its weights.
struct NodeOperand {
  enum class Kind { activation, cache, constant, step };
  std::string name;
  Kind kind = Kind::activation;
  std::string dtype;
  std::vector<Dimension> shape;
  bool main = false;  // of the outputs: what flows on
};

struct NodeWeight {
  struct Place {
    int64_t layer = -1;  // -1: of no layer
    size_t tensor = 0;   // index in Explorer::tensors
  };
  std::string role;         // "weight", "scale", "bias", "norm", "w1"
  std::string pattern;      // the tensor's name, numbers that differ as {layer}
  std::string orientation;  // "[out, in]"
  std::string calculation;  // of the parameters; empty for scales
  std::string owner;        // the node they belong to, where that is another; empty: this one
  std::vector<Place> places;
};

// "x 2 groups x 5 layers".
struct CountTerm {
  int64_t number = 1;
  std::string what;
};

struct NodeCost {
  double flops = 0, bytes = 0;
};

// Of weights of which a step visits a few only, all alike: what one instance's cost is a share of.
struct NodeShare {
  int64_t of = 0;                                 // instances; 0: an instance's cost is its own
  int64_t decode_visits = 0, prefill_visits = 0;  // at most, of them
};

struct TableRow {
  std::string component, calculation;
  int64_t parameters = 0;
};

struct Node {
  std::string id, title, sentence, formula;
  std::string operation;  // empty for nodes with children
  std::string account;
  std::vector<CountTerm> terms;
  std::vector<int64_t> layers;  // draft stages count on; empty outside layers
  std::vector<NodeOperand> inputs, outputs;
  std::vector<NodeWeight> weights;
  bool bias = false, learned = false;
  bool borrows = false;  // weights that another node reads too belong to the other
  int64_t parameters = 0, parameters_total = 0;  // of one instance; of all
  int64_t bytes = 0, bytes_total = 0;
  int64_t tensors_total = 0;
  std::string cost_unit;     // what cost is counted by: "picture"; empty: the step
  NodeCost decode, prefill;  // of one instance, per step
  NodeShare share;
  std::vector<std::string> apart;  // children that are not in the cost: another unit counts theirs
  double cache_bytes_per_token = 0, cache_bytes_fixed = 0;  // of one instance and sequence
  std::vector<Excerpt> code;
  std::vector<std::string> config_keys;
  std::vector<TableRow> table;
  std::vector<Node> children;

  // How often it is in the model.
  int64_t count() const {
    int64_t product = 1;
    for (const CountTerm& term : terms) product *= term.number;
    return product;
  }
};

struct PartTotal {
  std::string name;
  int64_t parameters = 0, bytes = 0, tensors = 0;
};

// What one layer computes and others use.
struct HandOff {
  std::string kind;  // compressed_kv, index_keys, picks, candidates
  int64_t source = 0;
  std::vector<int64_t> consumers;
  std::vector<Dimension> shape;
  double bytes_per_token = 0;
};

struct ExplorerLayer {
  int64_t layer = 0;
  std::string node;  // the id of the structure it is an instance of
};

// Where a recorded operation stands in the tree.
struct NodePlace {
  std::string node;
  int64_t layer = -1;  // -1: in no layer
};

struct ExplorerOptions {
  int64_t context = 0;  // positions; 0: the smaller of 32768 and what the model takes
  int64_t batch = 1;
  int64_t prefill = 8192;  // tokens per sequence of the prefill step; at most the context
};

struct Explorer {
  ModelConfig config;
  std::string name, source;
  bool has_files = false;
  ExplorerOptions options;
  std::vector<ExplorerTensor> tensors;  // in table order
  PartTotal total;                      // over all leaves
  std::vector<PartTotal> accounts;
  std::vector<Mismatch> mismatches;  // empty: everything reconciles
  std::vector<HandOff> hand_offs;
  std::vector<ExplorerLayer> layers;
  std::unordered_map<std::string, NodePlace> places;  // by the path of scopes (occurrences.h)
  Node root;
};

// The node an operation belongs to, by the scopes a queue noted with it; nullptr: none, as for the
// operations of the prefill shortcut.
const NodePlace* place_of(const Explorer& explorer, std::span<const PartScope> parts);

// path: a checkpoint folder, a folder with a configuration alone, or a configuration file.
// Errors: the configuration is not there or not valid; an option out of range. A checkpoint whose
// tensors are not those of its configuration is no error: what differs is in `mismatches`.
Result<Explorer> explore(const std::filesystem::path& path, const ExplorerOptions& options);

}  // namespace cachalot
