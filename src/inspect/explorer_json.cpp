#include "inspect/explorer_json.h"

#include <nlohmann/json.hpp>
#include <set>

namespace cachalot {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPlaces = 64;

// A path may hold bytes that are no UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A whole number where the value is one.
Json number(double value) {
  const auto whole = static_cast<int64_t>(value);
  if (static_cast<double>(whole) == value) return whole;
  return value;
}

void put_shape(Json& json, const std::vector<Dimension>& shape) {
  Json symbols = Json::array(), names = Json::array(), numbers = Json::array();
  for (const Dimension& dimension : shape) {
    if (dimension.symbol.empty()) {
      symbols.push_back(dimension.number);
    } else {
      symbols.push_back(dimension.symbol);
    }
    names.push_back(dimension.name);
    numbers.push_back(dimension.number);
  }
  json["shape"] = std::move(symbols);
  json["names"] = std::move(names);
  json["numbers"] = std::move(numbers);
}

const char* name_of(NodeOperand::Kind kind) {
  switch (kind) {
    case NodeOperand::Kind::activation:
      return "activation";
    case NodeOperand::Kind::cache:
      return "cache";
    case NodeOperand::Kind::constant:
      return "constant";
    case NodeOperand::Kind::step:
      return "step";
  }
  return "";
}

Json operands_json(const std::vector<NodeOperand>& operands) {
  Json result = Json::array();
  for (const NodeOperand& operand : operands) {
    Json json{{"name", operand.name}, {"kind", name_of(operand.kind)}, {"dtype", operand.dtype}};
    put_shape(json, operand.shape);
    if (operand.main) json["main"] = true;
    result.push_back(std::move(json));
  }
  return result;
}

Json shape_json(const Shape& shape) {
  Json json = Json::array();
  for (int i = 0; i < shape.rank(); ++i) json.push_back(shape[i]);
  return json;
}

Json weight_json(const Explorer& explorer, const NodeWeight& weight) {
  const ExplorerTensor& first = explorer.tensors[weight.places[0].tensor];
  Json places = Json::array();
  for (size_t i = 0; i < std::min(weight.places.size(), kMostPlaces); ++i) {
    const ExplorerTensor& tensor = explorer.tensors[weight.places[i].tensor];
    Json place{{"layer", weight.places[i].layer}, {"tensor", tensor.name}};
    if (weight.places[i].layer < 0) place.erase("layer");
    if (tensor.file.empty()) {
      place["file"] = nullptr;
    } else {
      place["file"] = tensor.file;
      place["begin"] = tensor.begin;
      place["end"] = tensor.end;
    }
    places.push_back(std::move(place));
  }
  Json json{{"role", weight.role},
            {"tensor", weight.pattern},
            {"shape", shape_json(first.shape)},
            {"orientation", weight.orientation},
            {"dtype", std::string(cachalot::name_of(first.dtype))},
            {"bytes", first.bytes},
            {"parameters", first.parameters}};
  if (!weight.owner.empty()) json["owner"] = weight.owner;
  json["places"] = std::move(places);
  if (weight.places.size() > kMostPlaces) json["more"] = weight.places.size() - kMostPlaces;
  return json;
}

std::string dtype_text(const Explorer& explorer, const Node& node) {
  std::string weights;
  std::set<std::string_view> seen;
  for (const NodeWeight& weight : node.weights) {
    const DType dtype = explorer.tensors[weight.places[0].tensor].dtype;
    if (weight.role.ends_with("scale") && weight.calculation.empty()) continue;
    const std::string_view name = cachalot::name_of(dtype);
    if (seen.insert(name).second) {
      weights += (weights.empty() ? "" : ", ") + std::string(dtype == DType::i8 ? "FP4" : name);
    }
  }
  std::string text = weights.empty() ? "" : weights + " weights";
  for (const NodeOperand& operand : node.inputs) {
    if (operand.kind != NodeOperand::Kind::activation) continue;
    return text + (text.empty() ? "" : ", ") + operand.dtype + " activations";
  }
  return text;
}

std::string calculation_text(const Node& node) {
  std::string text;
  for (const TableRow& row : node.table) {
    if (!text.empty()) text += " + ";
    text += row.calculation.empty() ? row.component : row.calculation;
  }
  return text;
}

Json cost_json(const NodeCost& cost) {
  return {{"flops", number(cost.flops)}, {"bytes", number(cost.bytes)}};
}

// `per` where not per step, `share` where instances are visited by turns, `apart` where children
// count by another unit.
Json costs_json(const Node& node) {
  Json json{{"decode", cost_json(node.decode)}, {"prefill", cost_json(node.prefill)}};
  if (!node.cost_unit.empty()) json["per"] = node.cost_unit;
  if (node.share.of > 0) {
    json["share"] = {{"of", node.share.of},
                     {"decode_visits", node.share.decode_visits},
                     {"prefill_visits", node.share.prefill_visits}};
  }
  if (!node.apart.empty()) json["apart"] = node.apart;
  return json;
}

Json evidence_json(const Node& node) {
  Json code = Json::array();
  for (const Excerpt& excerpt : node.code) {
    code.push_back({{"file", excerpt.file},
                    {"function", excerpt.function},
                    {"begin", excerpt.begin},
                    {"end", excerpt.end},
                    {"excerpt", excerpt.text}});
  }
  return {{"code", std::move(code)}, {"config", node.config_keys}, {"tensors", node.tensors_total}};
}

Json json_of(const Explorer& explorer, const Node& node) {
  Json json{{"id", node.id},
            {"title", node.title},
            {"sentence", node.sentence},
            {"formula", node.formula},
            {"learned", node.learned},
            {"operation", node.operation.empty() ? Json(nullptr) : Json(node.operation)},
            {"dtype", dtype_text(explorer, node)},
            {"count", node.count()}};
  Json terms = Json::array();
  for (const CountTerm& term : node.terms)
    terms.push_back({{"n", term.number}, {"what", term.what}});
  json["count_terms"] = std::move(terms);
  if (!node.layers.empty()) json["layers"] = node.layers;
  json["inputs"] = operands_json(node.inputs);
  json["outputs"] = operands_json(node.outputs);
  Json weights = Json::array();
  for (const NodeWeight& weight : node.weights) weights.push_back(weight_json(explorer, weight));
  json["weights"] = std::move(weights);
  json["bias"] = node.bias;
  json["parameters"] = {{"instance", node.parameters},
                        {"total", node.parameters_total},
                        {"calculation", node.children.empty() ? calculation_text(node) : ""}};
  json["bytes"] = {{"instance", node.bytes}, {"total", node.bytes_total}};
  json["cost"] = costs_json(node);
  json["cache_bytes_per_token"] = number(node.cache_bytes_per_token);
  json["cache_bytes_fixed"] = number(node.cache_bytes_fixed);
  json["evidence"] = evidence_json(node);
  Json table = Json::array();
  for (const TableRow& row : node.table) {
    table.push_back({{"component", row.component},
                     {"calculation", row.calculation},
                     {"parameters", row.parameters}});
  }
  json["table"] = std::move(table);
  Json children = Json::array();
  for (const Node& child : node.children) children.push_back(json_of(explorer, child));
  json["children"] = std::move(children);
  return json;
}

Json total_json(const PartTotal& total) {
  return {{"name", total.name},
          {"parameters", total.parameters},
          {"bytes", total.bytes},
          {"tensors", total.tensors}};
}

Json totals_json(const Explorer& explorer) {
  Json json{{"parameters", explorer.total.parameters},
            {"bytes", explorer.total.bytes},
            {"tensors", explorer.total.tensors}};
  Json parts = Json::array();
  for (const PartTotal& account : explorer.accounts) parts.push_back(total_json(account));
  json["by_part"] = std::move(parts);
  json["reconciled"] = explorer.mismatches.empty();
  Json mismatches = Json::array();
  for (const Mismatch& mismatch : explorer.mismatches) {
    mismatches.push_back(
        {{"tensor", mismatch.tensor}, {"expected", mismatch.expected}, {"found", mismatch.found}});
  }
  json["mismatches"] = std::move(mismatches);
  return json;
}

Json config_json(const Explorer& explorer) {
  Json json = Json::object();
  const ConfigKeys keys(explorer.config);
  for (const auto& [key, text] : keys.texts()) {
    const auto parsed = Json::parse(text, nullptr, false);
    json[key] = parsed.is_discarded() ? Json(text) : parsed;
  }
  return json;
}

Json hand_offs_json(const Explorer& explorer) {
  Json json = Json::array();
  for (const HandOff& hand_off : explorer.hand_offs) {
    Json one{{"kind", hand_off.kind},
             {"source", hand_off.source},
             {"consumers", hand_off.consumers},
             {"bytes_per_token", number(hand_off.bytes_per_token)}};
    put_shape(one, hand_off.shape);
    json.push_back(std::move(one));
  }
  return json;
}

Json layers_json(const Explorer& explorer) {
  const ModelConfig& config = explorer.config;
  Json json = Json::array();
  for (const ExplorerLayer& layer : explorer.layers) {
    json.push_back({{"layer", layer.layer},
                    {"node", layer.node},
                    {"ratio", config.ratio(layer.layer)},
                    {"kv_source", config.kv_source_of(layer.layer)},
                    {"index_source", config.index_source_of(layer.layer)},
                    {"engram", config.engram_index(layer.layer) >= 0},
                    {"draft", layer.layer >= config.n_layers}});
  }
  return json;
}

}  // namespace

std::string explorer_json(const Explorer& explorer) {
  Json json{{"schema", 1},
            {"name", explorer.root.title},
            {"source", explorer.source},
            {"has_files", explorer.has_files},
            {"commit", std::string(source_commit())},
            {"build", CACHALOT_VERSION},
            {"context", explorer.options.context},
            {"batch", explorer.options.batch},
            {"prefill_tokens", explorer.options.prefill}};
  json["totals"] = totals_json(explorer);
  json["config"] = config_json(explorer);
  json["handoffs"] = hand_offs_json(explorer);
  json["layers"] = layers_json(explorer);
  json["root"] = json_of(explorer, explorer.root);
  return text_of(json);
}

std::string node_json(const Explorer& explorer, const Node& node) {
  return text_of(json_of(explorer, node));
}

Result<std::string> explorer_json(const std::filesystem::path& path,
                                  const ExplorerOptions& options) {
  CACHALOT_TRY(const Explorer explorer, explore(path, options));
  return explorer_json(explorer);
}

}  // namespace cachalot
