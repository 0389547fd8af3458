#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "inspect/trace.h"

namespace cachalot {

Result<TensorMap> read_tensor_map(const std::string& path) {
  CACHALOT_TRY(const MappedFile file, MappedFile::open(path));
  auto header = read_safetensors_header(file.bytes());
  if (!header) return fail(header.error().in(path));
  TensorMap tensors;
  for (const SafetensorsEntry& entry : header->entries) {
    if (entry.dtype != DType::f32 && entry.dtype != DType::i32 && entry.dtype != DType::i64) {
      return fail("{}: {}: expected F32, I32 or I64 in a trace, found {}", path, entry.name,
                  name_of(entry.dtype));
    }
    TraceTensor& tensor = tensors[entry.name];
    tensor.dtype = entry.dtype;
    for (int i = 0; i < entry.shape.rank(); ++i) tensor.shape.push_back(entry.shape[i]);
    const auto bytes = file.bytes().subspan(static_cast<size_t>(header->data_start + entry.begin),
                                            static_cast<size_t>(entry.end - entry.begin));
    tensor.bytes.assign(bytes.begin(), bytes.end());
  }
  return tensors;
}

Status write_tensor_map(const std::string& path, const TensorMap& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", name_of(tensor.dtype)},
                    {"shape", tensor.shape},
                    {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  const uint64_t length = text.size();
  char prefix[8];
  for (int i = 0; i < 8; ++i) prefix[i] = static_cast<char>(length >> (8 * i));
  out.write(prefix, 8);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const auto& [name, tensor] : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.bytes.data()),
              static_cast<std::streamsize>(tensor.bytes.size()));
  }
  out.flush();
  if (!out) return fail("{}: cannot write: {}", path, std::strerror(errno));
  return {};
}

}  // namespace cachalot
