// Reading config.json and the flat inference file into a ModelConfig.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/mapped_file.h"
#include "checkpoint/config_fields.h"
#include "checkpoint/json_text.h"

namespace cachalot {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

Status read_value(const json& value, int64_t& out) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{INT64_MAX});
  if (!fits) return fail("expected an integer, found {}", shown(value));
  out = value.get<int64_t>();
  return {};
}

Status read_value(const json& value, double& out) {
  if (!value.is_number()) return fail("expected a number, found {}", shown(value));
  out = value.get<double>();
  if (!std::isfinite(out)) return fail("expected a finite number, found {}", shown(value));
  return {};
}

Status read_value(const json& value, float& out) {
  double wide = 0;
  CACHALOT_OK(read_value(value, wide));
  out = static_cast<float>(wide);
  if (!std::isfinite(out) || (out == 0) != (wide == 0)) {
    return fail("expected a number that float32 can hold, found {}", shown(value));
  }
  return {};
}

Status read_value(const json& value, std::optional<double>& out) {
  out.reset();
  if (value.is_null()) return {};
  double number = 0;
  CACHALOT_OK(read_value(value, number));
  out = number;
  return {};
}

Status read_value(const json& value, std::vector<int64_t>& out) {
  if (!value.is_array()) return fail("expected a list of integers, found {}", shown(value));
  out.assign(value.size(), 0);
  for (size_t i = 0; i < out.size(); ++i) {
    if (auto status = read_value(value[i], out[i]); !status) {
      return fail("entry {}: {}", i, status.error().message);
    }
  }
  return {};
}

// One file's JSON, looked up by section and key; remembers which keys were asked for.
class Document {
 public:
  static Result<Document> parse(std::string_view text, std::string_view name) {
    auto parsed = parse_json_strictly(text);
    if (!parsed) return fail(parsed.error().in(name));
    if (!parsed->is_object()) return fail("{}: expected a JSON object", name);
    Document document;
    document.name_ = name;
    document.root_ = std::move(*parsed);
    document.nested_ = document.root_.contains("text_config");
    for (const char* section : {"text_config", "rope_scaling", "vision_config"}) {
      const json* found = document.section(section);
      if (found && !found->is_object()) {
        return fail("{}: {}: expected an object, found {}", name, section, shown(*found));
      }
    }
    return document;
  }

  bool nested() const { return nested_; }
  const std::string& name() const { return name_; }

  // The named part of a nested file (an absent or null one: nullptr); "" is the file itself.
  const json* section(std::string_view name) const {
    if (name.empty()) return &root_;
    const json* parent = name == "rope_scaling" ? section("text_config") : &root_;
    if (!parent || !parent->is_object()) return nullptr;
    const auto found = parent->find(std::string(name));
    return found == parent->end() || found->is_null() ? nullptr : &*found;
  }

  const json* find(std::string_view section_name, std::string_view key) {
    if (key.empty()) return nullptr;
    seen_[std::string(section_name)].insert(std::string(key));
    const json* parent = section(section_name);
    if (!parent || !parent->is_object()) return nullptr;
    const auto found = parent->find(std::string(key));
    return found == parent->end() ? nullptr : &*found;
  }

  std::string path_of(std::string_view section_name, std::string_view key) const {
    if (section_name.empty()) return std::string(key);
    return fmt::format("{}{}.{}", section_name == "rope_scaling" ? "text_config." : "",
                       section_name, key);
  }

  // An error about one key.
  Error error(std::string_view section_name, std::string_view key, const Error& what) const {
    return what.in(path_of(section_name, key)).in(name_);
  }

  void list_unknown_keys(std::vector<std::string>& out) const {
    for (const auto& [section_name, seen] : seen_) {
      const json* parent = section(section_name);
      if (!parent || !parent->is_object()) continue;
      for (const auto& item : parent->items()) {
        if (!seen.contains(item.key())) {
          out.push_back(fmt::format("{}: {}", name_, path_of(section_name, item.key())));
        }
      }
    }
  }

 private:
  std::string name_;
  json root_;
  bool nested_ = false;
  std::map<std::string, std::set<std::string>> seen_;
};

// A key whose value the program can only read one way (spec: checkpoint, 7.5).
struct FixedValue {
  const char* section;
  const char* key;
  json expected;
  bool needed;
};

Status check_fixed(Document& document, const FixedValue& fixed) {
  const json* value = document.find(fixed.section, fixed.key);
  if (!value && !fixed.needed) return {};
  if (value && *value == fixed.expected) return {};
  const auto wrong = fail("expected {}, found {}", shown(fixed.expected),
                          value ? shown(*value) : std::string("nothing"));
  return fail(document.error(fixed.section, fixed.key, wrong.value()));
}

Status check_fixed_values(Document& document) {
  if (!document.nested()) {
    for (const char* key : {"max_batch_size", "max_seq_len"}) document.find("", key);
    CACHALOT_OK(check_fixed(document, {"", "score_func", "sqrtsoftplus", true}));
    CACHALOT_OK(check_fixed(document, {"", "dtype", "fp8", false}));
    return check_fixed(document, {"", "expert_dtype", "fp4", false});
  }
  for (const char* key : {"text_config", "vision_config", "quantization_config", "torch_dtype",
                          "transformers_version"}) {
    document.find("", key);
  }
  document.find("text_config", "rope_scaling");
  document.find("vision_config", "model_type");
  const json* original = document.find("rope_scaling", "original_max_position_embeddings");
  const bool yarn = !original || *original != 0;
  const FixedValue fixed_values[] = {
      {"", "model_type", "deepseek_v41", false},
      {"", "architectures", json::array({"DeepseekV41ForCausalLM"}), false},
      {"", "dtype", "bfloat16", false},
      {"text_config", "model_type", "deepseek_v41_text", false},
      {"text_config", "dtype", "bfloat16", false},
      {"text_config", "hidden_act", "silu", false},
      {"text_config", "attention_bias", false, false},
      {"text_config", "tie_word_embeddings", false, false},
      {"text_config", "num_key_value_heads", 1, false},
      {"text_config", "scoring_func", "sqrtsoftplus", true},
      {"text_config", "topk_method", "noaux_tc", false},
      {"text_config", "norm_topk_prob", true, false},
      {"quantization_config", "quant_method", "fp8", true},
      {"quantization_config", "activation_scheme", "dynamic", false},
      {"quantization_config", "weight_block_size", json::array({32, 32}), true},
      {"quantization_config", "scale_fmt", "ue8m0", true},
      {"quantization_config", "expert_dtype", "fp4", true},
  };
  for (const FixedValue& fixed : fixed_values) CACHALOT_OK(check_fixed(document, fixed));
  if (yarn) return check_fixed(document, {"rope_scaling", "rope_type", "yarn", true});
  document.find("rope_scaling", "rope_type");
  return {};
}

const char* name_of(ConfigSection section) {
  switch (section) {
    case ConfigSection::text:
      return "text_config";
    case ConfigSection::rope_scaling:
      return "rope_scaling";
    case ConfigSection::vision:
      return "vision_config";
    default:
      return "";
  }
}

bool is_needed(Needed needed, const ModelConfig& config) {
  switch (needed) {
    case Needed::always:
      return true;
    case Needed::with_candidates:
      return config.has_candidates();
    case Needed::with_engram:
      return !config.engram_layer_ids.empty();
    case Needed::with_drafts:
      return config.has_drafts();
    case Needed::with_vision:
      return config.has_vision();
    default:
      return false;
  }
}

// Fills one member after another from whichever documents there are.
struct FieldReader {
  ModelConfig& config;
  Document* nested;  // nullptr: not there
  Document* flat;
  Status status;

  template <class T>
  void operator()(T& member, std::string_view flat_key, ConfigSection section,
                  std::string_view nested_key, Needed needed) {
    if (status) status = read(member, flat_key, name_of(section), nested_key, needed);
  }

  template <class T>
  Status read(T& member, std::string_view flat_key, std::string_view section,
              std::string_view nested_key, Needed needed) {
    const json* in_nested = nested ? nested->find(section, nested_key) : nullptr;
    const json* in_flat = flat ? flat->find("", flat_key) : nullptr;
    T other = member;
    if (in_nested) {
      if (auto read = read_value(*in_nested, member); !read) {
        return fail(nested->error(section, nested_key, read.error()));
      }
    }
    if (in_flat) {
      if (auto read = read_value(*in_flat, other); !read) {
        return fail(flat->error("", flat_key, read.error()));
      }
      if (in_nested && other != member) {
        return fail("{}: {} is {}, but {}: {} is {}; the files must agree", nested->name(),
                    nested->path_of(section, nested_key), shown(*in_nested), flat->name(), flat_key,
                    shown(*in_flat));
      }
      member = std::move(other);
    }
    if (in_nested || in_flat || !is_needed(needed, config)) return {};
    if (nested)
      return fail("{}: {}: missing", nested->name(), nested->path_of(section, nested_key));
    return fail("{}: {}: missing", flat->name(), flat_key);
  }
};

Result<ModelConfig> read_config(Document* nested, Document* flat) {
  for (Document* document : {nested, flat}) {
    if (document) CACHALOT_OK(check_fixed_values(*document));
  }
  ModelConfig config;
  FieldReader reader{config, nested, flat, {}};
  visit_fields(config, reader);
  CACHALOT_OK(reader.status);
  // The flat form calls the longest context what a run may use of it.
  if (const json* length = flat && !nested ? flat->find("", "max_seq_len") : nullptr) {
    if (auto read = read_value(*length, config.max_position_embeddings); !read) {
      return fail(flat->error("", "max_seq_len", read.error()));
    }
  }
  // The reference reads 0 as "like the backbone".
  if (config.has_drafts()) {
    if (config.dspark_n_routed_experts == 0) {
      config.dspark_n_routed_experts = config.n_routed_experts;
    }
    if (config.dspark_n_activated_experts == 0) {
      config.dspark_n_activated_experts = config.n_activated_experts;
    }
  }
  for (Document* document : {nested, flat}) {
    if (document) document->list_unknown_keys(config.unknown_keys);
  }
  if (auto valid = validate(config); !valid) {
    return fail(valid.error().in(nested ? nested->name() : flat->name()));
  }
  return config;
}

Result<Document> read_document(const std::filesystem::path& path, bool nested) {
  CACHALOT_TRY(const std::string text, read_text_file(path));
  CACHALOT_TRY(Document document, Document::parse(text, path.string()));
  if (document.nested() != nested) {
    return fail("{}: expected {}", path.string(),
                nested ? "a text_config object" : "the flat inference keys, found text_config");
  }
  return document;
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view text, std::string_view name) {
  CACHALOT_TRY(Document document, Document::parse(text, name));
  return document.nested() ? read_config(&document, nullptr) : read_config(nullptr, &document);
}

Result<ModelConfig> load_config(const std::filesystem::path& folder) {
  std::optional<Document> nested, flat;
  CACHALOT_TRY(const bool has_nested, file_exists(folder / "config.json"));
  if (has_nested) {
    CACHALOT_TRY(nested, read_document(folder / "config.json", true));
  }
  for (const char* name : {"inference_config.json", "inference/config.json"}) {
    CACHALOT_TRY(const bool has_flat, file_exists(folder / name));
    if (has_flat && !flat) {
      CACHALOT_TRY(flat, read_document(folder / name, false));
    }
  }
  if (!nested && !flat) {
    return fail("{}: expected config.json, inference_config.json or inference/config.json",
                folder.string());
  }
  return read_config(nested ? &*nested : nullptr, flat ? &*flat : nullptr);
}

}  // namespace cachalot
