#!/bin/sh
# Runs the program as a user would: generate, run, check, and that check and bad input fail.
# Usage: lud_end_to_end_test.sh LUD
set -eu
lud=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

expect_failure() {
  if "$@" >"$folder/failure" 2>&1; then
    echo "should have failed: $*" >&2
    exit 1
  fi
  cat "$folder/failure"
}

for n in 1 100 515 1500; do
  "$lud" generate "$folder/in" "$n"
  test "$(stat -c %s "$folder/in")" -eq $((n * n * 4))
  "$lud" run "$folder/in" "$folder/out"
  "$lud" check "$folder/in" "$folder/out"
  "$lud" run "$folder/in" "$folder/out_host" --device host
  "$lud" check "$folder/in" "$folder/out_host"
  "$lud" baseline "$folder/in" "$folder/out_baseline" --device host
  cmp "$folder/out_host" "$folder/out_baseline"
  "$lud" pipelined "$folder/in" "$folder/out_by_hand" --device host --piece 64KiB --threads 3
  cmp "$folder/out_host" "$folder/out_by_hand"
done

# What is not in the page cache is read past it, where the file system can do that.
sync "$folder/in"
dd if="$folder/in" iflag=nocache count=0 status=none
"$lud" pipelined "$folder/in" "$folder/out_by_hand" --device host --threads 3 --json >"$folder/json"
grep -q '"past_the_page_cache": ' "$folder/json"
cmp "$folder/out_host" "$folder/out_by_hand"

"$lud" run "$folder/in" "$folder/out" --device host --json >"$folder/json"
grep -q '"verb": "run".*"send": .*"kernels": .*"recv": ' "$folder/json"
"$lud" baseline "$folder/in" "$folder/out" --device host --json >"$folder/json"
grep -q '"read": .*"copy_in": .*"kernels": .*"copy_out": .*"write": ' "$folder/json"

# One page of the result is lost.
dd if=/dev/zero of="$folder/out" bs=4096 seek=700 count=1 conv=notrunc status=none
expect_failure "$lud" check "$folder/in" "$folder/out"
expect_failure "$lud" check "$folder/in" "$folder/absent"
expect_failure "$lud" run "$folder/absent" "$folder/out"
expect_failure "$lud" run "$folder/in" "$folder/out" --device nowhere:7
expect_failure "$lud" generate "$folder/in" 0
expect_failure "$lud" generate "$folder/in" twelve
truncate -s 17 "$folder/in"
expect_failure "$lud" run "$folder/in" "$folder/out"
grep -q "no square matrix" "$folder/failure"
expect_failure "$lud" dance
echo "lud works from end to end"
