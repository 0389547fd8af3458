// What tests of this directory share: a file of random bytes, and a listener that remembers.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <string>

#include "base/check.h"
#include "storage/file_reader.h"

namespace cachalot {

class TestFile {
 public:
  explicit TestFile(size_t bytes) {
    std::string pattern = (std::filesystem::temp_directory_path() / "cachalot-XXXXXX").string();
    const int descriptor = ::mkstemp(pattern.data());
    CACHALOT_CHECK(descriptor >= 0, "{}", pattern);
    path_ = pattern;
    std::mt19937_64 random(bytes);
    while (content_.size() < bytes) {
      const uint64_t word = random();
      content_.append(reinterpret_cast<const char*>(&word), sizeof word);
    }
    content_.resize(bytes);
    std::ofstream(path_, std::ios::binary) << content_;
    ::close(descriptor);
  }
  ~TestFile() { std::filesystem::remove(path_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::string& content() const { return content_; }

 private:
  std::filesystem::path path_;
  std::string content_;
};

// Per tag the error, empty for a read that succeeded.
class ReadLog final : public ReadListener {
 public:
  void read_done(const FileRead& read, const Status& status) override {
    const std::lock_guard lock(mutex_);
    errors[read.tag] = status ? "" : status.error().message;
    arrived_.notify_all();
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return errors.size() == count; });
  }

  std::map<uint64_t, std::string> errors;

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
};

}  // namespace cachalot
