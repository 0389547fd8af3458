#include "inspect/trace.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/number_formats.h"
#include "engine/image_encoder.h"

namespace cachalot {
namespace {

// Records what the model shows and, when forcing, overwrites the inputs with the golden's.
class TraceObserver final : public Observer {
 public:
  TraceObserver(const TensorMap& golden, const ModelConfig& config, bool forced)
      : golden_(golden), config_(config), forced_(forced) {}

  void start_chunk(int64_t first_token) { first_token_ = first_token; }
  // The first golden tensor that does not fit the model; the step ran without it.
  const Status& fit() const { return fit_; }
  TensorMap take() { return std::move(recorded_); }

  void visit(std::string_view point, int64_t layer, ObservedTensor tensor) override {
    if (point == "engram_in") {
      if (layer > 0) force(fmt::format("layers.{}.stream_out", layer - 1), tensor);
      return;
    }
    if (point == "taps_in") return force("taps", tensor);
    if (point == "chain") return force_chain(layer, tensor);
    if (point == "reused_chosen") {
      force_chosen(fmt::format("layers.{}.chosen", layer), layer, tensor);
      return;
    }
    const std::string name = name_of_point(point, layer);
    if (point == "stream_in" || point == "pre_in") force(name, tensor);
    record(name, tensor);
  }

 private:
  std::string name_of_point(std::string_view point, int64_t layer) const {
    if (layer < 0) return std::string(point);
    if (layer < config_.n_layers) return fmt::format("layers.{}.{}", layer, point);
    return fmt::format("draft.mtp.{}.{}", layer - config_.n_layers, point);
  }

  // The link after `step` reads the golden's token, whatever was drafted.
  void force_chain(int64_t step, const ObservedTensor& chain) {
    const auto found = golden_.find("draft.tokens");
    if (!forced_ || found == golden_.end()) return;
    const TraceTensor& drafts = found->second;
    if (drafts.dtype != DType::i32 || drafts.shape.size() != 1 || drafts.shape[0] <= step) {
      fit_ = fail("golden tensor \"draft.tokens\": expected {} I32", config_.dspark_block_size);
      return;
    }
    const int32_t token = reinterpret_cast<const int32_t*>(drafts.bytes.data())[step];
    if (token < 0 || token >= config_.vocab_size) {
      fit_ = fail("golden tensor \"draft.tokens\": token {}, the vocabulary has ids 0 to {}", token,
                  config_.vocab_size - 1);
      return;
    }
    static_cast<int32_t*>(chain.data)[step + 1] = token;
  }

  // The golden's tensor if the model has the same; anything else is kept as the error of the run.
  const TraceTensor* source_of(const std::string& name, const ObservedTensor& tensor) {
    const auto found = golden_.find(name);
    if (!forced_ || !fit_ || found == golden_.end()) return nullptr;
    const TraceTensor& source = found->second;
    const DType dtype = tensor.dtype == DType::bf16 ? DType::f32 : tensor.dtype;
    const int64_t rows = tensor.shape[0];
    const int64_t row_values = rows == 0 ? 0 : tensor.shape.elements() / rows;
    const int64_t found_rows = source.shape.empty() ? 0 : source.shape[0];
    const int64_t found_values = source.row_bytes() / size_of(source.dtype);
    if (source.dtype == dtype && found_values == row_values && found_rows >= first_token_ + rows)
      return &source;
    fit_ = fail(
        "golden tensor \"{}\": expected at least {} rows of {} {}, found {} of {} {}; the trace "
        "must "
        "come from the same model",
        name, first_token_ + rows, row_values, name_of(dtype), found_rows, found_values,
        name_of(source.dtype));
    return nullptr;
  }

  void force(const std::string& name, const ObservedTensor& tensor) {
    const TraceTensor* source = source_of(name, tensor);
    if (source == nullptr) return;
    const std::byte* from = source->bytes.data() + first_token_ * source->row_bytes();
    if (tensor.dtype == DType::bf16) {
      const auto* floats = reinterpret_cast<const float*>(from);
      auto* out = static_cast<bf16*>(tensor.data);
      for (int64_t i = 0; i < tensor.shape.elements(); ++i) out[i] = to_bf16(floats[i]);
    } else {
      std::memcpy(tensor.data, from, static_cast<size_t>(tensor.shape[0] * source->row_bytes()));
    }
  }

  // Attention reads the entries it is told to: one that is not written yet would be foreign memory.
  void force_chosen(const std::string& name, int64_t layer, const ObservedTensor& tensor) {
    const TraceTensor* source = source_of(name, tensor);
    if (source == nullptr) return;
    const int64_t ratio = config_.compress_ratios[static_cast<size_t>(layer)];
    const int64_t width = tensor.shape[0] == 0 ? 0 : tensor.shape.elements() / tensor.shape[0];
    const auto* chosen = reinterpret_cast<const int32_t*>(source->bytes.data());
    for (int64_t position = first_token_; position < first_token_ + tensor.shape[0]; ++position) {
      const int64_t entries = (position + 1) / ratio;
      for (int64_t i = position * width; i < (position + 1) * width; ++i) {
        if (chosen[i] >= -1 && chosen[i] < entries) continue;
        fit_ = fail("golden tensor \"{}\": token {}: expected entries from 0 to {} or -1, found {}",
                    name, position, entries - 1, chosen[i]);
        return;
      }
    }
    force(name, tensor);
  }

  void record(const std::string& name, const ObservedTensor& tensor) {
    TraceTensor& out = recorded_[name];
    out.dtype = tensor.dtype == DType::bf16 ? DType::f32 : tensor.dtype;
    if (out.shape.empty()) {
      for (int i = 0; i < tensor.shape.rank(); ++i) out.shape.push_back(tensor.shape[i]);
      out.shape[0] = 0;
      if (name == "taps") out.shape = {0, tensor.shape[1] * tensor.shape[2]};
      if (name == "draft.tokens") out.shape = {0};  // one sequence, a row a token
    }
    out.shape[0] += name == "draft.tokens" ? tensor.shape[1] : tensor.shape[0];
    const int64_t values = tensor.shape.elements();
    const size_t at = out.bytes.size();
    out.bytes.resize(at + static_cast<size_t>(values * size_of(out.dtype)));
    if (tensor.dtype == DType::bf16) {
      const auto* from = static_cast<const bf16*>(tensor.data);
      auto* to = reinterpret_cast<float*>(out.bytes.data() + at);
      for (int64_t i = 0; i < values; ++i) to[i] = to_float(from[i]);
    } else {
      std::memcpy(out.bytes.data() + at, tensor.data, out.bytes.size() - at);
    }
  }

  const TensorMap& golden_;
  const ModelConfig& config_;
  bool forced_;
  Status fit_;
  int64_t first_token_ = 0;
  TensorMap recorded_;
};

Result<const TraceTensor*> find(const TensorMap& map, const std::string& name, DType dtype) {
  const auto found = map.find(name);
  if (found == map.end()) return fail("the golden file has no tensor \"{}\"", name);
  if (found->second.dtype != dtype) {
    return fail("golden tensor \"{}\": expected {}, found {}", name, name_of(dtype),
                name_of(found->second.dtype));
  }
  return &found->second;
}

std::span<const float> floats_of(const TraceTensor& tensor) {
  return {reinterpret_cast<const float*>(tensor.bytes.data()), tensor.bytes.size() / 4};
}

std::span<const int32_t> integers_of(const TraceTensor& tensor) {
  return {reinterpret_cast<const int32_t*>(tensor.bytes.data()), tensor.bytes.size() / 4};
}

// The embeddings of the golden's image span, and which token takes which.
struct ImageSpan {
  std::vector<bf16> rows;  // [span, dim]
  std::vector<int32_t> index;
};

// Start, then per grid row its features and a newline, then end (spec: vision).
Result<ImageSpan> image_span(const Checkpoint& checkpoint, const TensorMap& golden, size_t tokens) {
  ImageSpan span;
  span.index.assign(tokens, -1);
  if (golden.find("image.mask") == golden.end()) return span;
  CACHALOT_TRY(const TraceTensor* mask, find(golden, "image.mask", DType::i32));
  CACHALOT_TRY(const TraceTensor* features, find(golden, "image.features", DType::f32));
  CACHALOT_TRY(const TraceTensor* grid, find(golden, "image.grid", DType::i32));
  const ModelConfig& config = checkpoint.config();
  if (checkpoint.find("image_start") == nullptr)
    return fail("the golden file has an image, the model none of the tensors for it");
  if (mask->bytes.size() != tokens * sizeof(int32_t) || grid->bytes.size() < 2 * sizeof(int32_t) ||
      integers_of(*grid)[1] < 1 || features->shape.size() != 2 || features->shape[1] != config.dim)
    return fail(
        "the golden's image: expected a mask of {} tokens, features of {} values and a grid",
        tokens, config.dim);
  const int64_t cell = config.vision_downsample_ratio;
  const auto grid_columns = (integers_of(*grid)[1] + cell - 1) / cell;
  const auto append = [&](const std::string& name) {
    const auto* values = reinterpret_cast<const bf16*>(checkpoint.find(name)->bytes.data());
    span.rows.insert(span.rows.end(), values, values + config.dim);
  };
  append("image_start");
  const auto values = floats_of(*features);
  for (int64_t cell_index = 0; cell_index < features->shape[0]; ++cell_index) {
    for (int64_t d = 0; d < config.dim; ++d) {
      span.rows.push_back(to_bf16(values[static_cast<size_t>(cell_index * config.dim + d)]));
    }
    if ((cell_index + 1) % grid_columns == 0) append("image_newline");
  }
  append("image_end");
  int32_t next = 0;
  for (size_t t = 0; t < tokens; ++t) {
    if (integers_of(*mask)[t]) span.index[t] = next++;
  }
  if (static_cast<int64_t>(span.rows.size()) != next * config.dim) {
    return fail("the golden's image span has {} positions, its features and marks make {}", next,
                static_cast<int64_t>(span.rows.size()) / config.dim);
  }
  return span;
}

// What the vision tower makes of the golden's patches, if it has any.
Status trace_image(const Engine& engine, const Checkpoint& checkpoint, const TensorMap& golden,
                   TensorMap& recorded) {
  if (golden.find("image.patches") == golden.end()) return {};
  CACHALOT_TRY(const TraceTensor* patches, find(golden, "image.patches", DType::f32));
  CACHALOT_TRY(const TraceTensor* grid_tensor, find(golden, "image.grid", DType::i32));
  const EngineOptions& options = engine.options();
  ImageEncoderOptions encoder_options{.threads = options.threads, .isa = options.isa};
  if (options.backend == Backend::reference) encoder_options.backend = Backend::reference;
  // The checkpoint outlives the encoder: nobody has to own it.
  CACHALOT_TRY(const auto encoder,
               ImageEncoder::make({std::shared_ptr<void>(), &checkpoint}, encoder_options));
  const auto sides = integers_of(*grid_tensor);
  const PatchGrid grid{.rows = sides[0], .columns = sides[1]};
  const int64_t side = engine.config().vision_patch_size;
  std::vector<bf16> values;
  for (const float value : floats_of(*patches)) values.push_back(to_bf16(value));
  if (grid.rows < 1 || std::ssize(values) != grid.patches() * 3 * side * side) {
    return fail("golden tensor \"image.patches\": expected {} x {} patches of {} values, found {}",
                grid.rows, grid.columns, 3 * side * side, values.size());
  }
  const auto image = encoder->encode(grid, values, {});
  TraceTensor features{.dtype = DType::f32,
                       .shape = {image->grid_width * image->grid_height, image->dim},
                       .bytes = {}};
  for (int64_t cell = 0; cell < features.shape[0]; ++cell) {
    const int64_t place = 1 + cell + cell / image->grid_width;  // behind start and newlines
    for (int64_t i = 0; i < image->dim; ++i) {
      const float value = to_float(image->rows[static_cast<size_t>(place * image->dim + i)]);
      const auto* bytes = reinterpret_cast<const std::byte*>(&value);
      features.bytes.insert(features.bytes.end(), bytes, bytes + sizeof(value));
    }
  }
  recorded.emplace("image.features", std::move(features));
  return {};
}

// The block drafted after the golden's own choice for the position after its tokens.
Status trace_drafts(Engine& engine, int32_t sequence, const TensorMap& golden,
                    TraceObserver& observer) {
  if (!engine.config().has_drafts()) return {};
  CACHALOT_TRY(const TraceTensor* logits, find(golden, "logits", DType::f32));
  const auto vocabulary = static_cast<size_t>(engine.config().vocab_size);
  const std::span<const float> values = floats_of(*logits);
  if (values.empty() || values.size() % vocabulary != 0) {
    return fail("golden tensor \"logits\": expected rows of {} values", vocabulary);
  }
  const std::span<const float> last = values.last(vocabulary);
  const DraftRequest request{
      .sequence = sequence,
      .anchor = static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin())};
  observer.start_chunk(0);
  CACHALOT_OK(engine.draft({&request, 1}, &observer));
  return observer.fit();
}

}  // namespace

int64_t TraceTensor::row_bytes() const {
  int64_t bytes = size_of(dtype);
  for (size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
  return bytes;
}

Result<TensorMap> record_trace(Engine& engine, const Checkpoint& checkpoint,
                               const TensorMap& golden, const TraceOptions& options) {
  CACHALOT_TRY(const TraceTensor* token_tensor, find(golden, "tokens", DType::i32));
  const std::span<const int32_t> tokens = integers_of(*token_tensor);
  CACHALOT_TRY(const ImageSpan span, image_span(checkpoint, golden, tokens.size()));
  const int64_t dim = engine.config().dim;
  const View<const bf16> image_rows =
      span.rows.empty()
          ? View<const bf16>()
          : View<const bf16>(span.rows.data(), {static_cast<int64_t>(span.rows.size()) / dim, dim});

  TraceObserver observer(golden, engine.config(), options.forced);
  CACHALOT_TRY(const int32_t sequence, engine.open_sequence());
  const size_t chunk = options.chunk > 0 ? static_cast<size_t>(options.chunk) : tokens.size();
  for (size_t first = 0; first < tokens.size(); first += chunk) {
    const size_t count = std::min(chunk, tokens.size() - first);
    observer.start_chunk(static_cast<int64_t>(first));
    const SequenceStep step{.sequence = sequence,
                            .tokens = tokens.subspan(first, count),
                            .logits = LogitsOf::all,
                            .image_index = std::span(span.index).subspan(first, count)};
    const auto result = engine.step({.sequences = {&step, 1},
                                     .image_rows = image_rows,
                                     .draft_taps = engine.config().has_drafts(),
                                     .observer = &observer});
    if (!result || !observer.fit()) {
      engine.close_sequence(sequence);
      return fail(result ? observer.fit().error() : result.error());
    }
  }
  const Status drafted = trace_drafts(engine, sequence, golden, observer);
  engine.close_sequence(sequence);
  if (!drafted) return fail(drafted.error());
  TensorMap recorded = observer.take();
  recorded.emplace("tokens", *token_tensor);
  CACHALOT_OK(trace_image(engine, checkpoint, golden, recorded));
  return recorded;
}

}  // namespace cachalot
