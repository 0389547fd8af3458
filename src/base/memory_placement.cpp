#include "base/memory_placement.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

namespace cachalot {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// "0-1,3" -> a bit per node.
uint64_t nodes_of(const char* path) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return 1;
  uint64_t nodes = 0;
  int first = 0;
  while (std::fscanf(file, "%d", &first) == 1) {
    int last = first;
    int next = std::fgetc(file);
    if (next == '-' && std::fscanf(file, "%d", &last) == 1) next = std::fgetc(file);
    for (int node = std::max(first, 0); node <= std::min(last, 63); ++node) {
      nodes |= uint64_t{1} << node;
    }
    if (next != ',') break;
  }
  std::fclose(file);
  return nodes == 0 ? 1 : nodes;
}

uint64_t memory_node_mask() { return nodes_of("/sys/devices/system/node/has_memory"); }

}  // namespace

void prefer_huge_pages(void* data, size_t bytes) {
  const auto start = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (start + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (start + bytes) / kHugePage * kHugePage;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

namespace {

// What the system says under /sys/kernel/mm, the choice taken in brackets.
bool grants_huge_pages() {
  std::FILE* file = std::fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
  if (file == nullptr) return false;
  char text[64] = {};
  const size_t length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  return length > 0 && std::strstr(text, "[never]") == nullptr;
}

// A copy of whole huge pages takes their place.
Status replace_pages(std::byte* pages, size_t bytes) {
  // So much more that it can start where a huge page does.
  void* memory =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail("cannot map {} bytes: {}", bytes, std::strerror(errno));
  auto* first = static_cast<std::byte*>(memory);
  auto* copy = first + (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
  madvise(copy, bytes, MADV_HUGEPAGE);
  std::memcpy(copy, pages, bytes);
  if (mprotect(copy, bytes, PROT_READ) != 0 ||
      mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages) == MAP_FAILED) {
    const int reason = errno;
    munmap(memory, bytes + kHugePage);
    return fail("cannot move {} bytes: {}", bytes, std::strerror(reason));
  }
  if (copy != first) munmap(first, static_cast<size_t>(copy - first));
  const auto behind = static_cast<size_t>(first + kHugePage - copy);
  if (behind > 0) munmap(copy + bytes, behind);
  return {};
}

}  // namespace

Status move_to_huge_pages(std::span<const std::byte> part,
                          const std::function<void(int64_t)>& progress) {
  if (!grants_huge_pages()) {
    return fail(
        "expected huge pages, found none: /sys/kernel/mm/transparent_hugepage/enabled must say "
        "madvise or always");
  }
  constexpr size_t kStep = size_t{256} << 20;
  const auto start = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (start + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (start + part.size()) / kHugePage * kHugePage;
  for (uintptr_t at = first; at < last; at += kStep) {
    const size_t now = std::min<size_t>(kStep, last - at);
    Status status = replace_pages(reinterpret_cast<std::byte*>(at), now);
    if (!status) return status;
    if (progress) progress(static_cast<int64_t>(at + now - first));
  }
  return {};
}

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  int64_t kilobytes = 0;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

int memory_nodes() { return __builtin_popcountll(memory_node_mask()); }

Status interleave_memory() {
  constexpr int kInterleave = 3;  // MPOL_INTERLEAVE of linux/mempolicy.h
  const uint64_t nodes = memory_node_mask();
  if (__builtin_popcountll(nodes) < 2) return {};
  if (syscall(SYS_set_mempolicy, kInterleave, &nodes, 65) == 0) return {};
  return fail("cannot interleave memory over {} nodes: {}", __builtin_popcountll(nodes),
              std::strerror(errno));
}

Status lock_memory(std::span<const std::byte> memory,
                   const std::function<void(int64_t)>& progress) {
  constexpr size_t kStep = size_t{256} << 20;
  for (size_t done = 0; done < memory.size();) {
    const size_t now = std::min(kStep, memory.size() - done);
    // Straight to the system: under a sanitizer mlock() does nothing.
    if (syscall(SYS_mlock, memory.data() + done, now) != 0) {
      const int error = errno;
      rlimit limit{};
      getrlimit(RLIMIT_MEMLOCK, &limit);
      if (error == ENOMEM && limit.rlim_cur != RLIM_INFINITY) {
        return fail(
            "cannot lock {} of {} bytes of memory: this process may lock {}; raise it with "
            "`ulimit -l unlimited` (or LimitMEMLOCK=infinity in a systemd unit)",
            done + now, memory.size(), limit.rlim_cur);
      }
      return fail("cannot lock {} of {} bytes of memory: {}", done + now, memory.size(),
                  std::strerror(error));
    }
    done += now;
    if (progress) progress(static_cast<int64_t>(done));
  }
  return {};
}

}  // namespace cachalot
