#!/usr/bin/env bash
# tools/compare_llama.sh [--source FOLDER] [OPTIONS]: the experts of a layer at the released size, in
# this program and in llama.cpp's CPU backend, in one run.
#
# llama.cpp comes from the source package of llama-cpp-python (pip), which carries it, or from FOLDER.
# Everything is downloaded and built in a temporary folder, which is removed. CMAKE_OPTIONS are passed
# to cmake (for another machine: -DCACHALOT_STATIC=ON -DGGML_NATIVE=OFF -DGGML_AVX512=ON ...), KEEP
# names a file to copy the program to instead of running it. OPTIONS: compare_llama --help.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${1:-}" = --source ]; then
  source=$(cd "$2" && pwd)
  shift 2
else
  echo "downloading llama-cpp-python's source package ..." >&2
  pip download --quiet --no-deps --no-binary llama-cpp-python -d "$work" llama-cpp-python
  mkdir "$work/package"
  tar -xzf "$work"/llama_cpp_python-*.tar.gz -C "$work/package" --strip-components 1
  source=$work/package/vendor/llama.cpp
fi
[ -f "$source/ggml/CMakeLists.txt" ] || { echo "error: $source: expected llama.cpp, found no ggml/CMakeLists.txt" >&2; exit 1; }

if grep -rqi 'deepseek41' "$source/src"; then
  echo "this llama.cpp knows deepseek41; what is compared is still the experts of one layer"
else
  echo "this llama.cpp does not know deepseek41: its MXFP4 experts are compared"
fi

echo "building ..." >&2
# shellcheck disable=SC2086
cmake -S "$root" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCACHALOT_BUILD_TESTS=OFF \
  -DCACHALOT_LLAMA_SOURCE="$source" ${CMAKE_OPTIONS:-} >"$work/log" 2>&1 &&
  cmake --build "$work/build" --target compare_llama >>"$work/log" 2>&1 ||
  { tail -n 30 "$work/log" >&2; exit 1; }

program=$work/build/tools/compare_llama/compare_llama
if [ -n "${KEEP:-}" ]; then
  strip -o "$KEEP" "$program"
else
  "$program" "$@"
fi
