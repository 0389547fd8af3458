// storage_bench FOLDER [--share S] [--tokens N] [--threads T] [--io auto|io_uring|threads]
//
// How a model runs whose experts do not fit: tokens decoded with room for a share of the experts
// (default 0.25), against what the disk's bandwidth, measured here with the same reader, and the
// misses predict.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <utility>

#include "engine/stored_weights.h"
#include "storage/expert_layout.h"
#include "storage/slab.h"

namespace cachalot {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Settings {
  std::filesystem::path folder;
  double share = 0.25;
  int64_t tokens = 40;
  int threads = 0;
  ReaderKind reader = ReaderKind::best;
};

class Countdown final : public ReadListener {
 public:
  explicit Countdown(int64_t reads) : left_(reads) {}
  void read_done(const FileRead&, const Status& status) override {
    const std::lock_guard lock(mutex_);
    if (!status) failure_ = status.error();
    if (--left_ == 0) done_.notify_all();
  }
  Status wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
    if (failure_) return fail(*failure_);
    return {};
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int64_t left_;
  std::optional<Error> failure_;
};

// Bytes per second of reading whole experts, `at_once` at a time, in random order.
Result<double> disk_bandwidth(const StoredWeights& stored, const Settings& settings, size_t at_once,
                              double seconds) {
  const FileMap map(stored.files);
  CACHALOT_TRY(const auto files, map.open(true));
  CACHALOT_TRY(const auto reader, make_file_reader(settings.reader, files));
  std::vector<ExpertLayout> layouts;
  for (const auto& layer : stored.layers) {
    for (const MappedExpert& expert : layer) layouts.push_back(ExpertLayout::of(expert, map));
  }
  std::mt19937 random(1);
  std::ranges::shuffle(layouts, random);
  const int64_t slot = layouts.front().slot_bytes;
  CACHALOT_TRY(const Slab slab, Slab::reserve(static_cast<int64_t>(at_once) * slot, "reading"));
  std::memset(slab.data(), 0, static_cast<size_t>(slab.bytes()));
  int64_t bytes = 0;
  const double start = now();
  for (size_t first = 0; now() - start < seconds; first += at_once) {
    std::vector<FileRead> reads;
    for (size_t i = 0; i < at_once; ++i) {
      const ExpertLayout& layout = layouts[(first + i) % layouts.size()];
      append_reads(layout, slab.data() + static_cast<int64_t>(i) * slot, reads);
      bytes += layout.file_bytes;
    }
    Countdown countdown(std::ssize(reads));
    for (FileRead& read : reads) read.listener = &countdown;
    reader->start(reads);
    CACHALOT_OK(countdown.wait());
  }
  return static_cast<double>(bytes) / (now() - start);
}

// An engine with room for a number of bytes of experts, and the time its steps took.
class Decoder {
 public:
  static Result<Decoder> open(const std::shared_ptr<const Checkpoint>& checkpoint,
                              const Settings& settings, int64_t budget) {
    EngineOptions options{.threads = settings.threads, .max_context = 4096, .max_step_tokens = 16};
    options.storage.reader = settings.reader;
    options.storage.expert_bytes = budget;
    const ModelConfig& config = checkpoint->config();
    std::vector<int32_t> classes(static_cast<size_t>(config.vocab_size));
    for (size_t i = 0; i < classes.size(); ++i) {
      classes[i] = static_cast<int32_t>(i) %
                   static_cast<int32_t>(std::max<int64_t>(1, config.engram_compressed_vocab_size));
    }
    Decoder decoder;
    CACHALOT_TRY(decoder.engine_, make_engine(checkpoint, classes, options));
    CACHALOT_TRY(decoder.sequence_, decoder.engine_->open_sequence());
    return decoder;
  }

  Status step(std::span<const int32_t> tokens) {
    const SequenceStep part{.sequence = sequence_, .tokens = tokens};
    const double start = now();
    CACHALOT_OK(engine_->step({.sequences = {&part, 1}}));
    seconds_ += now() - start;
    return {};
  }

  // What has passed since the last call.
  double take_seconds() { return std::exchange(seconds_, 0); }
  ExpertCacheStatistics take_statistics() {
    const ExpertCacheStatistics all = *engine_->storage()->statistics().experts;
    ExpertCacheStatistics since = all;
    since.hits -= seen_.hits;
    since.misses -= seen_.misses;
    since.bytes_read -= seen_.bytes_read;
    since.wait_seconds -= seen_.wait_seconds;
    seen_ = all;
    return since;
  }

 private:
  std::unique_ptr<Engine> engine_;
  int32_t sequence_ = 0;
  double seconds_ = 0;
  ExpertCacheStatistics seen_;
};

// The same tokens in turn with all experts in memory and with a share, so that both meet the same
// disturbances.
Status measure(const Settings& settings) {
  CACHALOT_TRY(Checkpoint opened, Checkpoint::open(settings.folder));
  const auto checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
  CACHALOT_TRY(const ModelWeights weights, ModelWeights::bind(*checkpoint));
  const StoredWeights stored = stored_weights(*checkpoint, weights);
  int64_t experts = 0;
  for (const auto& layer : stored.layers) experts += std::ssize(layer);
  const auto at_once = static_cast<size_t>(checkpoint->config().n_activated_experts);
  const int64_t slot = ExpertLayout::of(stored.layers[0][0], FileMap(stored.files)).slot_bytes;
  const auto slots = static_cast<int64_t>(settings.share * static_cast<double>(experts));
  CACHALOT_TRY(Decoder whole, Decoder::open(checkpoint, settings, experts * 2 * slot));
  CACHALOT_TRY(Decoder part,
               Decoder::open(checkpoint, settings, slots * (slot + kDirectAlignment)));

  std::mt19937 random(7);
  const auto draw = [&] {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(checkpoint->config().vocab_size));
  };
  // Until all experts have been read.
  for (int64_t misses = 1; misses > 0;) {
    std::vector<int32_t> chunk(16);
    std::ranges::generate(chunk, draw);
    CACHALOT_OK(whole.step(chunk));
    CACHALOT_OK(part.step(chunk));
    misses = whole.take_statistics().misses;
  }
  part.take_statistics();
  whole.take_seconds();
  part.take_seconds();
  const auto tokens = static_cast<double>(settings.tokens);
  for (int round = 0; round < 3; ++round) {
    CACHALOT_TRY(const double before, disk_bandwidth(stored, settings, at_once, 2));
    for (int64_t i = 0; i < settings.tokens; ++i) {
      const int32_t token = draw();
      CACHALOT_OK((i % 2 == 0 ? whole : part).step({&token, 1}));
      CACHALOT_OK((i % 2 == 0 ? part : whole).step({&token, 1}));
    }
    CACHALOT_TRY(const double after, disk_bandwidth(stored, settings, at_once, 2));
    const double computing = 1e3 * whole.take_seconds() / tokens;
    const double taken = 1e3 * part.take_seconds() / tokens;
    const ExpertCacheStatistics cache = part.take_statistics();
    const double reading =
        1e3 * static_cast<double>(cache.bytes_read) / tokens / ((before + after) / 2);
    fmt::print(
        "{} of {} slots, hit rate {:.3f}, disk {:.2f} and {:.2f} GB/s: {:.1f} ms per token, waited "
        "{:.1f}; predicted {:.1f} = {:.1f} reading + {:.1f} with all in memory; {:.2f} of the "
        "predicted throughput\n",
        cache.slots, experts,
        static_cast<double>(cache.hits) / static_cast<double>(cache.hits + cache.misses),
        before / 1e9, after / 1e9, taken, 1e3 * cache.wait_seconds / tokens, reading + computing,
        reading, computing, (reading + computing) / taken);
  }
  return {};
}

}  // namespace
}  // namespace cachalot

int main(int argc, char** argv) {
  using namespace cachalot;
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (!option.starts_with("--")) {
      settings.folder = option;
      continue;
    }
    ++i;
    if (option == "--share") settings.share = std::atof(value.c_str());
    if (option == "--tokens") settings.tokens = std::atoll(value.c_str());
    if (option == "--threads") settings.threads = std::atoi(value.c_str());
    if (option == "--io" && value == "io_uring") settings.reader = ReaderKind::io_uring;
    if (option == "--io" && value == "threads") settings.reader = ReaderKind::threads;
  }
  if (const Status status = measure(settings); !status) {
    fmt::print(stderr, "error: {}\n", status.error().message);
    return 1;
  }
}
