#include "storage/slab.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace cachalot {

Result<Slab> Slab::reserve(int64_t bytes, const char* purpose) {
  // Refused here, not by the kernel's killing of the process when the memory is touched.
  const int64_t machine = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  if (bytes > machine) {
    return fail("{}: expected at most the {} bytes of memory of this machine, found {}", purpose,
                machine, bytes);
  }
  Slab slab;
  if (bytes == 0) return slab;
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return fail("{}: cannot reserve {} bytes: {}", purpose, bytes, std::strerror(errno));
  }
  // Fewer pages to pin per direct read, fewer misses when it is computed with. A wish, not a need.
  ::madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  slab.data_ = static_cast<std::byte*>(data);
  slab.bytes_ = bytes;
  return slab;
}

Slab::Slab(Slab&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Slab& Slab::operator=(Slab&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Slab::~Slab() {
  if (data_) ::munmap(data_, static_cast<size_t>(bytes_));
}

}  // namespace cachalot
