#include "storage/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace cachalot {
namespace {

// Some filesystems take O_DIRECT at open and refuse the first read.
bool reads_directly(int descriptor) {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  const std::unique_ptr<void, Free> block(
      std::aligned_alloc(static_cast<size_t>(kDirectAlignment), kDirectAlignment));
  return block && ::pread(descriptor, block.get(), kDirectAlignment, 0) >= 0;
}

int open_direct(const char* path) {
  const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (descriptor < 0 || reads_directly(descriptor)) return descriptor;
  ::close(descriptor);
  return -1;
}

}  // namespace

DirectFile::DirectFile(int descriptor, std::string name, int64_t alignment)
    : descriptor_(descriptor), name_(std::move(name)), alignment_(alignment) {}

DirectFile DirectFile::adopt(int descriptor, std::string name) {
  return DirectFile(descriptor, std::move(name), 1);
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      name_(std::move(other.name_)),
      alignment_(other.alignment_) {}

DirectFile::~DirectFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<DirectFile> DirectFile::open(const std::filesystem::path& path, int64_t bytes, bool direct) {
  int descriptor = direct ? open_direct(path.c_str()) : -1;
  const int64_t alignment = descriptor >= 0 ? kDirectAlignment : 1;
  if (descriptor < 0) {
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return fail("{}: cannot open: {}", path.string(), std::strerror(errno));
    // Reading ahead of random pieces is wasted.
    ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
  }
  DirectFile file(descriptor, path.string(), alignment);
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || info.st_size != bytes) {
    return fail("{}: expected {} bytes as when the checkpoint was opened, found {}", file.name(),
                bytes, info.st_size);
  }
  return file;
}

}  // namespace cachalot
