#!/usr/bin/env bash
# tools/run_fuzzers.sh FOLDER SECONDS: runs every *_fuzz in FOLDER for SECONDS each.
# Seeds come from fuzz/make_seeds.py. What is found stays in FOLDER/corpus/NAME; an input that
# crashes is left in FOLDER and named.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,4p' "$0"; exit 2; }
folder=$1 seconds=$2
root=$(cd "$(dirname "$0")/.." && pwd)
failed=()
ran=0
for fuzzer in "$folder"/*_fuzz; do
  [ -x "$fuzzer" ] || continue
  name=$(basename "$fuzzer")
  corpus=$folder/corpus/$name
  mkdir -p "$corpus"
  seeds=$folder/seeds/$name
  python3 "$root/fuzz/make_seeds.py" "$name" "$seeds"
  echo "== $name, $seconds s"
  if ! "$fuzzer" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -print_final_stats=1 \
      -dict="$root/fuzz/$name.dict" -artifact_prefix="$folder/$name-" "$corpus" "$seeds" 2>"$folder/$name.log"; then
    failed+=("$name")
    tail -n 30 "$folder/$name.log"
  fi
  grep -E 'number_of_executed_units|new_units_added' "$folder/$name.log" || true
  ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || { echo "error: no *_fuzz in $folder" >&2; exit 1; }
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
echo "$ran fuzzers ran $seconds s each and found nothing"
