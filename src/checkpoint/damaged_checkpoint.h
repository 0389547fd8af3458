// A small checkpoint for tests to damage: copied to a folder of the test's own, with its shards
// taken apart into headers and data and put together again.
#pragma once

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/test_folder.h"

namespace cachalot {

class DamagedCheckpoint {
 public:
  // tiny-a has three shards and vision, tiny-b one shard and neither candidates nor vision.
  explicit DamagedCheckpoint(const char* name = "tiny-a") {
    namespace fs = std::filesystem;
    for (const auto& file :
         fs::directory_iterator(fs::path(CACHALOT_SOURCE_DIR) / "tests/data" / name)) {
      const auto target = path(file.path().filename().string());
      fs::copy(file.path(), target);
      fs::permissions(target, fs::perms::owner_write, fs::perm_options::add);
    }
  }

  std::filesystem::path path(const std::string& name = "") const { return folder_.path() / name; }
  std::string read(const std::string& name) const { return *read_text_file(path(name)); }
  void write(const std::string& name, std::string_view content) const {
    folder_.write(name, content);
  }
  void remove(const std::string& name) const { std::filesystem::remove(path(name)); }
  void truncate(const std::string& name, int64_t bytes) const {
    std::filesystem::resize_file(path(name), static_cast<uintmax_t>(bytes));
  }
  int64_t size(const std::string& name) const {
    return static_cast<int64_t>(std::filesystem::file_size(path(name)));
  }

  struct Shard {
    nlohmann::ordered_json header;
    std::string data;
  };
  Shard read_shard(const std::string& name) const {
    const std::string file = read(name);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    return {nlohmann::ordered_json::parse(file.substr(8, length)), file.substr(8 + length)};
  }
  void write_shard(const std::string& name, const Shard& shard) const {
    write_shard(name, shard.header.dump(), shard.data);
  }
  void write_shard(const std::string& name, const std::string& header,
                   const std::string& data) const {
    const uint64_t length = header.size();
    std::string file(reinterpret_cast<const char*>(&length), 8);
    write(name, file + header + data);
  }
  nlohmann::json index() const { return nlohmann::json::parse(read(kIndex)); }
  void write_index(const nlohmann::json& index) const { write(kIndex, index.dump()); }

  // Replaces a tensor, whatever its new size; offsets and the index's total follow.
  void replace(const std::string& shard_name, const std::string& tensor, const std::string& dtype,
               const std::vector<int64_t>& shape, const std::string& bytes) const {
    Shard shard = read_shard(shard_name);
    const std::vector<size_t> old = shard.header[tensor]["data_offsets"];
    const int64_t growth =
        static_cast<int64_t>(bytes.size()) - static_cast<int64_t>(old[1] - old[0]);
    shard.data.replace(old[0], old[1] - old[0], bytes);
    for (auto& item : shard.header.items()) {
      if (item.key() == "__metadata__") continue;
      auto& offsets = item.value()["data_offsets"];
      if (offsets[0].get<size_t>() >= old[1]) offsets[0] = offsets[0].get<int64_t>() + growth;
      if (offsets[1].get<size_t>() >= old[1]) offsets[1] = offsets[1].get<int64_t>() + growth;
    }
    shard.header[tensor]["dtype"] = dtype;
    shard.header[tensor]["shape"] = shape;
    write_shard(shard_name, shard);
    auto changed = index();
    changed["metadata"]["total_size"] = changed["metadata"]["total_size"].get<int64_t>() + growth;
    write_index(changed);
  }

  Result<Checkpoint> open(CheckpointOptions options = {}) const {
    return Checkpoint::open(folder_.path(), options);
  }
  // The message opening ends in; "opened" if it does not fail.
  std::string error() const {
    const auto opened = open();
    return opened ? "opened" : opened.error().message;
  }

  static constexpr const char* kIndex = "model.safetensors.index.json";

 private:
  TestFolder folder_;
};

}  // namespace cachalot
