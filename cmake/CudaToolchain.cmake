# The CUDA backend is not written yet. What can be checked today is the machine: enable_language
# compiles and links a kernel-bearing program for CMAKE_CUDA_ARCHITECTURES (sm_90a by the preset).
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "CACHALOT_CUDA=ON needs nvcc (CUDA 12 or later): put it in PATH or set CUDACXX")
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
enable_language(CUDA)
message(STATUS "nvcc ${CMAKE_CUDA_COMPILER_VERSION} compiles for ${CMAKE_CUDA_ARCHITECTURES}; "
  "this version has no CUDA backend, the program runs on the CPU")
