// Where memory lies and whether it stays: huge pages, NUMA nodes, locking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/result.h"

namespace cachalot {

// Asks for 2 MB pages for what is whole of them inside; a wish the system may ignore. For memory
// that will be used from end to end: with huge pages the first touch of a page makes 2 MB resident.
void prefer_huge_pages(void* data, size_t bytes);

// Moves what is whole 2 MB pages of a mapped file's part into such pages, read-only, at the same
// addresses: a core that reads it from end to end waits for a five-hundredth of the address
// translations. Nobody may write to the file's part, and what the file becomes is not seen any
// more. `progress` is called with the bytes done so far. Errors: the system grants no such pages;
// no memory.
Status move_to_huge_pages(std::span<const std::byte> part,
                          const std::function<void(int64_t)>& progress = {});

// Bytes of memory that can be had without swapping; 0: unknown.
int64_t available_memory();

// NUMA nodes with memory; 1 where the system does not tell.
int memory_nodes();

// Spreads the pages this thread, and the threads it starts from now on, touch first evenly over all
// nodes, those of mapped files included. Nothing to do on one node.
// Errors: the system refuses.
Status interleave_memory();

// Reads mapped memory in and keeps it there. `progress` is called with the bytes done so far.
// Errors: more than this process may lock, or than there is.
Status lock_memory(std::span<const std::byte> memory,
                   const std::function<void(int64_t)>& progress = {});

}  // namespace cachalot
