// Nodes that are one operation: weights, operands, cost.
#include <algorithm>

#include "base/check.h"
#include "inspect/node_builder.h"
#include "inspect/number_text.h"

namespace cachalot {
namespace {

// "weight.codes" -> "weight", "routed.w1.scales" -> "w1 scale".
std::string role_of(std::string field, const std::string& member) {
  if (!member.empty()) field = field.substr(member.size() + 1);
  const auto ends = [&](std::string_view end) {
    if (!field.ends_with(end)) return false;
    field.resize(field.size() - end.size());
    return true;
  };
  if (ends(".codes") || ends(".values")) return field;
  if (ends(".scales")) return field == "weight" ? "scale" : field + " scale";
  if (field == "codes") return "table";
  if (field == "scales") return "scale";
  return field;
}

std::string orientation_of(const std::string& role, const TensorEntry& tensor) {
  const bool scale = tensor.dtype == DType::f8_e8m0;
  const bool table = role == "table" || role == "embed" || tensor.name.ends_with("embed.scale");
  if (tensor.shape.rank() == 1) return "[width]";
  if (tensor.name.ends_with("q_weight") || tensor.name.ends_with("k_weight")) {
    return "[copies, width]";
  }
  if (table) return scale ? "[rows, width / 32]" : "[rows, width]";
  if (scale) {
    // Scales of FP4 run along rows.
    return tensor.name.find(".experts.") != std::string::npos ? "[out, in / 32]"
                                                              : "[out / 32, in / 32]";
  }
  return tensor.dtype == DType::i8 ? "[out, in / 2]" : "[out, in]";
}

std::string calculation_of(const TensorEntry& tensor) {
  if (tensor.dtype == DType::f8_e8m0) return "";
  std::string text;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    const bool packed = tensor.dtype == DType::i8 && i + 1 == tensor.shape.rank();
    if (i > 0) text += " x ";
    text += grouped(tensor.shape[i] * (packed ? 2 : 1));
  }
  return text;
}

std::vector<std::string> split_name(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// What the numbers behind a piece of a name count.
std::string counted_by(const std::string& piece) {
  if (piece == "layers") return "{layer}";
  if (piece == "mtp") return "{stage}";
  if (piece == "blocks") return "{block}";
  return piece == "experts" ? "{expert}" : "{n}";
}

std::string pattern_of(const std::vector<NodeWeight::Place>& places,
                       const std::vector<TensorEntry>& tensors) {
  auto pieces = split_name(tensors[places[0].tensor].name);
  const std::vector<std::string> first = pieces;
  for (const NodeWeight::Place& place : places) {
    const auto others = split_name(tensors[place.tensor].name);
    for (size_t i = 1; i < std::min(pieces.size(), others.size()); ++i) {
      if (others[i] != first[i]) pieces[i] = counted_by(first[i - 1]);
    }
  }
  std::string text = pieces[0];
  for (size_t i = 1; i < pieces.size(); ++i) text.append(".").append(pieces[i]);
  return text;
}

bool belongs(const meta::Operand& operand, const std::string& member) {
  const bool of_member =
      operand.field.starts_with("routed.") || operand.field.starts_with("shared.");
  return member.empty() ? !of_member : operand.field.starts_with(member + ".");
}

// Experts that an operation visits at most.
int64_t visits_in(const meta::Record& record, const meta::Member& member) {
  const auto ids = std::ranges::find(record.operands, "ids", &meta::Operand::field);
  CACHALOT_CHECK(ids != record.operands.end(), "{}: no ids", record.name);
  return std::min(ids->shape.elements(), member.count);
}

// Of several outputs the one that flows on, where it is not the first.
bool is_main_field(std::string_view field) {
  return field == "drafts" || field == "chosen" || field == "latents";
}

void mark_main(std::vector<NodeOperand>& outputs) {
  if (outputs.empty()) return;
  auto main = std::ranges::find_if(outputs, is_main_field, &NodeOperand::name);
  if (main == outputs.end()) {
    main = std::ranges::find(outputs, NodeOperand::Kind::activation, &NodeOperand::kind);
  }
  (main == outputs.end() ? outputs.front() : *main).main = true;
}

}  // namespace

void NodeBuilder::add_weights(Node& node, const Instances& instances) const {
  const Occurrence& first = *instances[0].occurrence;
  const auto& records = surveys_.base.records;
  const auto& tensors = model_.checkpoint().tensors();
  for (const meta::Operand& named : records[first.records[0]].operands) {
    if (!is_weight(named) || !belongs(named, first.member) || named.instance > 0) continue;
    NodeWeight weight;
    weight.role = role_of(named.field, first.member);
    for (const Instance& instance : instances) {
      for (const meta::Operand& operand : records[instance.occurrence->records[0]].operands) {
        if (operand.field != named.field) continue;
        const auto tensor = tensors_.find(operand.data);
        CACHALOT_CHECK(tensor != tensors_.end(), "{}: {} is no tensor", node.id, operand.field);
        weight.places.push_back({instance.layer, tensor->second});
      }
    }
    const TensorEntry& tensor = tensors[weight.places[0].tensor];
    weight.pattern = pattern_of(weight.places, tensors);
    weight.orientation = orientation_of(weight.role, tensor);
    weight.calculation = calculation_of(tensor);
    node.bias = node.bias || weight.role.starts_with("bias");
    node.learned = true;
    node.weights.push_back(std::move(weight));
  }
}

void NodeBuilder::add_cost(Node& node, const Occurrence& occurrence) const {
  const auto cost_in = [&](const Survey& survey) {
    NodeCost sum;
    for (const size_t index : occurrence.records) {
      const meta::Record& record = survey.records[index];
      Cost cost = record.cost;
      double share = 1;
      for (const meta::Member& member : record.members) {
        if (member.name != occurrence.member) continue;
        cost = member.cost;
        share = 1 / static_cast<double>(member.count);
      }
      sum.flops += static_cast<double>(cost.flops) * share;
      sum.bytes += static_cast<double>(cost.bytes()) * share;
    }
    return sum;
  };
  node.decode = cost_in(surveys_.decode);
  node.prefill = cost_in(surveys_.prefill);
  for (const meta::Member& member : surveys_.base.records[occurrence.records[0]].members) {
    if (member.name != occurrence.member || member.count == 1) continue;
    node.share = {member.count, visits_in(surveys_.decode.records[occurrence.records[0]], member),
                  visits_in(surveys_.prefill.records[occurrence.records[0]], member)};
  }
}

// Of one instance; what another node has written already is that one's.
void NodeBuilder::add_caches(Node& node, const Instances& instances) {
  const Survey& survey = surveys_.decode;
  for (const Instance& instance : instances) {
    for (const meta::Operand& operand : survey.records[instance.occurrence->records[0]].operands) {
      if (operand.role == Access::in || kind_of(operand) != NodeOperand::Kind::cache) continue;
      if (!cached_.insert(operand.data).second || &instance != &instances[0]) continue;
      const auto region = std::ranges::find(survey.caches, operand.data, &CacheRegion::data);
      CACHALOT_CHECK(region != survey.caches.end(), "{}: {}", node.id, operand.field);
      const auto bytes = static_cast<double>(region->bytes);
      if (region->positions > 0) {
        node.cache_bytes_per_token += bytes / static_cast<double>(region->positions);
      } else {
        node.cache_bytes_fixed += bytes / static_cast<double>(survey.size.batch);
      }
    }
  }
}

NodeOperand NodeBuilder::operand_at(OperandPlace place) const {
  const auto shape_in = [&](const Survey& survey) {
    return survey.records[place.record].operands[place.operand].shape;
  };
  const meta::Record& record = surveys_.base.records[place.record];
  const meta::Operand& operand = record.operands[place.operand];
  const ShapeSeries shapes{operand.shape, shape_in(surveys_.more_tokens),
                           shape_in(surveys_.more_sequences), shape_in(surveys_.more_context),
                           shape_in(surveys_.decode)};
  const SurveySizes sizes{surveys_.base.size, surveys_.decode.size,
                          model_.config().vision_downsample_ratio};
  std::vector<std::string_view> lists;
  bool drafts = false;
  for (const PartScope& scope : record.parts) {
    lists.insert(lists.begin(), scope.part->dimensions);
    drafts = drafts || is_of_drafts(scope.part->account);
  }
  return {operand.field, kind_of(operand), std::string(name_of(operand.dtype)),
          dimensions_of(shapes, sizes, keys_, operand.field, drafts, lists)};
}

// An expert of many is given some of the rows.
void NodeBuilder::add_member_flow(Node& node, const Occurrence& occurrence) const {
  const size_t record = occurrence.records[0];
  const auto& operands = surveys_.base.records[record].operands;
  const bool some = node.share.of > 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].field != "x" && operands[i].field != "y") continue;
    NodeOperand operand = operand_at({record, i});
    if (some) {
      const int64_t most = surveys_.decode.records[record].operands[i].shape[0];
      operand.shape = {{"rows", "rows", most}, operand.shape.back()};
    }
    operand.main = operands[i].role != Access::in;
    (operand.main ? node.outputs : node.inputs).push_back(std::move(operand));
  }
}

// Rows the host copies: one after every line of a picture, one at each end of it.
void NodeBuilder::add_copied_flow(Node& node, const meta::Record& record) const {
  const int64_t lines =
      surveys_.decode.size.grid.cell_rows(model_.config().vision_downsample_ratio);
  const meta::Operand& mark = record.operands[0];
  const int64_t width = mark.shape[mark.shape.rank() - 1];
  node.outputs.push_back({.name = "rows",
                          .kind = NodeOperand::Kind::activation,
                          .dtype = std::string(name_of(mark.dtype)),
                          .shape = {{"lines + 2", "lines + 2", lines + 2}, {"", "dim", width}},
                          .main = true});
}

// What scopes in a row take in and give out; of one operation all it reads and writes.
void NodeBuilder::add_flow(Node& node, std::span<const Occurrence> siblings) const {
  const auto& records = surveys_.base.records;
  if (siblings.size() == 1 && !siblings[0].records.empty()) {
    const size_t record = siblings[0].records[0];
    const auto& operands = records[record].operands;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (is_weight(operands[i])) continue;
      const NodeOperand operand = operand_at({record, i});
      if (is_read(operands[i])) node.inputs.push_back(operand);
      if (operands[i].role != Access::in) node.outputs.push_back(operand);
    }
    if (node.outputs.empty()) add_copied_flow(node, records[record]);
    mark_main(node.outputs);
    return;
  }
  std::vector<size_t> inside;
  for (const Occurrence& sibling : siblings) gather_records(sibling, inside);
  std::ranges::sort(inside);
  for (const OperandPlace& place : flow_.inputs_of(inside)) {
    node.inputs.push_back(operand_at(place));
  }
  // Main is what the last operation writes that computes something, or the drafts, or the logits.
  size_t last_record = 0;
  const auto places = flow_.outputs_of(inside);
  for (const OperandPlace& place : places) last_record = std::max(last_record, place.record);
  size_t main = places.size();
  for (size_t i = 0; i < places.size(); ++i) {
    node.outputs.push_back(operand_at(places[i]));
    const bool named = node.outputs[i].name == "drafts" || node.outputs[i].name == "logits";
    const bool first = main == places.size() && places[i].record == last_record;
    if (named) last_record = records.size();  // nothing else
    if (first || named) main = i;
  }
  if (main < places.size()) node.outputs[main].main = true;
}

void NodeBuilder::fill_leaf(Node& node, const Instances& instances) {
  const Occurrence& first = *instances[0].occurrence;
  const meta::Record& record = surveys_.base.records[first.records[0]];
  if (auto contract = contract_excerpt(record.name)) node.code.push_back(std::move(*contract));
  node.operation = record.name;
  add_weights(node, instances);
  add_cost(node, first);
  if (first.member.empty()) add_caches(node, instances);
}

std::vector<HandOff> NodeBuilder::hand_offs() const {
  constexpr std::pair<std::string_view, const char*> kKinds[] = {{"latents", "compressed_kv"},
                                                                 {"keys", "index_keys"},
                                                                 {"chosen", "picks"},
                                                                 {"candidates", "candidates"}};
  const auto& records = surveys_.base.records;
  std::vector<HandOff> result;
  std::unordered_map<const void*, size_t> last;  // by address: index in result
  for (size_t r = 0; r < records.size(); ++r) {
    const auto& parts = records[r].parts;
    // Steps of another kind hand nothing on to the layers of this one.
    const bool aside =
        std::ranges::any_of(parts, [](const PartScope& s) { return s.part->cost_unit[0] != '\0'; });
    if (aside) continue;
    const auto scope =
        std::ranges::find_if(parts, [](const PartScope& s) { return s.number >= 0; });
    if (scope == parts.end()) continue;
    for (size_t i = 0; i < records[r].operands.size(); ++i) {
      const meta::Operand& operand = records[r].operands[i];
      const auto kind =
          std::ranges::find(kKinds, operand.field, [](const auto& k) { return k.first; });
      if (kind == std::end(kKinds)) continue;
      if (operand.role != Access::in) {
        HandOff made{kind->second, scope->number, {}, operand_at({r, i}).shape, 0};
        made.bytes_per_token = bytes_per_token(r, i);
        last[operand.data] = result.size();
        result.push_back(std::move(made));
        continue;
      }
      const auto found = last.find(operand.data);
      if (found == last.end() || result[found->second].source == scope->number) continue;
      auto& consumers = result[found->second].consumers;
      if (consumers.empty() || consumers.back() != scope->number) {
        consumers.push_back(scope->number);
      }
    }
  }
  return result;
}

double NodeBuilder::bytes_per_token(size_t record, size_t index) const {
  const meta::Operand& operand = surveys_.decode.records[record].operands[index];
  for (const CacheRegion& region : surveys_.decode.caches) {
    if (region.data == operand.data) {
      return static_cast<double>(region.bytes) / static_cast<double>(region.positions);
    }
  }
  const SurveySize& size = surveys_.decode.size;
  return static_cast<double>(operand.shape.elements() * size_of(operand.dtype)) /
         static_cast<double>(size.batch * size.tokens);
}

}  // namespace cachalot
