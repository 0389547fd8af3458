// What a model needs of a machine and how fast it can be there, from its configuration alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/config.h"

namespace cachalot {

// A part of the checkpoint with what one token of one sequence reads of it.
struct FitPart {
  enum class Kind {
    dense,    // read whole for every step: attention, shared experts, projections, head
    experts,  // routed experts of the stack
    rows,     // looked up row by row: embedding, engram tables
    drafts,   // the draft head
    vision,   // read for images only
  };
  std::string name;
  Kind kind = Kind::dense;
  int64_t bytes = 0;
  int64_t bytes_per_token = 0;  // decode, without drafts and images
};

// In the order of the checkpoint's files; the bytes add up to all its tensors.
std::vector<FitPart> checkpoint_parts(const ModelConfig& config);

// Experts of a layer that `tokens` tokens choose when every expert is as likely.
double experts_chosen(const ModelConfig& config, int64_t tokens);

// Cache bytes one decoded token reads at `context` positions (spec: performance, 1).
int64_t cache_bytes_read(const ModelConfig& config, int64_t context);

// Multiply-adds of the weights for one token of a prompt, counted twice as FLOPs are.
double weight_flops(const ModelConfig& config);

struct FitRequest {
  int64_t memory = 0;     // bytes this process may use
  int64_t context = 0;    // positions per sequence
  int64_t sequences = 1;  // at a time
  bool drafts = true;     // keep the draft head in memory
  double memory_bytes_per_second = 0;
  double disk_bytes_per_second = 0;  // 0: unknown
  double operations_per_second = 0;  // of the path matrix products take; 0: unknown
};

// What of a model lies on the host, in bytes: without a GPU all of it.
struct HostPart {
  int64_t resident = 0;         // must stay in memory
  int64_t experts = 0;          // routed ones
  int64_t rows = 0;             // of tables, looked up
  int64_t chosen_of_layer = 0;  // the experts one token chooses of a layer
};

// Where that lies: what is resident in memory, then as many experts as there is room for, then
// rows.
struct HostMemory {
  int64_t resident = 0;
  int64_t experts_in_memory = 0, experts_on_disk = 0;
  int64_t rows_in_memory = 0, rows_on_disk = 0;
  bool fits = false;         // the resident part fits, with one layer's chosen experts beside it
  int64_t least_memory = 0;  // what it takes for that

  int64_t in_memory() const { return resident + experts_in_memory + rows_in_memory; }
  double experts_missed() const;  // the part of experts that is on disk
  double rows_missed() const;     // the same of rows
};

HostMemory divide_memory(int64_t memory, const HostPart& part);

// resident: all but routed experts and looked up rows.
struct Fit : HostMemory {
  std::vector<FitPart> parts;
  int64_t caches = 0;  // of all sequences at full context
  // Of one step over all sequences at full context, routing taken as even.
  double bytes_from_memory = 0, bytes_from_disk = 0;
  // Of all sequences together; 0: experts come from a disk whose speed is needed. Rows of the
  // tables are so few bytes that they are left out without one.
  double tokens_per_second = 0;
  double prompt_tokens_per_second = 0;  // at the peak of the machine; 0: unknown
};

Fit fit(const ModelConfig& config, const FitRequest& request);

}  // namespace cachalot
