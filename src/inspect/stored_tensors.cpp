#include "inspect/stored_tensors.h"

#include <set>

#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/tensor_names.h"

namespace cachalot {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";

void read_headers(const std::filesystem::path& folder, const std::string& name,
                  StoredTensors& result) {
  const auto file = MappedFile::open(folder / name);
  if (!file) {
    result.mismatches.push_back({name, "a shard", file.error().message});
    return;
  }
  const auto header = read_safetensors_header(file->bytes());
  if (!header) {
    result.mismatches.push_back({name, "a shard with a whole header", header.error().message});
    return;
  }
  for (const SafetensorsEntry& entry : header->entries) {
    const auto canonical = canonical_name(entry.name);
    if (!canonical) continue;  // a copy nobody reads
    result.tensors.push_back({*canonical, entry.dtype, entry.shape, name,
                              header->data_start + entry.begin, header->data_start + entry.end});
  }
}

void compare_total(const ShardIndex& index, StoredTensors& result) {
  int64_t bytes = 0;
  for (const StoredTensor& tensor : result.tensors) bytes += tensor.end - tensor.begin;
  if (index.total_size && *index.total_size != bytes) {
    result.mismatches.push_back({fmt::format("{}: metadata.total_size", kIndexName),
                                 fmt::format("{} bytes, all tensors of the shards", bytes),
                                 fmt::format("{}", *index.total_size)});
  }
}

void compare_places(const ShardIndex& index, StoredTensors& result) {
  std::set<std::pair<std::string, std::string>> places;
  for (const StoredTensor& tensor : result.tensors) places.emplace(tensor.name, tensor.file);
  for (const auto& [tensor, file] : index.locations) {
    const auto name = canonical_name(tensor);
    if (name && !places.contains({*name, file})) {
      result.mismatches.push_back(
          {tensor, fmt::format("in {}, says {}", file, kIndexName), "not in that file"});
    }
  }
}

}  // namespace

Result<StoredTensors> stored_tensors(const std::filesystem::path& folder) {
  StoredTensors result;
  std::set<std::string> names;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(folder, error)) {
    if (file.path().extension() == ".safetensors") names.insert(file.path().filename().string());
  }
  if (error) return fail("{}: cannot list: {}", folder.string(), error.message());
  const auto index_path = folder / kIndexName;
  std::error_code ignored;
  const bool has_index = std::filesystem::exists(index_path, ignored);
  result.any_files = !names.empty() || has_index;
  if (!result.any_files) return result;
  ShardIndex index;
  if (has_index) {
    CACHALOT_TRY(const std::string text, read_text_file(index_path));
    auto parsed = parse_shard_index(text);
    if (!parsed) return fail(parsed.error().in(index_path.string()));
    index = std::move(*parsed);
    for (const auto& [tensor, file] : index.locations) names.insert(file);
  }
  for (const std::string& name : names) read_headers(folder, name, result);
  if (has_index) {
    compare_places(index, result);
    compare_total(index, result);
  }
  return result;
}

}  // namespace cachalot
