#include "ggml_experts.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <cstring>

#include "base/check.h"
#include "base/number_formats.h"

namespace cachalot::compare {
namespace {

ggml_backend_dev_t cpu_device() { return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU); }

std::vector<ggml_backend_buffer_type_t> buffer_types() {
  std::vector<ggml_backend_buffer_type_t> types{ggml_backend_cpu_buffer_type()};
  const auto extra =
      reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(cpu_device()), "ggml_backend_dev_get_extra_bufts"));
  if (extra == nullptr) return types;
  for (auto* next = extra(cpu_device()); next != nullptr && *next != nullptr; ++next) {
    types.push_back(*next);
  }
  return types;
}

// Blocks of 32: the scale, then sixteen bytes whose low nibbles are the first sixteen columns. A
// byte of the released form holds two neighbours.
void append_mxfp4(const Fp4Matrix& matrix, std::vector<uint8_t>& out) {
  for (int64_t block = 0; block < matrix.rows * matrix.columns / 32; ++block) {
    const uint8_t* codes = matrix.codes.data + block * 16;
    const auto code = [&](int column) { return (codes[column / 2] >> (column % 2 * 4)) & 15; };
    out.push_back(matrix.scales.data[block]);
    for (int i = 0; i < 16; ++i) out.push_back(static_cast<uint8_t>(code(i) | code(16 + i) << 4));
  }
}

std::vector<uint8_t> q8_of(const DenseMatrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.columns));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column) {
      const float scale = matrix.scales.data[row / 32 * (matrix.columns / 32) + column / 32];
      values[static_cast<size_t>(row * matrix.columns + column)] =
          e4m3_to_float(matrix.codes.data[row * matrix.columns + column]) * scale;
    }
  }
  std::vector<uint8_t> out(ggml_row_size(GGML_TYPE_Q8_0, matrix.columns) *
                           static_cast<size_t>(matrix.rows));
  ggml_quantize_chunk(GGML_TYPE_Q8_0, values.data(), out.data(), 0, matrix.rows, matrix.columns,
                      nullptr);
  return out;
}

// The three matrices of the routed experts, or of the shared one.
struct Matrices {
  ggml_tensor *w1 = nullptr, *w2 = nullptr, *w3 = nullptr;
};

ggml_context* new_context() {
  return ggml_init({.mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead(),
                    .mem_buffer = nullptr,
                    .no_alloc = true});
}

}  // namespace

struct GgmlExperts::State {
  LayerSize size;
  ggml_context *routed_context = nullptr, *shared_context = nullptr, *graph_context = nullptr;
  ggml_backend_buffer_t routed_buffer = nullptr, shared_buffer = nullptr;
  ggml_backend_t backend = nullptr;
  ggml_threadpool* pool = nullptr;
  ggml_gallocr_t allocator = nullptr;
  Matrices routed, shared;
  ggml_cgraph* graph = nullptr;
  ggml_tensor *x = nullptr, *ids = nullptr, *weights = nullptr, *y = nullptr;
  bool available = false;

  ~State() {
    ggml_gallocr_free(allocator);
    ggml_backend_free(backend);
    ggml_threadpool_free(pool);
    ggml_backend_buffer_free(routed_buffer);
    ggml_backend_buffer_free(shared_buffer);
    for (ggml_context* context : {routed_context, shared_context, graph_context}) {
      ggml_free(context);
    }
  }

  void build(int64_t tokens) {
    ggml_free(graph_context);
    graph_context = new_context();
    ggml_context* c = graph_context;
    x = ggml_new_tensor_3d(c, GGML_TYPE_F32, size.dim, 1, tokens);
    ids = ggml_new_tensor_2d(c, GGML_TYPE_I32, size.chosen, tokens);
    weights = ggml_new_tensor_3d(c, GGML_TYPE_F32, 1, size.chosen, tokens);
    ggml_tensor* hidden = ggml_swiglu_split(c, ggml_mul_mat_id(c, routed.w1, x, ids),
                                            ggml_mul_mat_id(c, routed.w3, x, ids));
    ggml_tensor* each = ggml_mul(c, ggml_mul_mat_id(c, routed.w2, hidden, ids), weights);
    const auto chosen = [&](int64_t i) {
      return ggml_view_2d(c, each, size.dim, tokens, each->nb[2],
                          static_cast<size_t>(i) * each->nb[1]);
    };
    y = chosen(0);
    for (int64_t i = 1; i < size.chosen; ++i) y = ggml_add(c, y, chosen(i));
    ggml_tensor* rows = ggml_reshape_2d(c, x, size.dim, tokens);
    ggml_tensor* shared_hidden =
        ggml_swiglu_split(c, ggml_mul_mat(c, shared.w1, rows), ggml_mul_mat(c, shared.w3, rows));
    y = ggml_add(c, y, ggml_mul_mat(c, shared.w2, shared_hidden));
    for (ggml_tensor* input : {x, ids, weights}) ggml_set_input(input);
    ggml_set_output(y);
    graph = ggml_new_graph(c);
    ggml_build_forward_expand(graph, y);
  }

  // Whether the device multiplies matrices that lie in this buffer.
  bool supported() {
    build(1);
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
      if (!ggml_backend_dev_supports_op(cpu_device(), ggml_graph_node(graph, i))) return false;
    }
    return true;
  }

  void fill(const ExpertWeights& from) {
    std::vector<uint8_t> bytes;
    const auto set = [&](ggml_tensor* tensor) {
      CACHALOT_CHECK(bytes.size() == ggml_nbytes(tensor), "{} bytes", bytes.size());
      ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
    };
    const auto set_routed = [&](ggml_tensor* tensor, Fp4Matrix ExpertMatrices::*matrix) {
      bytes.clear();
      bytes.reserve(ggml_nbytes(tensor));
      for (const ExpertMatrices& expert : from.experts()) append_mxfp4(expert.*matrix, bytes);
      set(tensor);
    };
    set_routed(routed.w1, &ExpertMatrices::w1);
    set_routed(routed.w2, &ExpertMatrices::w2);
    set_routed(routed.w3, &ExpertMatrices::w3);
    const std::pair<ggml_tensor*, const DenseMatrix*> dense[] = {{shared.w1, &from.shared().w1},
                                                                 {shared.w2, &from.shared().w2},
                                                                 {shared.w3, &from.shared().w3}};
    for (const auto& [tensor, matrix] : dense) {
      bytes = q8_of(*matrix);
      set(tensor);
    }
  }
};

std::vector<std::string> GgmlExperts::layouts() {
  std::vector<std::string> names;
  for (ggml_backend_buffer_type_t type : buffer_types()) {
    names.emplace_back(ggml_backend_buft_name(type));
  }
  return names;
}

void GgmlExperts::silence() {
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
}

GgmlExperts::GgmlExperts(const ExpertWeights& weights, const std::string& layout, int threads)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.size = weights.size();
  s.routed_context = new_context();
  s.shared_context = new_context();
  const auto routed = [&](int64_t in, int64_t out) {
    return ggml_new_tensor_3d(s.routed_context, GGML_TYPE_MXFP4, in, out, s.size.experts);
  };
  const auto shared = [&](int64_t in, int64_t out) {
    return ggml_new_tensor_2d(s.shared_context, GGML_TYPE_Q8_0, in, out);
  };
  const int64_t dim = s.size.dim, width = s.size.width;
  s.routed = {routed(dim, width), routed(width, dim), routed(dim, width)};
  s.shared = {shared(dim, width), shared(width, dim), shared(dim, width)};
  for (ggml_backend_buffer_type_t type : buffer_types()) {
    if (layout != ggml_backend_buft_name(type)) continue;
    s.routed_buffer = ggml_backend_alloc_ctx_tensors_from_buft(s.routed_context, type);
  }
  s.shared_buffer =
      ggml_backend_alloc_ctx_tensors_from_buft(s.shared_context, ggml_backend_cpu_buffer_type());
  if (s.routed_buffer == nullptr || !s.supported()) return;
  s.fill(weights);
  s.backend = ggml_backend_dev_init(cpu_device(), nullptr);
  ggml_backend_cpu_set_n_threads(s.backend, threads);
  ggml_threadpool_params parameters = ggml_threadpool_params_default(threads);
  s.pool = ggml_threadpool_new(&parameters);
  ggml_backend_cpu_set_threadpool(s.backend, s.pool);
  s.allocator = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
  s.available = true;
}

GgmlExperts::~GgmlExperts() = default;

bool GgmlExperts::available() const { return state_->available; }

void GgmlExperts::prepare(const Batch& batch) {
  State& s = *state_;
  s.build(batch.tokens);
  CACHALOT_CHECK(ggml_gallocr_alloc_graph(s.allocator, s.graph), "{} tokens", batch.tokens);
  std::vector<float> x;
  for (bf16 value : batch.x) x.push_back(to_float(value));
  ggml_backend_tensor_set(s.x, x.data(), 0, ggml_nbytes(s.x));
  ggml_backend_tensor_set(s.ids, batch.ids.data(), 0, ggml_nbytes(s.ids));
  ggml_backend_tensor_set(s.weights, batch.weights.data(), 0, ggml_nbytes(s.weights));
}

void GgmlExperts::run() {
  const ggml_status status = ggml_backend_graph_compute(state_->backend, state_->graph);
  CACHALOT_CHECK(status == GGML_STATUS_SUCCESS, "ggml status {}", static_cast<int>(status));
}

std::vector<float> GgmlExperts::result() const {
  std::vector<float> y(static_cast<size_t>(ggml_nelements(state_->y)));
  ggml_backend_tensor_get(state_->y, y.data(), 0, ggml_nbytes(state_->y));
  return y;
}

void GgmlExperts::pause() { ggml_threadpool_pause(state_->pool); }
void GgmlExperts::resume() { ggml_threadpool_resume(state_->pool); }

}  // namespace cachalot::compare
