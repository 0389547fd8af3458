// A released checkpoint folder, opened: configuration, index and every shard, mapped and validated.
//
// After a successful open every tensor of tensor_table(config) is there with its dtype and shape,
// and no other. Nothing is read but headers and scales; weights come into memory when touched.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/config.h"
#include "tensor/view.h"

namespace cachalot {

struct TensorEntry {
  std::string name;  // canonical: as tensor_table spells it
  // As stored. A scale is F8_E8M0, or U8 with the same meaning, or F32 (used as it is).
  DType dtype = DType::u8;
  Shape shape;
  std::span<const std::byte> bytes;  // aligned to the element; lives as long as the Checkpoint
  std::string file;                  // the shard's name, for messages

  // The data as elements of T, one per element of the dtype (codes and scales: uint8_t).
  template <class T>
  View<const T> view() const {
    CACHALOT_CHECK(static_cast<int64_t>(sizeof(T)) == size_of(dtype), "{} is {}", name,
                   name_of(dtype));
    return {reinterpret_cast<const T*>(bytes.data()), shape};
  }
};

struct CheckpointOptions {
  // Also read the scales of experts and engram tables, whatever their size. They are 17 GB in the
  // release: touching them at start would read a tenth of what a mapping exists to leave on disk.
  // Below kAlwaysVerifyBytes they are read in any case.
  bool verify = false;
};

inline constexpr int64_t kAlwaysVerifyBytes = int64_t{4} << 30;

// A shard as it is mapped.
struct ShardFile {
  std::filesystem::path path;
  MappedFile mapping;
};

class Checkpoint {
 public:
  // Errors (spec: checkpoint, 7): one message naming file and tensor, expected and found; missing
  // and unexpected tensors are listed together.
  static Result<Checkpoint> open(const std::filesystem::path& folder,
                                 CheckpointOptions options = {});

  // The tensors a checkpoint of this configuration holds, in table order and as it would store
  // them, at planned addresses (tensor/planned_memory.h): for planning a model without files.
  static Checkpoint planned(const ModelConfig& config);
  bool is_planned() const { return planned_; }

  const std::filesystem::path& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // in table order
  const std::vector<ShardFile>& files() const { return files_; }
  int64_t total_bytes() const { return total_bytes_; }  // of all tensors
  // What is odd but harmless: unknown configuration keys, files nobody reads.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // nullptr: no such tensor.
  const TensorEntry* find(std::string_view name) const;
  // A tensor the table promises.
  const TensorEntry& at(std::string_view name) const;

 private:
  friend class CheckpointOpener;

  std::filesystem::path folder_;
  ModelConfig config_;
  std::vector<ShardFile> files_;
  // Copies of tensors whose place in the file does not fit their element's alignment.
  std::vector<std::unique_ptr<std::byte[]>> realigned_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys point into tensors_
  int64_t total_bytes_ = 0;
  bool planned_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace cachalot
