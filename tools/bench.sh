#!/usr/bin/env bash
# tools/bench.sh PROGRAM MODEL: speed of a long prompt and of a reply of 128 tokens, three times.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2p' "$0"; exit 2; }
program=$1 model=$2
text=$(dirname "$0")/../docs/architecture.md
"$program" version
for _ in 1 2 3; do
  # The end token is forbidden, so that every run measures the same number of tokens.
  head -c 3000 "$text" |
    "$program" run -m "$model" --raw --file - --temperature 0 -n 128 --logit-bias 1=-100 \
      2>&1 >/dev/null | tail -n 1
done
