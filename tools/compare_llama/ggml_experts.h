// The same layer on ggml's CPU backend: MXFP4 experts (the released bits, in its order), the shared
// expert as Q8_0, its nearest to FP8.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "expert_weights.h"

namespace cachalot::compare {

class GgmlExperts {
 public:
  // The kinds of memory its CPU backend can hold these weights in: plain, and repacked for the
  // processor where it has such a form.
  static std::vector<std::string> layouts();
  // It logs every tensor it repacks.
  static void silence();

  // Holds a copy of the weights in that layout. Where the backend cannot, available() is false.
  GgmlExperts(const ExpertWeights& weights, const std::string& layout, int threads);
  ~GgmlExperts();

  bool available() const;
  // Once per batch, before it runs.
  void prepare(const Batch& batch);
  void run();
  std::vector<float> result() const;  // [tokens, dim]

  // Its threads spin for a while after a run; paused they leave the processor alone.
  void pause();
  void resume();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cachalot::compare
