#include "storage/expert_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "storage/test_file.h"

namespace cachalot {
namespace {

constexpr size_t kCodes = 5000, kScales = 300;

// Some layers of experts in the release's layout, all scales of a layer before its codes, and a
// reader that can be told to fail.
class ExpertCacheTest : public testing::Test, public FileReader, public ReadListener {
 protected:
  void make_layers(size_t count, size_t experts) {
    file_.emplace(100 + count * experts * 3 * (kCodes + kScales));
    const auto bytes = std::as_bytes(std::span(file_->content()));
    size_t next = 100;
    const auto take = [&](size_t length) {
      return bytes.subspan((next += length) - length, length);
    };
    for (size_t l = 0; l < count; ++l) {
      auto& layer = layers_.emplace_back(experts);
      for (MappedExpert& expert : layer) {
        for (const size_t part : {1, 3, 5}) expert[part] = take(kScales);
      }
      for (MappedExpert& expert : layer) {
        for (const size_t part : {0, 2, 4}) expert[part] = take(kCodes);
      }
    }
    map_.emplace(std::vector<MappedPart>{{file_->path(), bytes}});
    files_ = *map_->open(true);
    real_ = *make_thread_reader(files_, 3);
  }

  std::unique_ptr<ExpertCache> cache_of(int64_t slots) {
    const int64_t slot =
        (*ExpertCache::make(*this, *map_, layers_, int64_t{1} << 30))->statistics().slot_bytes;
    auto cache = ExpertCache::make(*this, *map_, layers_, slots * slot + slot - 1);
    EXPECT_EQ((*cache)->statistics().slots, slots);
    return std::move(*cache);
  }

  // One operation; checks every byte. Returns the experts that were there from the start.
  std::set<int32_t> use(ExpertCache& cache, size_t layer, std::vector<int32_t> experts,
                        int64_t tokens = 1) {
    std::vector<ExpertUse> uses;
    for (const int32_t expert : experts) uses.push_back({expert, 1});
    // Nothing arrives before it is known what was there.
    holding_ = true;
    cache.begin(layer, uses, tokens);
    std::set<int32_t> first, all;
    std::span<const ReadyExpert> ready = cache.resident();
    for (const ReadyExpert& expert : ready) first.insert(uses[expert.use].expert);
    holding_ = false;
    real_->start(held_);
    held_.clear();
    do {
      for (const ReadyExpert& expert : ready) {
        EXPECT_TRUE(all.insert(uses[expert.use].expert).second) << "handed out twice";
        const auto& mapped = layers_[layer][static_cast<size_t>(uses[expert.use].expert)];
        for (size_t part = 0; part < kExpertParts; ++part) {
          EXPECT_EQ(std::memcmp(expert.parts[part], mapped[part].data(), mapped[part].size()), 0);
        }
      }
      ready = *cache.next();
    } while (!ready.empty());
    cache.end();
    EXPECT_EQ(all, std::set<int32_t>(experts.begin(), experts.end()));
    return first;
  }

  std::string_view name() const override { return "test"; }
  void start(std::span<const FileRead> reads) override {
    for (FileRead read : reads) {
      read.listener = this;
      listener_ = reads.front().listener;
      if (holding_) {
        held_.push_back(read);
      } else {
        real_->start({&read, 1});
      }
    }
  }
  void read_done(const FileRead& read, const Status& status) override {
    listener_.load()->read_done(read, failing_ ? fail("FILE: offset {}", read.offset) : status);
  }

  std::optional<TestFile> file_;
  std::vector<std::vector<MappedExpert>> layers_;
  std::optional<FileMap> map_;
  std::vector<DirectFile> files_;
  std::atomic<ReadListener*> listener_ = nullptr;
  std::atomic<bool> failing_ = false;
  bool holding_ = false;
  std::vector<FileRead> held_;
  std::unique_ptr<FileReader> real_;
};

TEST_F(ExpertCacheTest, AnExpertIsTwoRunsInTheReleasesLayout) {
  make_layers(2, 4);
  const ExpertLayout layout = ExpertLayout::of(layers_[1][2], *map_);
  ASSERT_EQ(layout.runs.size(), 2u);
  EXPECT_EQ(layout.runs[0].source.bytes, 3 * int64_t{kScales});
  EXPECT_EQ(layout.runs[1].source.bytes, 3 * int64_t{kCodes});
  EXPECT_EQ(layout.file_bytes, 3 * int64_t{kScales + kCodes});
  for (const ExpertRun& run : layout.runs) {
    EXPECT_EQ(run.slot_offset % kDirectAlignment, run.source.offset % kDirectAlignment);
  }
  EXPECT_EQ(layout.slot_bytes % kDirectAlignment, 0);
}

TEST_F(ExpertCacheTest, PartsInNoFileStayWhereTheyAre) {
  make_layers(1, 2);
  const std::vector<std::byte> scales(kScales, std::byte{7});
  layers_[0][1][3] = scales;
  EXPECT_EQ(ExpertLayout::of(layers_[0][1], *map_).parts(nullptr)[3], scales.data());
  use(*cache_of(1), 0, {0, 1});
}

TEST_F(ExpertCacheTest, HandsOutWhatIsThereFirstAndTheRestInRounds) {
  make_layers(2, 6);
  const auto cache = cache_of(2);
  EXPECT_EQ(use(*cache, 0, {1, 2}), std::set<int32_t>{});
  EXPECT_EQ(use(*cache, 0, {0, 1, 2, 3, 4, 5}), (std::set<int32_t>{1, 2}));
  use(*cache, 1, {0, 1, 2, 3, 4, 5});
  const auto statistics = cache->statistics();
  EXPECT_EQ(statistics.hits, 2);
  EXPECT_EQ(statistics.misses, 12);
  EXPECT_EQ(statistics.bytes_read, 12 * 3 * int64_t{kCodes + kScales});
  EXPECT_EQ(cache->uses()[0], (std::vector<int64_t>{1, 2, 2, 1, 1, 1}));
}

TEST_F(ExpertCacheTest, OneSlotIsEnough) {
  make_layers(3, 5);
  const auto cache = cache_of(1);
  for (size_t layer : {0, 1, 2, 0, 1, 2}) use(*cache, layer, {0, 2, 3, 4}, 5);
}

TEST_F(ExpertCacheTest, KeepsWhatIsChosenOften) {
  make_layers(1, 8);
  const auto cache = cache_of(4);
  for (int32_t i = 0; i < 30; ++i) use(*cache, 0, {0, 1, 2 + i % 6});
  // Six experts took turns in what the two favourites left.
  EXPECT_EQ(use(*cache, 0, {0, 1}), (std::set<int32_t>{0, 1}));
}

// With the oldest use going first, layers in turn that do not fit would never find anything.
TEST_F(ExpertCacheTest, TurnsLongerThanTheCacheDoNotFlushIt) {
  make_layers(4, 4);
  const auto cache = cache_of(8);
  for (int turn = 0; turn < 10; ++turn) {
    for (size_t layer = 0; layer < 4; ++layer) use(*cache, layer, {0, 1, 2, 3}, 1);
  }
  const auto statistics = cache->statistics();
  EXPECT_GE(statistics.hits, 9 * 4);
}

TEST_F(ExpertCacheTest, PinnedExpertsStayAndLeaveRoom) {
  make_layers(2, 6);
  const auto cache = cache_of(4);
  const std::vector<ExpertCache::HotExpert> hot = {
      {1, 5, 0.9}, {0, 3, 0.8}, {0, 4, 0.7}, {1, 1, 0.6}};
  ASSERT_TRUE(cache->pin(hot, 1));
  EXPECT_EQ(cache->statistics().pinned, 3);
  for (int i = 0; i < 3; ++i) {
    use(*cache, 0, {0, 1, 2, 5});
    use(*cache, 1, {0, 2, 3, 4});
  }
  EXPECT_EQ(use(*cache, 0, {3, 4}), (std::set<int32_t>{3, 4}));
  EXPECT_EQ(use(*cache, 1, {5}), (std::set<int32_t>{5}));
}

TEST_F(ExpertCacheTest, AFailedReadEndsTheOperationAndIsTriedAgain) {
  make_layers(1, 6);
  const auto cache = cache_of(3);
  use(*cache, 0, {2});
  failing_ = true;
  const std::vector<ExpertUse> uses = {{1, 1}, {2, 1}, {4, 1}};
  cache->begin(0, uses, 1);
  EXPECT_EQ(cache->resident().size(), 1u);
  const auto next = cache->next();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().message.find("FILE: offset"), 0u);
  failing_ = false;
  EXPECT_EQ(use(*cache, 0, {1, 2, 4}), std::set<int32_t>{2});
  failing_ = true;
  EXPECT_FALSE(cache->pin(std::vector<ExpertCache::HotExpert>{{0, 5, 1}}, 0));
  failing_ = false;
}

TEST_F(ExpertCacheTest, RefusesABudgetWithoutRoomForOne) {
  make_layers(1, 2);
  const auto cache = ExpertCache::make(*this, *map_, layers_, 20000);
  ASSERT_FALSE(cache);
  EXPECT_NE(cache.error().message.find("the size of one expert, found 20000"), std::string::npos);
}

}  // namespace
}  // namespace cachalot
