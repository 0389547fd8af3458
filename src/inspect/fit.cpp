#include "inspect/fit.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "checkpoint/tensor_table.h"
#include "model/caches.h"
#include "tensor/cache_rows.h"

namespace cachalot {
namespace {

using Kind = FitPart::Kind;

struct Place {
  const char* part;
  Kind kind;
};

Place place_of(std::string_view name) {
  const auto holds = [&](std::string_view text) { return name.find(text) != name.npos; };
  if (name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_")) {
    return {"vision tower", Kind::vision};
  }
  if (name.starts_with("mtp.")) return {"draft head", Kind::drafts};
  if (name.starts_with("embed.")) return {"embedding", Kind::rows};
  if (holds(".engram.embed.")) return {"engram tables", Kind::rows};
  if (holds(".engram.")) return {"engram projections", Kind::dense};
  if (holds(".ffn.experts.")) return {"routed experts", Kind::experts};
  if (holds(".attn.")) return {"attention", Kind::dense};
  if (holds(".shared_experts.")) return {"shared experts", Kind::dense};
  if (name.starts_with("head.")) return {"head", Kind::dense};
  return {"routers, hyper-connections, norms", Kind::dense};
}

// Rows of a table one token looks up.
int64_t rows_looked_up(const ModelConfig& config, std::string_view name) {
  return name.starts_with("embed.") ? 1
                                    : (config.engram_max_ngram_size - 1) * config.engram_n_heads;
}

int64_t bytes_read(const ModelConfig& config, const TensorSpec& tensor, Kind kind) {
  switch (kind) {
    case Kind::dense:
    case Kind::experts:  // divided by the experts' number once added up
      return tensor.bytes();
    case Kind::rows:
      return tensor.bytes() / tensor.shape[0] * rows_looked_up(config, tensor.name);
    case Kind::drafts:
    case Kind::vision:
      return 0;
  }
  return 0;
}

int64_t cache_bytes(const ModelConfig& config, const FitRequest& request) {
  CacheOptions options;
  options.slots = request.sequences;
  options.max_context = request.context;
  return Caches::bytes_of(config, options);
}

double part_of(int64_t some, int64_t others) {
  return some > 0 ? static_cast<double>(some) / static_cast<double>(some + others) : 0;
}

}  // namespace

double HostMemory::experts_missed() const { return part_of(experts_on_disk, experts_in_memory); }

double HostMemory::rows_missed() const { return part_of(rows_on_disk, rows_in_memory); }

HostMemory divide_memory(int64_t memory, const HostPart& part) {
  HostMemory result{.resident = part.resident};
  result.least_memory = part.resident + part.chosen_of_layer;
  result.fits = result.least_memory <= memory;
  const int64_t left = std::max<int64_t>(0, memory - part.resident);
  result.experts_in_memory = std::min(left, part.experts);
  result.experts_on_disk = part.experts - result.experts_in_memory;
  result.rows_in_memory = std::min(left - result.experts_in_memory, part.rows);
  result.rows_on_disk = part.rows - result.rows_in_memory;
  return result;
}

std::vector<FitPart> checkpoint_parts(const ModelConfig& config) {
  std::vector<FitPart> parts;
  for (const TensorSpec& tensor : tensor_table(config)) {
    const Place place = place_of(tensor.name);
    auto part = std::find_if(parts.begin(), parts.end(),
                             [&](const FitPart& p) { return p.name == place.part; });
    if (part == parts.end()) {
      parts.push_back({place.part, place.kind, 0, 0});
      part = parts.end() - 1;
    }
    part->bytes += tensor.bytes();
    part->bytes_per_token += bytes_read(config, tensor, place.kind);
  }
  for (FitPart& part : parts) {
    if (part.kind == Kind::experts) {
      part.bytes_per_token =
          part.bytes_per_token / config.n_routed_experts * config.n_activated_experts;
    }
  }
  return parts;
}

int64_t cache_bytes_read(const ModelConfig& config, int64_t context) {
  int64_t bytes =
      config.n_layers * std::min(context, config.window_size) * window_row_bytes(config.head_dim);
  for (int64_t layer = 0; layer < config.n_layers; ++layer) {
    const int64_t source = config.kv_source_of(layer);
    if (source < 0) continue;
    const int64_t entries = context / config.ratio(source);
    bytes += std::min(config.index_topk, entries) * latent_row_bytes(config.head_dim);
    if (!config.is_index_source(layer)) continue;
    const bool among_candidates = config.has_candidates() && layer > config.candidate_source_layer;
    const int64_t scored =
        among_candidates
            ? std::min(entries, config.candidate_topk_blocks * config.candidate_block_size)
            : entries;
    bytes += scored * index_key_row_bytes(config.index_head_dim);
  }
  return bytes;
}

double experts_chosen(const ModelConfig& config, int64_t tokens) {
  const auto all = static_cast<double>(config.n_routed_experts);
  const double missed = 1 - static_cast<double>(config.n_activated_experts) / all;
  return all * (1 - std::pow(missed, static_cast<double>(tokens)));
}

double weight_flops(const ModelConfig& config) {
  double parameters = 0;
  for (const TensorSpec& tensor : tensor_table(config)) {
    const Place place = place_of(tensor.name);
    if (tensor.name == "head.weight" || tensor.shape.rank() < 2) continue;
    const auto count = static_cast<double>(tensor.parameters());
    if (place.kind == Kind::dense) parameters += count;
    if (place.kind == Kind::experts) {
      parameters += count / static_cast<double>(config.n_routed_experts) *
                    static_cast<double>(config.n_activated_experts);
    }
  }
  return 2 * parameters;
}

Fit fit(const ModelConfig& config, const FitRequest& request) {
  Fit result;
  result.parts = checkpoint_parts(config);
  result.caches = cache_bytes(config, request);
  HostPart all{.resident = result.caches};
  int64_t dense_read = 0, rows_read = 0;
  for (const FitPart& part : result.parts) {
    if (part.kind == Kind::experts) {
      all.experts += part.bytes;
    } else if (part.kind == Kind::rows) {
      all.rows += part.bytes;
      rows_read += part.bytes_per_token;
    } else if (part.kind != Kind::drafts || request.drafts) {
      all.resident += part.bytes;
      dense_read += part.bytes_per_token;
    }
  }
  all.chosen_of_layer = all.experts /
                        std::max<int64_t>(1, config.n_layers * config.n_routed_experts) *
                        config.n_activated_experts;
  static_cast<HostMemory&>(result) = divide_memory(request.memory, all);

  const auto sequences = static_cast<double>(request.sequences);
  const double chosen = experts_chosen(config, request.sequences) /
                        static_cast<double>(config.n_routed_experts) *
                        static_cast<double>(all.experts);
  // What comes from the disk is read from memory once more, by the cores.
  result.bytes_from_memory =
      static_cast<double>(dense_read) + chosen +
      sequences * static_cast<double>(rows_read + cache_bytes_read(config, request.context));
  result.bytes_from_disk = result.experts_missed() * chosen +
                           result.rows_missed() * sequences * static_cast<double>(rows_read);
  const bool disk_known = request.disk_bytes_per_second > 0;
  if (result.fits && (disk_known || result.experts_on_disk == 0) &&
      request.memory_bytes_per_second > 0) {
    double seconds = result.bytes_from_memory / request.memory_bytes_per_second;
    if (disk_known) {
      seconds += result.bytes_from_disk / request.disk_bytes_per_second;
    }
    result.tokens_per_second = sequences / seconds;
  }
  if (result.fits) {
    result.prompt_tokens_per_second = request.operations_per_second / weight_flops(config);
  }
  return result;
}

}  // namespace cachalot
