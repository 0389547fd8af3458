#include "checkpoint/shard_index.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "checkpoint/json_text.h"

namespace cachalot {
namespace {

// Event by event, like the header: a released index has a hundred thousand lines.
class IndexEvents {
 public:
  ShardIndex index;
  std::string problem;
  bool has_map = false;

  bool key(std::string& name) {
    if (depth_ == 1) {
      section_ = name;
      if (name == "weight_map" && has_map) return refuse("weight_map is given twice");
      has_map = has_map || name == "weight_map";
    }
    key_ = name;
    return true;
  }
  bool start_object(size_t) {
    if (in_map()) return refuse(key_ + ": expected a file name, found an object");
    ++depth_;
    return true;
  }
  bool end_object() {
    --depth_;
    return true;
  }
  bool start_array(size_t) {
    if (depth_ == 0 || in_map() || at_map()) return refuse("expected an object, found a list");
    ++depth_;
    return true;
  }
  bool end_array() {
    --depth_;
    return true;
  }
  bool string(std::string& value) {
    if (in_map()) {
      index.locations.emplace_back(key_, value);
      return true;
    }
    return scalar();
  }
  bool number_unsigned(uint64_t value) {
    if (at_total()) {
      if (value > uint64_t{std::numeric_limits<int64_t>::max()}) {
        return refuse("metadata.total_size: expected less than 2^63");
      }
      index.total_size = static_cast<int64_t>(value);
      return true;
    }
    return scalar();
  }
  bool number_integer(int64_t) { return scalar(); }
  bool number_float(double, const std::string&) { return scalar(); }
  bool boolean(bool) { return scalar(); }
  bool null() { return scalar(); }
  bool binary(std::vector<uint8_t>&) { return scalar(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    return refuse(fmt::format("not valid JSON at byte {}: {}", position, json_problem(error)));
  }

 private:
  bool in_map() const { return depth_ == 2 && section_ == "weight_map"; }
  bool at_map() const { return depth_ == 1 && section_ == "weight_map"; }
  bool at_total() const { return depth_ == 2 && section_ == "metadata" && key_ == "total_size"; }
  // A value nobody reads, unless it stands where something is expected.
  bool scalar() {
    if (depth_ == 0 || at_map()) return refuse("expected an object with weight_map");
    if (in_map()) return refuse(key_ + ": expected a file name");
    if (at_total()) return refuse("metadata.total_size: expected an integer of at least 0");
    return true;
  }
  bool refuse(std::string what) {
    problem = std::move(what);
    return false;
  }

  int64_t depth_ = 0;
  std::string section_;
  std::string key_;
};

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view text) {
  IndexEvents events;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &events)) {
    return fail("{}", events.problem);
  }
  if (!events.has_map) return fail("expected a weight_map, found none");
  std::unordered_set<std::string_view> names;
  for (const auto& [tensor, file] : events.index.locations) {
    if (!names.insert(tensor).second) return fail("tensor {}: indexed twice", tensor);
    if (file.empty() || file.find('/') != file.npos || !file.ends_with(".safetensors")) {
      return fail(
          "tensor {}: expected the name of a .safetensors file in this folder, found \"{}\"",
          tensor, file);
    }
  }
  return std::move(events.index);
}

}  // namespace cachalot
