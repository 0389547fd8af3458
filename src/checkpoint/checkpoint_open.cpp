// Opening a checkpoint: every shard mapped, every promise of spec/checkpoint section 7 checked.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/tensor_names.h"
#include "checkpoint/tensor_table.h"

namespace cachalot {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";

// "3 tensors (a, b, c)"; a list too long for a message ends in how many more there are.
std::string counted(const std::vector<std::string>& names, std::string_view what) {
  constexpr size_t kShown = 20;
  if (names.empty()) return "none";
  std::string text = fmt::format("{} {}{} (", names.size(), what, names.size() == 1 ? "" : "s");
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += (i ? ", " : "") + names[i];
  }
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text + ")";
}

// model-00001-of-00048.safetensors
bool is_shard_name(std::string_view name) {
  return name.starts_with("model-") && name.find("-of-") != name.npos;
}

bool is_scale_of(const TensorSpec& spec, DType stored) {
  return spec.dtype == DType::f8_e8m0 && (stored == DType::u8 || stored == DType::f32);
}

// One scale per square tile; the scales of experts and engram tables run along rows.
bool is_dense_scale(std::string_view name) {
  return name.find(".experts.") == name.npos && name.find(".engram.embed.") == name.npos;
}

Status check_scales(const TensorEntry& entry) {
  if (entry.dtype == DType::f32) {
    const auto values = entry.view<float>();
    for (int64_t i = 0; i < values.elements(); ++i) {
      if (!std::isfinite(values.data[i])) {
        return fail("{}: tensor {}: expected finite scales, found {} at element {}", entry.file,
                    entry.name, values.data[i], i);
      }
    }
    return {};
  }
  const void* nan = std::memchr(entry.bytes.data(), 0xff, entry.bytes.size());
  if (!nan) return {};
  return fail("{}: tensor {}: expected E8M0 scales of 0 to 254, found 255 (NaN) at element {}",
              entry.file, entry.name, static_cast<const std::byte*>(nan) - entry.bytes.data());
}

}  // namespace

// The steps of Checkpoint::open, in their order, over the state they share.
class CheckpointOpener {
 public:
  explicit CheckpointOpener(std::filesystem::path folder) { result_.folder_ = std::move(folder); }

  Result<Checkpoint> open(CheckpointOptions options) {
    CACHALOT_TRY(result_.config_, load_config(result_.folder_));
    for (const std::string& key : result_.config_.unknown_keys) {
      result_.warnings_.push_back(key + ": unknown key, ignored");
    }
    CACHALOT_OK(read_index());
    CACHALOT_OK(list_files());
    CACHALOT_OK(map_files());
    CACHALOT_OK(compare_with_index());
    CACHALOT_OK(bind());
    CACHALOT_OK(check_all_scales(options));
    return std::move(result_);
  }

 private:
  struct Stored {
    SafetensorsEntry entry;
    size_t file;
    int64_t data_start;
  };

  Status read_index() {
    const auto path = result_.folder_ / kIndexName;
    CACHALOT_TRY(has_index_, file_exists(path));
    if (!has_index_) return {};
    CACHALOT_TRY(const std::string text, read_text_file(path));
    auto index = parse_shard_index(text);
    if (!index) return fail(index.error().in(path.string()));
    index_ = std::move(*index);
    return {};
  }

  // The files to open: those the index names, or without one every shard of the folder.
  Status list_files() {
    std::set<std::string> names, stray;
    for (const auto& [tensor, file] : index_.locations) names.insert(file);
    std::error_code error;
    for (const auto& file : std::filesystem::directory_iterator(result_.folder_, error)) {
      const std::string name = file.path().filename().string();
      if (file.path().extension() != ".safetensors") continue;
      // A shard the index does not know is opened too, and found to hold unindexed tensors.
      if (!has_index_ || is_shard_name(name)) {
        names.insert(name);
      } else if (!names.contains(name)) {
        stray.insert(name);
      }
    }
    if (error) return fail("{}: cannot list: {}", result_.folder_.string(), error.message());
    for (const std::string& name : stray) {
      result_.warnings_.push_back((result_.folder_ / name).string() +
                                  ": not in the index, ignored");
    }
    files_.assign(names.begin(), names.end());
    if (files_.empty()) {
      return fail("{}: expected shards (*.safetensors), found none", result_.folder_.string());
    }
    return check_files_exist();
  }

  Status check_files_exist() const {
    std::vector<std::string> missing;
    for (const std::string& name : files_) {
      CACHALOT_TRY(const bool exists, file_exists(result_.folder_ / name));
      if (!exists) missing.push_back(name);
    }
    if (missing.empty()) return {};
    std::vector<std::string> tensors;
    for (const auto& [tensor, file] : index_.locations) {
      if (std::binary_search(missing.begin(), missing.end(), file)) tensors.push_back(tensor);
    }
    return fail("{}: expected {} shards; missing {}, with {}", result_.folder_.string(),
                files_.size(), counted(missing, "file"), counted(tensors, "tensor"));
  }

  // A name of the index that lies in this file, for a file too broken to name its own tensors.
  std::string first_indexed_in(const std::string& file) const {
    for (const auto& [tensor, location] : index_.locations) {
      if (location == file) return fmt::format("; first tensor expected in it: {}", tensor);
    }
    return "";
  }

  Status map_files() {
    for (const std::string& name : files_) {
      const auto path = result_.folder_ / name;
      CACHALOT_TRY(MappedFile file, MappedFile::open(path));
      auto header = read_safetensors_header(file.bytes());
      if (!header) {
        const bool named = header.error().message.find("tensor ") != std::string::npos;
        return fail("{}: {}{}", path.string(), header.error().message,
                    named ? "" : first_indexed_in(name));
      }
      for (SafetensorsEntry& entry : header->entries) {
        result_.total_bytes_ += entry.end - entry.begin;
        stored_.push_back({std::move(entry), result_.files_.size(), header->data_start});
      }
      result_.files_.push_back({path, std::move(file)});
    }
    return check_names_are_unique();
  }

  Status check_names_are_unique() {
    for (size_t i = 0; i < stored_.size(); ++i) {
      const auto [other, fresh] = raw_names_.emplace(stored_[i].entry.name, i);
      if (!fresh) {
        return fail("{}: tensor {}: expected once, found in {} and {}", result_.folder_.string(),
                    stored_[i].entry.name, files_[stored_[other->second].file],
                    files_[stored_[i].file]);
      }
    }
    return {};
  }

  Status compare_with_index() const {
    if (!has_index_) return {};
    std::vector<std::string> absent, unindexed;
    std::unordered_map<std::string_view, std::string_view> indexed;
    for (const auto& [tensor, file] : index_.locations) {
      indexed.emplace(tensor, file);
      const auto found = raw_names_.find(tensor);
      if (found == raw_names_.end()) {
        absent.push_back(fmt::format("{} in {}", tensor, file));
      } else if (files_[stored_[found->second].file] != file) {
        absent.push_back(fmt::format("{} in {}: it is in {}", tensor, file,
                                     files_[stored_[found->second].file]));
      }
    }
    for (const Stored& stored : stored_) {
      if (!indexed.contains(stored.entry.name)) {
        unindexed.push_back(fmt::format("{} in {}", stored.entry.name, files_[stored.file]));
      }
    }
    const std::string where = (result_.folder_ / kIndexName).string();
    if (!absent.empty() || !unindexed.empty()) {
      return fail(
          "{}: expected the index to agree with the shards; missing from shards: {}; "
          "missing from the index: {}",
          where, counted(absent, "tensor"), counted(unindexed, "tensor"));
    }
    if (index_.total_size && *index_.total_size != result_.total_bytes_) {
      return fail("{}: metadata.total_size: expected {}, the bytes of all tensors, found {}", where,
                  result_.total_bytes_, *index_.total_size);
    }
    return {};
  }

  // Gives every tensor of the table its place, and every stored tensor its use.
  Status bind() {
    std::unordered_map<std::string, size_t> canonical;
    for (size_t i = 0; i < stored_.size(); ++i) {
      const auto name = canonical_name(stored_[i].entry.name);
      if (!name) continue;
      const auto [other, fresh] = canonical.emplace(*name, i);
      if (!fresh) {
        return fail("{}: tensor {}: expected once, found as {} and as {}", result_.folder_.string(),
                    *name, stored_[other->second].entry.name, stored_[i].entry.name);
      }
    }
    const std::vector<TensorSpec> table = tensor_table(result_.config_);
    std::vector<std::string> missing, unexpected;
    std::vector<std::pair<const TensorSpec*, size_t>> found;
    for (const TensorSpec& spec : table) {
      const auto place = canonical.find(spec.name);
      if (place == canonical.end()) {
        missing.push_back(spec.name);
      } else {
        found.emplace_back(&spec, place->second);
        canonical.erase(place);
      }
    }
    for (const auto& [name, place] : canonical) {
      unexpected.push_back(fmt::format("{} in {}", name, files_[stored_[place].file]));
    }
    std::sort(unexpected.begin(), unexpected.end());
    if (!missing.empty() || !unexpected.empty()) {
      return fail("{}: expected the {} tensors of this configuration; missing: {}; unexpected: {}",
                  result_.folder_.string(), table.size(), counted(missing, "tensor"),
                  counted(unexpected, "tensor"));
    }
    result_.tensors_.reserve(table.size());
    for (const auto& [spec, place] : found) CACHALOT_OK(add(*spec, stored_[place]));
    for (size_t i = 0; i < result_.tensors_.size(); ++i) {
      result_.by_name_.emplace(result_.tensors_[i].name, i);
    }
    return {};
  }

  Status add(const TensorSpec& spec, const Stored& stored) {
    const SafetensorsEntry& entry = stored.entry;
    const bool same_dtype = entry.dtype == spec.dtype || is_scale_of(spec, entry.dtype);
    if (!same_dtype || entry.shape != spec.shape) {
      return fail("{}: tensor {}: expected {} {}, found {} {}",
                  (result_.folder_ / files_[stored.file]).string(), entry.name, name_of(spec.dtype),
                  spec.shape.text(), name_of(entry.dtype), entry.shape.text());
    }
    auto bytes = result_.files_[stored.file].mapping.bytes().subspan(
        static_cast<size_t>(stored.data_start + entry.begin),
        static_cast<size_t>(entry.end - entry.begin));
    // No tensor of the release is misplaced; in small ones an odd number of scales can do it.
    if (reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<size_t>(size_of(entry.dtype)) !=
        0) {
      auto& copy = result_.realigned_.emplace_back(new std::byte[bytes.size()]);
      std::memcpy(copy.get(), bytes.data(), bytes.size());
      bytes = {copy.get(), bytes.size()};
    }
    result_.tensors_.push_back({spec.name, entry.dtype, spec.shape, bytes, files_[stored.file]});
    return {};
  }

  Status check_all_scales(CheckpointOptions options) const {
    const bool all = options.verify || result_.total_bytes_ < kAlwaysVerifyBytes;
    for (const TensorEntry& entry : result_.tensors_) {
      if (entry.name.ends_with(".scale") && (all || is_dense_scale(entry.name))) {
        CACHALOT_OK(check_scales(entry));
      }
    }
    return {};
  }

  Checkpoint result_;
  bool has_index_ = false;
  ShardIndex index_;
  std::vector<std::string> files_;  // ascending
  std::vector<Stored> stored_;
  std::unordered_map<std::string, size_t> raw_names_;  // name as stored -> place in stored_
};

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder,
                                    CheckpointOptions options) {
  return CheckpointOpener(folder).open(options);
}

}  // namespace cachalot
