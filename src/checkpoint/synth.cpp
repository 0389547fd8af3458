#include "checkpoint/synth.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "checkpoint/synth_fill.h"
#include "checkpoint/tensor_table.h"

namespace cachalot {
namespace {

namespace fs = std::filesystem;

// Large enough that a write call costs nothing, small enough for every thread to hold one.
constexpr int64_t kChunkBytes = 8 << 20;

// Part of one tensor, to be written in one piece.
struct Piece {
  size_t tensor;  // in the table
  int64_t begin;  // bytes into the tensor, a multiple of 8
  int64_t bytes;
};

// Consecutive pieces of one file.
struct Chunk {
  int64_t file_offset = 0;
  int64_t bytes = 0;
  std::vector<Piece> pieces;
};

struct Shard {
  std::string name;
  std::string header;  // length, JSON and padding: everything before the data
  std::vector<Chunk> chunks;
};

std::string header_of(std::span<const TensorSpec> tensors) {
  nlohmann::ordered_json entries;
  int64_t offset = 0;
  for (const TensorSpec& spec : tensors) {
    std::vector<int64_t> shape;
    for (int i = 0; i < spec.shape.rank(); ++i) shape.push_back(spec.shape[i]);
    entries[spec.name] = {{"dtype", name_of(spec.dtype)},
                          {"shape", shape},
                          {"data_offsets", {offset, offset + spec.bytes()}}};
    offset += spec.bytes();
  }
  std::string text = entries.dump();
  // The data starts on a cache line of the mapping.
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text;
}

// Big tensors split, small ones together: chunks of about the same size.
std::vector<Chunk> chunks_of(std::span<const TensorSpec> tensors, size_t first, int64_t offset) {
  std::vector<Chunk> chunks(1);
  chunks.back().file_offset = offset;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (int64_t begin = 0; begin < tensors[i].bytes();) {
      const int64_t bytes = std::min(kChunkBytes, tensors[i].bytes() - begin);
      if (chunks.back().bytes + bytes > kChunkBytes) {
        const int64_t end = chunks.back().file_offset + chunks.back().bytes;
        chunks.emplace_back().file_offset = end;
      }
      chunks.back().pieces.push_back({first + i, begin, bytes});
      chunks.back().bytes += bytes;
      begin += bytes;
    }
  }
  return chunks;
}

std::vector<Shard> shards_of(const std::vector<TensorSpec>& table) {
  std::vector<Shard> shards;
  const int64_t count = table.back().shard + 1;
  for (size_t first = 0; first < table.size();) {
    size_t last = first;
    while (last < table.size() && table[last].shard == table[first].shard) ++last;
    const auto tensors = std::span(table).subspan(first, last - first);
    Shard& shard = shards.emplace_back();
    shard.name = fmt::format("model-{:05}-of-{:05}.safetensors", table[first].shard + 1, count);
    shard.header = header_of(tensors);
    shard.chunks = chunks_of(tensors, first, static_cast<int64_t>(shard.header.size()));
    first = last;
  }
  return shards;
}

class OutputFile {
 public:
  explicit OutputFile(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {}
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status write(std::span<const std::byte> data, int64_t offset) const {
    while (!data.empty()) {
      const ssize_t wrote = ::pwrite(fd_, data.data(), data.size(), offset);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) {
        return fail("{}: cannot write {} bytes at {}: {}", path_.string(), data.size(), offset,
                    std::strerror(wrote < 0 ? errno : ENOSPC));
      }
      data = data.subspan(static_cast<size_t>(wrote));
      offset += wrote;
    }
    return {};
  }

 private:
  fs::path path_;
  int fd_;
};

class CheckpointWriter {
 public:
  CheckpointWriter(const ModelConfig& config, const fs::path& folder, const SynthOptions& options)
      : folder_(folder),
        options_(options),
        table_(tensor_table(config)),
        shards_(shards_of(table_)) {
    fills_.reserve(table_.size());
    for (size_t i = 0; i < table_.size(); ++i) {
      fills_.emplace_back(config, table_[i], options.seed, static_cast<int64_t>(i));
      total_ += table_[i].bytes();
    }
  }

  int64_t total_bytes() const { return total_; }

  Status write() {
    for (const Shard& shard : shards_) CACHALOT_OK(write_shard(shard));
    return write_text("model.safetensors.index.json", index_text());
  }

  Status write_text(const std::string& name, const std::string& text) const {
    return OutputFile(folder_ / name).write(std::as_bytes(std::span(text)), 0);
  }

 private:
  Status write_shard(const Shard& shard) {
    const OutputFile file(folder_ / shard.name);
    CACHALOT_OK(file.write(std::as_bytes(std::span(shard.header)), 0));
    std::atomic<size_t> next = 0;
    Status status;
    const auto work = [&] {
      std::vector<std::byte> buffer(static_cast<size_t>(kChunkBytes));
      for (size_t i = next++; i < shard.chunks.size(); i = next++) {
        Status wrote = write_chunk(file, shard.chunks[i], buffer);
        const std::lock_guard lock(mutex_);
        if (wrote && options_.cancelled && options_.cancelled()) wrote = fail("interrupted");
        if (!wrote && status) status = wrote;
        if (!status) return;
        written_ += shard.chunks[i].bytes;
        if (options_.progress) options_.progress(written_, total_);
      }
    };
    const int cores = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
    const int wanted = options_.threads > 0 ? options_.threads : cores;
    const int count = std::min(wanted, static_cast<int>(shard.chunks.size()));
    std::vector<std::thread> threads;
    for (int i = 1; i < count; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    return status;
  }

  Status write_chunk(const OutputFile& file, const Chunk& chunk,
                     std::vector<std::byte>& buffer) const {
    const auto data = std::span(buffer).first(static_cast<size_t>(chunk.bytes));
    size_t done = 0;
    for (const Piece& piece : chunk.pieces) {
      const auto bytes = static_cast<size_t>(piece.bytes);
      fills_[piece.tensor].write(piece.begin, data.subspan(done, bytes));
      done += bytes;
    }
    return file.write(data, chunk.file_offset);
  }

  std::string index_text() const {
    nlohmann::ordered_json index;
    index["metadata"]["total_size"] = total_;
    auto& map = index["weight_map"];
    size_t shard = 0;
    for (size_t i = 0; i < table_.size(); ++i) {
      if (i > 0 && table_[i].shard != table_[i - 1].shard) ++shard;
      map[table_[i].name] = shards_[shard].name;
    }
    return index.dump(1) + "\n";
  }

  fs::path folder_;
  const SynthOptions& options_;
  std::vector<TensorSpec> table_;
  std::vector<Shard> shards_;
  std::vector<TensorFill> fills_;
  int64_t total_ = 0;
  std::mutex mutex_;
  int64_t written_ = 0;
};

Status check_space(const fs::path& folder, int64_t needed) {
  std::error_code error;
  const auto space = fs::space(folder, error);
  if (error) return fail("{}: {}", folder.string(), error.message());
  if (space.available >= static_cast<uintmax_t>(needed)) return {};
  return fail("{}: expected {} bytes of free space, found {}; keep fewer --layers or --experts",
              folder.string(), needed, space.available);
}

Status copy_tokenizer(const fs::path& from, const fs::path& to) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    std::error_code error;
    if (!fs::exists(from / name, error)) continue;
    fs::copy_file(from / name, to / name, error);
    if (error) return fail("{}: cannot copy: {}", (from / name).string(), error.message());
  }
  return {};
}

Status write_into(const fs::path& folder, const ModelConfig& config,
                  const fs::path& tokenizer_folder, const SynthOptions& options) {
  CheckpointWriter writer(config, folder, options);
  // Headers and the index are small beside the tensors; a hundredth covers them.
  CACHALOT_OK(check_space(folder, writer.total_bytes() + writer.total_bytes() / 100));
  CACHALOT_OK(writer.write_text("config.json", nested_config_text(config)));
  CACHALOT_OK(writer.write_text("inference_config.json", flat_config_text(config)));
  CACHALOT_OK(copy_tokenizer(tokenizer_folder, folder));
  return writer.write();
}

}  // namespace

Status write_random_checkpoint(const ModelConfig& config, const fs::path& out,
                               const fs::path& tokenizer_folder, const SynthOptions& options) {
  std::error_code error;
  const fs::path target = fs::absolute(out).lexically_normal();
  const fs::path name = target.has_filename() ? target : target.parent_path();
  if (fs::exists(name, error)) {
    return fail("{}: exists already; name a new folder or remove this one", out.string());
  }
  fs::path partial = name;
  partial += ".partial";
  fs::create_directories(name.parent_path(), error);
  if (!error && !fs::create_directory(partial, error) && !error) {
    return fail("{}: left over from a run that did not end; remove it first", partial.string());
  }
  if (error) return fail("{}: cannot create: {}", partial.string(), error.message());
  Status status = write_into(partial, config, tokenizer_folder, options);
  if (status) {
    fs::rename(partial, name, error);
    if (error) status = fail("{}: cannot rename: {}", partial.string(), error.message());
  }
  if (!status) fs::remove_all(partial, error);
  return status;
}

}  // namespace cachalot
