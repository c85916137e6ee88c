#!/bin/sh
# Runs `blocks` as a user would, on device host or another: all blocks are read and written, each once, and what is
# wrong in the file is found. Usage: blocks_test.sh PROGRAM [DEVICE]
set -eu
program=$1
device=${2:-host}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HIPPOGRIFF_NODE=off
file=$folder/file

# shellcheck source=workloads/papers/expect_status.sh
. "$(dirname "$0")/../papers/expect_status.sh"

# Turns a byte of the file at an offset into another.
flip() {
  byte=$(od -An -tu1 -j "$1" -N 1 "$file" | tr -d ' ')
  printf "%b" "\\0$(printf '%o' $((byte ^ 255)))" | dd of="$file" bs=1 seek="$1" conv=notrunc 2>/dev/null
}

# A power of two, other numbers, a last block that is not whole, one block; caches of one block and of a few.
for size in 1048576 700000 66000 65536; do
  for options in "--block 512 --cache 512" "--cache 48KiB --io cached --ahead 0" "--block 64KiB" "--block 1KiB --ahead 9"; do
    "$program" generate "$file" --size $size
    # shellcheck disable=SC2086 # options and their values
    "$program" run "$file" --mode all --device "$device" --check $options >"$folder/said"
    test "$(grep -c '"amplification": 1, .*"checked": true' "$folder/said")" = 2
    # shellcheck disable=SC2086 # a second time with something else
    expect_status 0 "$program" run "$file" --mode write --device "$device" --check --new-seed 9 $options
    test "$(stat -c %s "$file")" = $size
  done
done

# Of many blocks a few: what is read is what was asked for, and the others stay as they are.
"$program" generate "$file" --size 1MiB --seed 5
"$program" run "$file" --mode all --seed 5 --count 100 --device "$device" --check --json >"$folder/json"
grep -q '"needed_bytes": 409600, "read_bytes": 409600, "written_bytes": 0, "misses": 100, "overwritten": 0' "$folder/json"
grep -q '"needed_written_bytes": 409600, "read_bytes": 0, "written_bytes": 409600, "misses": 0, "overwritten": 100' "$folder/json"
# They are not what `generate` wrote any more.
expect_status 1 "$program" run "$file" --seed 5 --count 100 --device "$device"
grep -q "WRONG: 51200 words in 100 blocks" "$folder/said"

# One byte.
"$program" generate "$file" --size 1MiB
if [ "$device" != host ]; then # few warps, and lines that are asked for ahead
  expect_status 0 "$program" run "$file" --device "$device" --warps 8 --ahead 16
fi
flip 700001
expect_status 1 "$program" run "$file" --device "$device"
grep -q "WRONG: 1 words in 1 blocks" "$folder/said"
expect_status 1 "$program" run "$file" --mode write --count 1 --device "$device" --check
grep -q "WRONG: block 170, which was not written, of " "$folder/said"
expect_status 1 "$program" run "$file" --seed 2 --device "$device"

expect_status 1 "$program" run "$file" --count 257 --device "$device"
grep -q "has 256 blocks of 4096 bytes" "$folder/said"
: >"$file"
expect_status 1 "$program" run "$file" --device "$device"
expect_status 1 "$program" run "$folder/absent" --device "$device"
expect_no_room "$program" generate "$folder/partial" --size 4096
test ! -e "$folder/partial"
expect_status 2 "$program" generate "$file" --size 511
expect_status 2 "$program" generate "$file" --size 1001
for options in "--block 600" "--block 256" "--block 128KiB" "--mode resident" "--io fast" "--new-seed 1" "--pace 1"; do
  # shellcheck disable=SC2086 # an option and its value
  expect_status 2 "$program" run "$file" --device "$device" $options
done
expect_status 2 "$program" run "$file" --device host --warps 8
expect_status 2 "$program" dance
echo "blocks works from end to end"
