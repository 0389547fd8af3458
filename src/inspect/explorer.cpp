#include "inspect/explorer.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "checkpoint/synth.h"
#include "checkpoint/tensor_table.h"
#include "inspect/node_builder.h"
#include "inspect/number_text.h"

namespace cachalot {
namespace {

// Which of the two parties a difference is, in a mismatch.
std::string form_of(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", name_of(dtype), shape.text());
}

bool same_form(const TensorSpec& spec, const StoredTensor& stored) {
  const bool scale =
      spec.dtype == DType::f8_e8m0 && (stored.dtype == DType::u8 || stored.dtype == DType::f32);
  return (scale || stored.dtype == spec.dtype) && stored.shape == spec.shape;
}

// The table's tensors, with their places in the files; what differs goes into mismatches.
void add_tensors(Explorer& explorer, const StoredTensors& stored) {
  std::unordered_map<std::string, const StoredTensor*> by_name;
  for (const StoredTensor& tensor : stored.tensors) {
    if (!by_name.emplace(tensor.name, &tensor).second) {
      explorer.mismatches.push_back(
          {tensor.name, "one of the name", fmt::format("another in {}", tensor.file)});
    }
  }
  for (const TensorSpec& spec : tensor_table(explorer.config)) {
    ExplorerTensor tensor{spec.name,    spec.dtype, spec.shape, spec.parameters(),
                          spec.bytes(), "",         0,          0};
    const auto found = by_name.find(spec.name);
    if (found != by_name.end()) {
      const StoredTensor& file = *found->second;
      if (!same_form(spec, file)) {
        explorer.mismatches.push_back(
            {spec.name, form_of(spec.dtype, spec.shape),
             fmt::format("{} in {}", form_of(file.dtype, file.shape), file.file)});
      }
      tensor.dtype = file.dtype;
      tensor.bytes = file.end - file.begin;
      tensor.file = file.file;
      tensor.begin = file.begin;
      tensor.end = file.end;
      by_name.erase(found);
    } else if (explorer.has_files) {
      explorer.mismatches.push_back({spec.name, form_of(spec.dtype, spec.shape), "missing"});
    }
    explorer.tensors.push_back(std::move(tensor));
  }
  for (const StoredTensor& tensor : stored.tensors) {
    const auto left = by_name.find(tensor.name);
    if (left == by_name.end() || left->second != &tensor) continue;
    explorer.mismatches.push_back(
        {tensor.name, "no tensor of the name",
         fmt::format("{} in {}", form_of(tensor.dtype, tensor.shape), tensor.file)});
  }
}

// The most patches that a span has room for: cells row by row, a mark after every row, and one at
// each end.
PatchGrid largest_picture(const ModelConfig& config) {
  const int64_t ratio = config.vision_downsample_ratio;
  const int64_t room = config.vision_max_n_token - 2;
  int64_t rows = 1, columns = 1;
  for (int64_t tried = 1; 2 * tried <= room; ++tried) {
    const int64_t most = room / tried - 1;
    if (tried * most <= rows * columns) continue;
    rows = tried;
    columns = most;
  }
  return {rows * ratio, columns * ratio};
}

// Sizes at which shapes can be told apart, and those asked for.
SurveySet survey_all(const PlannedModel& model, const ExplorerOptions& options) {
  const ModelConfig& config = model.config();
  const int64_t ratio = config.vision_downsample_ratio;
  const PatchGrid small{2 * ratio, 3 * ratio}, large{5 * ratio, 3 * ratio};
  const PatchGrid picture = largest_picture(config);
  constexpr int64_t kContext = 4096;
  return {.base = model.survey({2, 3, kContext, small}),
          .more_tokens = model.survey({2, 5, kContext, large}),
          .more_sequences = model.survey({7, 3, kContext, small}),
          .more_context = model.survey({2, 3, 3 * kContext, small}),
          .decode = model.survey({options.batch, 1, options.context, picture}),
          .prefill = model.survey({options.batch, options.prefill, options.context, picture})};
}

template <class Visit>
void visit_leaves(Node& node, Visit&& visit) {
  if (node.children.empty()) visit(node);
  for (Node& child : node.children) visit_leaves(child, visit);
}

// Every tensor belongs to the first node that reads it, those that only borrow last.
void assign_tensors(Explorer& explorer) {
  std::vector<const Node*> owners(explorer.tensors.size());
  for (const bool borrowers : {false, true}) {
    visit_leaves(explorer.root, [&](Node& leaf) {
      if (leaf.borrows != borrowers) return;
      for (NodeWeight& weight : leaf.weights) {
        const Node* owner = owners[weight.places[0].tensor];
        if (owner != nullptr && owner != &leaf) {
          weight.owner = owner->id;
          continue;
        }
        for (const auto& place : weight.places) owners[place.tensor] = &leaf;
      }
    });
  }
  for (size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] == nullptr) {
      explorer.mismatches.push_back(
          {explorer.tensors[i].name, "read by an operation", "read by none"});
    }
  }
}

void total_leaf(const Explorer& explorer, Node& leaf) {
  for (const NodeWeight& weight : leaf.weights) {
    if (!weight.owner.empty()) continue;
    const ExplorerTensor& first = explorer.tensors[weight.places[0].tensor];
    leaf.parameters += first.parameters;
    leaf.bytes += first.bytes;
    for (const auto& place : weight.places) {
      leaf.parameters_total += explorer.tensors[place.tensor].parameters;
      leaf.bytes_total += explorer.tensors[place.tensor].bytes;
      ++leaf.tensors_total;
    }
    if (first.parameters > 0) {
      leaf.table.push_back({weight.role, weight.calculation, first.parameters});
    }
  }
}

void add_cost(NodeCost& sum, const NodeCost& cost, double often) {
  sum.flops += cost.flops * often;
  sum.bytes += cost.bytes * often;
}

// From the leaves up; costs and caches are those of one instance of each node.
void total_node(const Explorer& explorer, Node& node) {
  if (node.children.empty()) return total_leaf(explorer, node);
  node.operation.clear();
  node.decode = node.prefill = {};
  node.weights.clear();
  for (Node& child : node.children) {
    total_node(explorer, child);
    const int64_t times = child.count() / node.count();
    const auto often = static_cast<double>(times);
    node.parameters += child.parameters * times;
    node.bytes += child.bytes * times;
    node.parameters_total += child.parameters_total;
    node.bytes_total += child.bytes_total;
    node.tensors_total += child.tensors_total;
    if (child.cost_unit == node.cost_unit) {
      add_cost(node.decode, child.decode, often);
      add_cost(node.prefill, child.prefill, often);
    }
    if (child.cost_unit == node.cost_unit) {
      node.cache_bytes_per_token += child.cache_bytes_per_token * often;
      node.cache_bytes_fixed += child.cache_bytes_fixed * often;
    } else {
      node.apart.push_back(child.id);
    }
    node.learned = node.learned || child.learned;
    node.bias = node.bias || child.bias;
    if (child.parameters == 0) continue;
    node.table.push_back({child.title,
                          times > 1 ? fmt::format("{} x {}", times, grouped(child.parameters)) : "",
                          child.parameters * times});
  }
}

void add(PartTotal& total, const Node& leaf) {
  total.parameters += leaf.parameters_total;
  total.bytes += leaf.bytes_total;
  total.tensors += leaf.tensors_total;
}

void total_accounts(Explorer& explorer) {
  explorer.total.name = "total";
  visit_leaves(explorer.root, [&](Node& leaf) {
    add(explorer.total, leaf);
    auto account = std::ranges::find(explorer.accounts, leaf.account, &PartTotal::name);
    if (account == explorer.accounts.end()) {
      explorer.accounts.push_back({leaf.account, 0, 0, 0});
      account = explorer.accounts.end() - 1;
    }
    add(*account, leaf);
  });
}

Status check_options(const ModelConfig& config, ExplorerOptions& options) {
  if (options.context == 0) {
    options.context = std::min<int64_t>(32768, config.max_position_embeddings);
  }
  if (options.context < 1 || options.context > config.max_position_embeddings) {
    return fail("--context: expected 1 to {} positions, which is what the model takes, found {}",
                config.max_position_embeddings, options.context);
  }
  if (options.batch < 1 || options.batch > 65536) {
    return fail("--batch: expected 1 to 65536 sequences, found {}", options.batch);
  }
  if (options.prefill < 1) {
    return fail("--prefill: expected at least one token, found {}", options.prefill);
  }
  options.prefill = std::min(options.prefill, options.context);
  // Costs beyond that no longer fit in 64 bits, nor cache addresses in what is planned for them.
  constexpr int64_t kMostPositions = int64_t{1} << 40, kMostTokens = int64_t{1} << 24;
  if (options.batch > kMostPositions / options.context) {
    return fail("--batch times --context: expected at most {} positions, found {} x {}",
                kMostPositions, options.batch, options.context);
  }
  if (options.batch > kMostTokens / options.prefill) {
    return fail("--batch times --prefill: expected at most {} tokens in a step, found {} x {}",
                kMostTokens, options.batch, options.prefill);
  }
  return {};
}

std::string name_of_path(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto whole = std::filesystem::weakly_canonical(path, ignored);
  const bool folder = std::filesystem::is_directory(path, ignored);
  const auto named = folder ? whole : whole.parent_path();
  return named.filename().string();
}

}  // namespace

const NodePlace* place_of(const Explorer& explorer, std::span<const PartScope> parts) {
  const auto found = explorer.places.find(path_of(parts));
  return found == explorer.places.end() ? nullptr : &found->second;
}

Result<Explorer> explore(const std::filesystem::path& path, const ExplorerOptions& options) {
  Explorer explorer;
  CACHALOT_TRY(explorer.config, config_at(path));
  explorer.options = options;
  CACHALOT_OK(check_options(explorer.config, explorer.options));
  explorer.name = name_of_path(path);
  explorer.source = path.string();
  StoredTensors stored;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    CACHALOT_TRY(stored, stored_tensors(path));
  }
  explorer.has_files = stored.any_files;
  explorer.mismatches = stored.mismatches;
  add_tensors(explorer, stored);
  auto model = PlannedModel::make(explorer.config);
  if (!model) return fail(model.error().in(explorer.source));
  const SurveySet surveys = survey_all(*model, explorer.options);
  NodeBuilder builder(*model, surveys);
  explorer.root = builder.build(explorer.name + (explorer.has_files ? "" : " (configuration)"));
  explorer.layers = builder.layers();
  std::ranges::sort(explorer.layers, {}, &ExplorerLayer::layer);
  explorer.places = builder.places();
  explorer.hand_offs = builder.hand_offs();
  assign_tensors(explorer);
  total_node(explorer, explorer.root);
  total_accounts(explorer);
  return explorer;
}

}  // namespace cachalot
