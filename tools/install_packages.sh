#!/usr/bin/env bash
# Installs the Debian packages the project needs, those that are missing only.
#   tools/install_packages.sh            to build, run and test
#   tools/install_packages.sh format     clang-format
#   tools/install_packages.sh tidy       clang-tidy
#   tools/install_packages.sh clients    to test with clients' own libraries and a browser
#   tools/install_packages.sh fuzz       clang with libFuzzer
set -euo pipefail

compilers=(g++ cmake ninja-build pkg-config)
libraries=(nlohmann-json3-dev libfmt-dev libexpected-dev libcli11-dev libpcre2-dev libutf8proc-dev
           libedit-dev liburing-dev libboost-dev libjpeg62-turbo-dev libpng-dev libwebp-dev
           libgif-dev libxxhash-dev libmd-dev libcurl4-openssl-dev)
page=(libjs-marked node-dompurify libjs-katex libjs-highlight.js)  # embedded in the web page
tests=(libgtest-dev python3)

case "${1:-build}" in
  build) packages=("${compilers[@]}" "${libraries[@]}" "${page[@]}" "${tests[@]}") ;;
  format) packages=(clang-format) ;;
  tidy) packages=("${compilers[@]}" "${libraries[@]}" "${page[@]}" "${tests[@]}" clang-tidy) ;;
  clients) packages=(python3-venv chromium fonts-dejavu-core) ;;
  fuzz) packages=("${compilers[@]}" "${libraries[@]}" "${page[@]}" clang llvm libclang-rt-dev python3) ;;
  *) sed -n '2,7p' "$0"; exit 2 ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  for tool in g++ cmake ninja pkg-config; do
    command -v "$tool" >/dev/null && continue
    echo "error: $tool not found, and this script knows only apt-get (Debian 12)." >&2
    echo "Install what these Debian packages hold, then run the command again:" >&2
    echo "  ${packages[*]}" >&2
    exit 1
  done
  echo "No apt-get here: using what is installed (needed: ${packages[*]})."
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "error: these packages are missing and installing them needs root (no sudo here):" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing: ${missing[*]}"
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" >"$log" 2>&1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Lists may be absent or old: the first failure fetches them.
if ! install; then
  "${as_root[@]}" apt-get update -qq
  if ! install; then
    tail -n 20 "$log" >&2
    echo "error: apt-get could not install: ${missing[*]}" >&2
    exit 1
  fi
fi
