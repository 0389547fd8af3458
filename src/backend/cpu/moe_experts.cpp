// moe_experts (contract: ops/experts.h; docs/kernels/linear.md), whole or some experts of it. Rows
// are grouped by expert, so that every chosen expert's weights are read once however many tokens
// chose it.
#include <algorithm>
#include <cstring>

#include "backend/cpu/expert_outputs.h"
#include "backend/cpu/packed_weight.h"
#include "backend/cpu/queue.h"
#include "backend/cpu/work_share.h"
#include "storage/weight_store.h"

namespace cachalot::cpu {
namespace {

// Hidden values per piece of work: a whole quantization group, quantized where it is computed.
constexpr int64_t kHiddenBlock = kScaleBlock;

// Tokens whose gate and up values of a piece wait in a thread's scratch.
constexpr int64_t kTokenBlock = 192;
static_assert(kTokenBlock % kPackTokens == 0);

// Columns of a token that are prepared or summed at a time.
constexpr int64_t kColumnBlock = 1024;
static_assert(kColumnBlock % kScaleBlock == 0);

// An expert with the tokens that chose it.
struct Group {
  const MatmulKernels* kernels;
  PackedWeight w1, w2, w3;
  int64_t first = 0;  // its rows among the sorted (token, expert) pairs
  int64_t count = 0;
  int64_t packed = 0;  // its rows among the packed ones, where every group starts a tile
};

// kPackTokens rows of a group, packed as one piece of work.
struct PackTile {
  int32_t group;
  int32_t tile;
};

void place(PackedWeight& weight, const std::byte* codes, const std::byte* scales) {
  weight.data = reinterpret_cast<const uint8_t*>(codes);
  weight.row_scales = reinterpret_cast<const uint8_t*>(scales);
}

// Parts as the engine lists them for the store: codes and scales of w1, w2, w3.
Group placed(Group group, const ExpertParts& parts) {
  place(group.w1, parts[0], parts[1]);
  place(group.w2, parts[2], parts[3]);
  place(group.w3, parts[4], parts[5]);
  return group;
}

// Experts whose outputs are wanted one by one, without the shared one.
struct Wanted {
  const std::vector<bool>& experts;
  View<bf16> outputs;  // [tokens, k, dim]
};

struct Buffers {
  int64_t rows;              // chosen pairs, then one per token for the shared expert
  int64_t pairs;             // of them the chosen ones
  int32_t* first_of;         // [experts + 1] where each expert's pairs start
  Group* groups;             // chosen experts ascending, then the shared one
  Group* round;              // those whose weights have come from the store
  ExpertUse* uses;           // the chosen experts, for the store
  int32_t* pair_of;          // [pairs] where ids name it
  float* weight_of;          // [rows]
  int32_t* rows_of;          // [tokens, k] a token's pairs, experts ascending
  int32_t* filled;           // [tokens]
  std::byte* x;              // [tokens] prepared for the experts, then for the shared one
  const void** x_rows;       // [rows] a pair's prepared token
  std::byte* hidden;         // [rows] prepared
  const void** hidden_rows;  // [rows]
  PackTile* tiles;           // of all groups
  std::byte* packed_x;       // the groups' operands, where the kernels want them packed
  std::byte* packed_hidden;
  bf16* y;  // [rows, dim] experts' outputs
  int64_t x_stride, hidden_stride;
};

Buffers reserve(Queue& queue, const MatmulKernels& routed, int64_t tokens, int64_t k,
                int64_t experts, int64_t dim, int64_t width) {
  const auto stride = [&](int64_t columns) {
    return std::max(activation_stride(queue.matmul(), columns), activation_stride(routed, columns));
  };
  Buffers b;
  b.rows = tokens * (k + 1);  // at most
  b.x_stride = stride(dim);
  b.hidden_stride = stride(width);
  ScratchLayout layout;
  const size_t first_of = layout.add(experts + 1, sizeof(int32_t));
  const size_t groups = layout.add(experts + 1, sizeof(Group));
  const size_t round = layout.add(experts + 1, sizeof(Group));
  const size_t uses = layout.add(experts, sizeof(ExpertUse));
  const size_t pair_of = layout.add(tokens * k, sizeof(int32_t));
  const size_t weight_of = layout.add(b.rows, sizeof(float));
  const size_t rows_of = layout.add(tokens * k, sizeof(int32_t));
  const size_t filled = layout.add(tokens, sizeof(int32_t));
  const size_t x = layout.add(2 * tokens, static_cast<size_t>(b.x_stride));
  const size_t x_rows = layout.add(b.rows, sizeof(void*));
  const size_t hidden = layout.add(b.rows, static_cast<size_t>(b.hidden_stride));
  const size_t hidden_rows = layout.add(b.rows, sizeof(void*));
  // Every group may leave a tile of kPackTokens unfilled.
  const int64_t most_groups = std::min(tokens * k, experts) + 1;
  const int64_t packed_rows = b.rows + most_groups * (kPackTokens - 1);
  const auto packed_bytes = [&](int64_t columns) -> size_t {
    const MatmulKernels& kernels = queue.matmul();
    return kernels.pack ? static_cast<size_t>(kernels.packed_bytes(packed_rows, columns)) : 0;
  };
  const size_t tiles = layout.add(packed_rows / kPackTokens + 1, sizeof(PackTile));
  const size_t packed_x = layout.add(1, packed_bytes(dim));
  const size_t packed_hidden = layout.add(1, packed_bytes(width));
  const size_t y = layout.add(b.rows * dim, sizeof(bf16));
  std::byte* shared = queue.scratch().reserve_shared(layout.bytes());
  const auto at = [&]<class T>(T*& pointer, size_t offset) {
    pointer = reinterpret_cast<T*>(shared + offset);
  };
  at(b.first_of, first_of);
  at(b.groups, groups);
  at(b.round, round);
  at(b.uses, uses);
  at(b.pair_of, pair_of);
  at(b.weight_of, weight_of);
  at(b.rows_of, rows_of);
  at(b.filled, filled);
  at(b.x, x);
  at(b.x_rows, x_rows);
  at(b.hidden, hidden);
  at(b.hidden_rows, hidden_rows);
  at(b.tiles, tiles);
  at(b.packed_x, packed_x);
  at(b.packed_hidden, packed_hidden);
  at(b.y, y);
  return b;
}

bool is_wanted(const Wanted* wanted, int32_t expert) {
  return wanted == nullptr || wanted->experts[static_cast<size_t>(expert)];
}

// Sorts the (token, expert) pairs by expert, tokens ascending within one. `wanted` may be nullptr:
// all of them, and the shared expert.
void sort_pairs(const MoeExpertsArgs& args, const Wanted* wanted, Buffers& b) {
  const int64_t tokens = args.ids.extent(0), k = args.ids.extent(1);
  const int64_t experts = static_cast<int64_t>(args.experts.size());
  std::memset(b.first_of, 0, static_cast<size_t>(experts + 1) * sizeof(int32_t));
  for (int64_t i = 0; i < tokens * k; ++i) {
    const int32_t id = args.ids.data[i];
    CACHALOT_CHECK(id >= 0 && id < experts, "expert {} of {}", id, experts);
    if (is_wanted(wanted, id)) ++b.first_of[id + 1];
  }
  for (int64_t e = 0; e < experts; ++e) b.first_of[e + 1] += b.first_of[e];
  b.pairs = b.first_of[experts];
  b.rows = b.pairs + (wanted == nullptr ? tokens : 0);
  // Placing moves first_of[e] on to the end of e, which is where e + 1 starts.
  for (int64_t i = 0; i < tokens * k; ++i) {
    if (!is_wanted(wanted, args.ids.data[i])) continue;
    const int32_t row = b.first_of[args.ids.data[i]]++;
    b.pair_of[row] = static_cast<int32_t>(i);
    b.weight_of[row] = args.weights.data[i];
  }
  std::memset(b.filled, 0, static_cast<size_t>(tokens) * sizeof(int32_t));
  for (int64_t row = 0; row < b.pairs; ++row) {
    const int64_t token = b.pair_of[row] / k;
    b.rows_of[token * k + b.filled[token]++] = static_cast<int32_t>(row);
  }
  for (int64_t row = 0; row < b.rows; ++row) {
    const bool shared = row >= b.pairs;
    if (shared) b.weight_of[row] = 1.0f;
    const int64_t prepared = shared ? tokens + row - b.pairs : b.pair_of[row] / k;
    b.x_rows[row] = b.x + prepared * b.x_stride;
    b.hidden_rows[row] = b.hidden + row * b.hidden_stride;
  }
}

// Returns how many groups there are; the shared expert, if it has rows, is the last.
int64_t make_groups(const MoeExpertsArgs& args, const MatmulKernels& routed,
                    const MatmulKernels& shared, const Buffers& b) {
  int64_t count = 0, first = 0;
  for (size_t e = 0; e < args.experts.size(); ++e) {
    const int64_t last = b.first_of[e];  // moved to the end by sort_pairs
    if (last > first) {
      const ExpertMatrices& expert = args.experts[e];
      b.uses[count] = {static_cast<int32_t>(e), last - first};
      b.groups[count++] = {
          &routed, packed(expert.w1), packed(expert.w2), packed(expert.w3), first, last - first, 0};
    }
    first = last;
  }
  if (b.rows == b.pairs) return count;
  b.groups[count++] = {&shared,
                       packed(args.shared.w1),
                       packed(args.shared.w2),
                       packed(args.shared.w3),
                       b.pairs,
                       b.rows - b.pairs,
                       0};
  return count;
}

int64_t tiles_of(const Group& group) { return (group.count + kPackTokens - 1) / kPackTokens; }

// Returns how many tiles the rows of groups make whose kernels want them packed.
int64_t make_tiles(const Buffers& b, int64_t groups) {
  int64_t count = 0;
  for (int64_t g = 0; g < groups; ++g) {
    if (!b.groups[g].kernels->pack) continue;
    b.groups[g].packed = count * kPackTokens;
    for (int64_t t = 0; t < tiles_of(b.groups[g]); ++t) {
      b.tiles[count++] = {static_cast<int32_t>(g), static_cast<int32_t>(t)};
    }
  }
  return count;
}

// What a thread keeps of one piece of hidden values.
struct HiddenScratch {
  bf16 gate[kTokenBlock * kHiddenBlock];
  bf16 up[kTokenBlock * kHiddenBlock];
  bf16 hidden[kHiddenBlock];
};

class Step {
 public:
  // `wanted` may be nullptr: the whole operation.
  Step(Queue& queue, const MoeExpertsArgs& args, const Wanted* wanted)
      : queue_(queue),
        kernels_(queue.matmul()),
        routed_(args.input == ExpertInput::int8 ? int8_kernels_for(queue.isa()) : kernels_),
        args_(args),
        wanted_(wanted),
        tokens_(args.x.extent(0)),
        k_(args.ids.extent(1)),
        dim_(args.x.extent(1)),
        width_(args.shared.w1.rows),
        b_(reserve(queue, routed_, tokens_, k_, static_cast<int64_t>(args.experts.size()), dim_,
                   width_)) {
    CACHALOT_CHECK(width_ % kHiddenBlock == 0, "{} hidden values", width_);
    sort_pairs(args, wanted, b_);
    groups_ = make_groups(args, routed_, kernels_, b_);
    tiles_ = make_tiles(b_, groups_);
    queue.scratch().reserve_per_thread(kernel_bytes() + sizeof(HiddenScratch));
  }

  // Where the weights of an expert it chose are the cache's. Absent: it chose none, or they are
  // not.
  std::optional<size_t> layer_in(const ExpertCache& cache) const {
    if (routed_groups() == 0) return std::nullopt;
    const auto expert = static_cast<size_t>(b_.uses[0].expert);
    return cache.layer_at(args_.experts[expert].w1.codes.data, expert);
  }

  // All at once, with the weights where the arguments say.
  void run() {
    if (groups_ == 0) return;
    WorkShare results(result_pieces(), queue_.team().size());
    Preparation preparation(*this);
    Round round(*this, {b_.groups, groups_, b_.rows});
    queue_.run(3 * b_.rows * dim_ * width_, [&](const TeamMember& member) {
      preparation.run(member);
      member.barrier();
      round.compute(member);
      member.barrier();
      results.each([&](int64_t piece) { result_piece(piece); });
    });
  }

  // In rounds of experts, as their weights come. Outputs wait in rows of their own and are added
  // last, so the order of the rounds changes nothing.
  Status run_from(ExpertCache& cache, size_t layer) {
    const int64_t chosen = routed_groups();
    cache.begin(layer, {b_.uses, static_cast<size_t>(chosen)}, tokens_);
    Preparation preparation(*this);
    queue_.run(tokens_ * dim_, [&](const TeamMember& member) { preparation.run(member); });
    std::span<const ReadyExpert> ready = cache.resident();
    if (chosen < groups_) b_.round[ready.size()] = b_.groups[chosen];  // the shared expert
    run_round(ready, std::ssize(ready) + groups_ - chosen);
    for (;;) {
      CACHALOT_TRY(ready, cache.next());
      if (ready.empty()) break;
      run_round(ready, std::ssize(ready));
    }
    cache.end();
    WorkShare results(result_pieces(), queue_.team().size());
    queue_.run(b_.rows * dim_, [&](const TeamMember&) {
      results.each([&](int64_t piece) { result_piece(piece); });
    });
    return {};
  }

 private:
  // The tokens' operands, for all groups.
  class Preparation {
   public:
    explicit Preparation(Step& step)
        : step_(step),
          rows_((step.wanted_ ? 1 : 2) * step.tokens_ * step.column_blocks(),
                step.queue_.team().size()),
          tiles_(step.tiles_ * step.column_blocks(), step.queue_.team().size()) {}

    void run(const TeamMember& member) {
      const Buffers& b = step_.b_;
      rows_.each([&](int64_t piece) { step_.prepare_piece(piece); });
      if (step_.tiles_ == 0) return;
      member.barrier();
      tiles_.each([&](int64_t i) {
        const PackTile& tile = b.tiles[i / step_.column_blocks()];
        const int64_t first = i % step_.column_blocks() * kColumnBlock;
        step_.pack(b.groups[tile.group], tile.tile, b.x_rows, step_.dim_, first,
                   std::min(kColumnBlock, step_.dim_ - first), b.packed_x);
      });
    }

   private:
    Step& step_;
    WorkShare rows_, tiles_;
  };

  // Groups that are computed together.
  struct RoundGroups {
    const Group* groups;
    int64_t count;
    int64_t rows;
  };

  // Some groups' hidden values, then their outputs.
  class Round {
   public:
    Round(Step& step, const RoundGroups& round)
        : step_(step),
          round_(round),
          hidden_blocks_(step.width_ / kHiddenBlock),
          pieces_(step.kernels_, step.dim_, round.rows / round.count, step.queue_.team().size(),
                  round.count),
          hidden_(round.count * hidden_blocks_, step.queue_.team().size()),
          outputs_(round.count * pieces_.count(), step.queue_.team().size()) {}

    void compute(const TeamMember& member) {
      std::byte* scratch = step_.queue_.scratch().of_thread(member.index());
      hidden_.each_with_next([&](int64_t i, int64_t next) {
        const Group* then = next < 0 ? nullptr : &hidden_group(next);
        step_.hidden_piece(hidden_group(i), i % hidden_blocks_ * kHiddenBlock, then,
                           next % hidden_blocks_ * kHiddenBlock, scratch);
      });
      member.barrier();
      outputs_.each_with_next([&](int64_t i, int64_t next) {
        Product product;
        if (next >= 0) {
          const int64_t piece = next % pieces_.count();
          announce(product, round_.groups[next / pieces_.count()].w2, pieces_.first(piece),
                   pieces_.last(piece));
        }
        const int64_t piece = i % pieces_.count();
        step_.output_piece(round_.groups[i / pieces_.count()], pieces_.first(piece),
                           pieces_.last(piece), product, scratch);
      });
    }

   private:
    // The last group first: the shared expert's pieces are the largest, for which the others would
    // wait longest.
    const Group& hidden_group(int64_t piece) const {
      const int64_t group = piece / hidden_blocks_;
      return round_.groups[group == 0 ? round_.count - 1 : group - 1];
    }

    Step& step_;
    const RoundGroups round_;
    const int64_t hidden_blocks_;
    const OutputPieces pieces_;
    WorkShare hidden_, outputs_;
  };

  // The experts that are ready, and what stands behind them in b_.round.
  void run_round(std::span<const ReadyExpert> ready, int64_t count) {
    if (count == 0) return;
    RoundGroups groups{b_.round, count, 0};
    for (size_t i = 0; i < ready.size(); ++i) {
      b_.round[i] = placed(b_.groups[ready[i].use], ready[i].parts);
    }
    for (int64_t i = 0; i < count; ++i) {
      groups.rows += b_.round[i].count;
    }
    Round round(*this, groups);
    queue_.run(3 * groups.rows * dim_ * width_,
               [&](const TeamMember& member) { round.compute(member); });
  }

  int64_t routed_groups() const { return groups_ - (wanted_ ? 0 : 1); }
  int64_t column_blocks() const { return (dim_ + kColumnBlock - 1) / kColumnBlock; }

  // Some columns of a token: for the routed experts, or behind all of those for the shared one.
  void prepare_piece(int64_t piece) {
    const int64_t row = piece / column_blocks(), first = piece % column_blocks() * kColumnBlock;
    const bool shared = row >= tokens_;
    const MatmulKernels& kernels = shared ? kernels_ : routed_;
    kernels.quantize(args_.x.row(shared ? row - tokens_ : row) + first, first,
                     std::min(kColumnBlock, dim_ - first),
                     shared ? PackedWeight::Format::fp8 : PackedWeight::Format::fp4,
                     b_.x + row * b_.x_stride);
  }

  size_t kernel_bytes() const {
    return static_cast<size_t>(std::max(kernels_.scratch_bytes, routed_.scratch_bytes) + 63) / 64 *
           64;
  }

  // Where the packed operand of a group starts.
  std::byte* packed_at(std::byte* packed, const Group& group, int64_t columns) const {
    return kernels_.pack ? packed + kernels_.packed_bytes(group.packed, columns) : packed;
  }

  // Some columns of a tile of the group's rows.
  void pack(const Group& group, int64_t tile, const void* const* rows, int64_t columns,
            int64_t first, int64_t count, std::byte* packed) {
    kernels_.pack(rows + group.first, group.count, columns, group.w1.format, tile, first, count,
                  packed_at(packed, group, columns));
  }

  // kHiddenBlock rows of w1 and w3 for all of the group's tokens, activated and quantized; then
  // the thread does the same for rows next_row .. of `next`.
  void hidden_piece(const Group& group, int64_t row, const Group* next, int64_t next_row,
                    std::byte* scratch) {
    auto* own = reinterpret_cast<HiddenScratch*>(scratch + kernel_bytes());
    const int64_t step = std::min(group.kernels->few_rows, kHiddenBlock);
    const std::byte* packed = packed_at(b_.packed_x, group, dim_);
    for (int64_t done = 0; done < group.count; done += kTokenBlock) {
      const int64_t first = group.first + done;
      const int64_t count = std::min(kTokenBlock, group.count - done);
      for (int64_t r = row; r < row + kHiddenBlock; r += step) {
        // A piece's values lie kHiddenBlock apart, column 0 being row `row`.
        Product product{
            .weight = group.w1,
            .first_row = r,
            .last_row = r + step,
            .x = b_.x_rows + first,
            .packed = kernels_.pack ? packed + kernels_.packed_bytes(done, dim_) : packed,
            .tokens = count,
            .y = own->gate,
            .y_stride = kHiddenBlock,
            .y_first_row = row};
        announce(product, group.w3, r, r + step);
        group.kernels->multiply(product, scratch);
        product.weight = group.w3;
        product.y = own->up;
        product.next_codes = product.next_scales = {};
        if (r + step < row + kHiddenBlock) {
          announce(product, group.w1, r + step, r + 2 * step);
        } else if (next) {
          announce(product, next->w1, next_row, next_row + step);
        }
        group.kernels->multiply(product, scratch);
      }
      for (int64_t i = 0; i < count; ++i) {
        kernels_.gated(own->gate + i * kHiddenBlock, own->up + i * kHiddenBlock, kHiddenBlock,
                       args_.limit, b_.weight_of[first + i], own->hidden);
        group.kernels->quantize(own->hidden, row, kHiddenBlock, group.w2.format,
                                b_.hidden + (first + i) * b_.hidden_stride);
      }
      if (!group.kernels->pack) continue;
      for (int64_t at = done; at < done + count; at += kPackTokens) {
        pack(group, at / kPackTokens, b_.hidden_rows, width_, row, kHiddenBlock, b_.packed_hidden);
      }
    }
  }

  void output_piece(const Group& group, int64_t first, int64_t last, Product& product,
                    std::byte* scratch) {
    product.weight = group.w2;
    product.first_row = first;
    product.last_row = last;
    product.x = b_.hidden_rows + group.first;
    product.packed = packed_at(b_.packed_hidden, group, width_);
    product.tokens = group.count;
    product.y = b_.y + group.first * dim_;
    product.y_stride = dim_;
    group.kernels->multiply(product, scratch);
  }

  int64_t result_pieces() const { return wanted_ ? b_.pairs : tokens_ * column_blocks(); }

  // Some columns of a token's experts added up, or an output of one.
  void result_piece(int64_t piece) {
    if (wanted_) {
      std::copy_n(b_.y + piece * dim_, dim_, wanted_->outputs.data + b_.pair_of[piece] * dim_);
      return;
    }
    const int64_t token = piece / column_blocks(), first = piece % column_blocks() * kColumnBlock;
    kernels_.sum_experts(b_.y + first, dim_, b_.rows_of + token * k_, k_,
                         b_.y + (tokens_ * k_ + token) * dim_ + first,
                         std::min(kColumnBlock, dim_ - first), args_.y.row(token) + first);
  }

  Queue& queue_;
  const MatmulKernels& kernels_;  // the shared expert's
  const MatmulKernels& routed_;
  const MoeExpertsArgs& args_;
  const Wanted* wanted_;
  const int64_t tokens_, k_, dim_, width_;
  Buffers b_;
  int64_t groups_ = 0;
  int64_t tiles_ = 0;  // 0: the kernels follow the rows
};

// Whether the outputs are there; else the store says why not.
bool compute(Queue& queue, const MoeExpertsArgs& args, const Wanted* wanted) {
  WeightStore* store = queue.store();
  Step step(queue, args, wanted);
  const auto layer = store && store->experts() ? step.layer_in(*store->experts()) : std::nullopt;
  if (!layer) {
    step.run();
    return true;
  }
  Status status;
  if (!store->failed()) status = step.run_from(*store->experts(), *layer);
  if (!status) store->fail_with(status.error());
  return !store->failed();
}

}  // namespace

void moe_experts(Queue& queue, const MoeExpertsArgs& args) {
  check_shapes(args);
  if (args.x.extent(0) == 0) return;
  if (!compute(queue, args, nullptr)) std::fill_n(args.y.data, args.y.elements(), bf16{});
}

void expert_outputs(Queue& queue, const MoeExpertsArgs& args, const std::vector<bool>& wanted,
                    View<bf16> outputs) {
  CACHALOT_CHECK(wanted.size() == args.experts.size(), "{} experts of {}", wanted.size(),
                 args.experts.size());
  CACHALOT_CHECK(outputs.elements() == args.ids.elements() * args.x.extent(1), "{} outputs",
                 outputs.elements());
  if (args.x.extent(0) == 0) return;
  const Wanted some{wanted, outputs};
  if (!compute(queue, args, &some)) std::fill_n(outputs.data, outputs.elements(), bf16{});
}

}  // namespace cachalot::cpu
