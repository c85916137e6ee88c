#!/bin/sh
# Runs one of the papers' programs as a user would, on device host: what it computes is right, with
# hippogriff and without, and what is damaged is refused. Usage: end_to_end_test.sh PROGRAM ARGUMENTS…
# where each ARGUMENTS is what follows `generate FILE`.
# shellcheck disable=SC2086 # the arguments are words with options
set -eu
program=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HIPPOGRIFF_NODE=off

# shellcheck source=workloads/papers/expect_status.sh
. "$(dirname "$0")/expect_status.sh"

# Writes a byte of another value at an offset: damage FILE OFFSET
damage() {
  old=$(dd if="$1" bs=1 skip="$2" count=1 status=none | od -An -tu1)
  printf '%b' "\\0$(printf %o $(((old + 96) % 256)))" |
    dd of="$1" bs=1 seek="$2" count=1 conv=notrunc status=none
}

# Writes four bytes, a number that is too large whatever its type, or others: spoil FILE OFFSET [BYTES]
spoil() {
  printf %b "${3:-xxxx}" | dd of="$1" bs=1 seek="$2" count=4 conv=notrunc status=none
}
not_a_number='\0377\0377\0377\0177'

for arguments in "$@"; do
  "$program" generate "$folder/in" $arguments
  "$program" generate "$folder/same" $arguments
  cmp "$folder/in" "$folder/same"
  "$program" run "$folder/in" "$folder/out" --device host --json >"$folder/json"
  grep -q '"verb": "run".*"send": .*"kernels": .*"recv": ' "$folder/json"
  "$program" baseline "$folder/in" "$folder/conventional" --device host --json >"$folder/json"
  grep -q '"read": .*"copy_in": .*"kernels": .*"copy_out": .*"write": ' "$folder/json"
  cmp "$folder/out" "$folder/conventional"
  "$program" run "$folder/in" "$folder/sent_first" --device host --send-first >"$folder/said"
  cmp "$folder/out" "$folder/sent_first"
  # As few bytes as a piece may have, so that there are several of them and a last one.
  for threads in 1 3; do
    "$program" pipelined "$folder/in" "$folder/by_hand" --device host --json --threads $threads \
      --piece 64KiB >"$folder/json"
    grep -q '"verb": "pipelined".*"send": .*"kernels": .*"recv": .*"way": "pipelined"' "$folder/json"
    cmp "$folder/out" "$folder/by_hand"
  done
  "$program" check "$folder/in" "$folder/out"
done
expect_status 1 "$program" run "$folder/in" "$folder/in" --device host
ln "$folder/in" "$folder/linked"
expect_status 1 "$program" baseline "$folder/in" "$folder/linked" --device host
"$program" generate "$folder/same" $arguments --seed 77
expect_status 1 cmp "$folder/in" "$folder/same"

# A result with another first, middle or last element, and one that is too short.
size=$(stat -c %s "$folder/out")
for offset in 0 $((size / 2 / 4 * 4)) $((size - 4)); do
  for element in xxxx "$not_a_number"; do
    cp "$folder/out" "$folder/wrong"
    spoil "$folder/wrong" "$offset" "$element"
    expect_status 1 "$program" check "$folder/in" "$folder/wrong"
    grep -q WRONG "$folder/said"
  done
done
cp "$folder/out" "$folder/wrong"
truncate -s -1 "$folder/wrong"
expect_status 1 "$program" check "$folder/in" "$folder/wrong"

# Inputs that are not what they say: another program's, cut, longer, with numbers beyond all bounds.
for offset in 0 8 24 31; do
  cp "$folder/in" "$folder/damaged"
  damage "$folder/damaged" "$offset"
  expect_status 1 "$program" run "$folder/damaged" "$folder/out" --device host
  grep -q "damaged\|no input" "$folder/said"
done
for change in -1 +1 0 100 4096; do
  cp "$folder/in" "$folder/damaged"
  truncate -s "$change" "$folder/damaged"
  expect_status 1 "$program" baseline "$folder/damaged" "$folder/out" --device host
  expect_status 1 "$program" check "$folder/damaged" "$folder/conventional"
done

# Arrays that hold nonsense are computed with or refused, but nothing crashes.
for offset in 4096 $(($(stat -c %s "$folder/in") - 4)); do
  cp "$folder/in" "$folder/damaged"
  spoil "$folder/damaged" "$offset"
  status=0
  "$program" run "$folder/damaged" "$folder/out" --device host >"$folder/said" 2>&1 || status=$?
  test "$status" = 0 || grep -q damaged "$folder/said"
done

if [ "$(basename "$program")" = hybridsort ]; then
  # Keys that have no order among each other are in order all the same.
  cp "$folder/in" "$folder/unordered"
  spoil "$folder/unordered" 4096 "$not_a_number"
  spoil "$folder/unordered" 4100 "$not_a_number"
  "$program" run "$folder/unordered" "$folder/out" --device host
  "$program" check "$folder/unordered" "$folder/out"
fi

# What there is no room for leaves nothing that looks like an input; a link stays.
expect_no_room "$program" generate "$folder/partial" $arguments
test ! -e "$folder/partial"
cp "$folder/in" "$folder/partial"
ln -s partial "$folder/link"
expect_no_room "$program" generate "$folder/link" $arguments
test -h "$folder/link"
test ! -s "$folder/partial"
# Nor does what is killed at its first byte too many.
(
  ulimit -f 1
  expect_status 153 "$program" generate "$folder/link" $arguments
)
test ! -s "$folder/partial"
"$program" generate "$folder/link" $arguments
test -h "$folder/link"
cmp "$folder/in" "$folder/link"
test -z "$(find "$folder" -name '.hippogriff-*')"

expect_status 1 "$program" run "$folder/absent" "$folder/out" --device host
expect_status 2 "$program" run "$folder/in" "$folder/out" --device nowhere:7
expect_status 2 "$program" run "$folder/in" "$folder/out" --pace 3
expect_status 2 "$program" generate "$folder/in" 0
expect_status 2 "$program" generate "$folder/in" twelve
expect_status 2 "$program" generate "$folder/in" 99999999999999999999
expect_status 2 "$program" dance
"$program" --help >"$folder/said"
grep -q " check IN OUT " "$folder/said"
expect_status 2 "$program" pipelined "$folder/in" "$folder/out" --piece 65537
expect_status 2 "$program" pipelined "$folder/in" "$folder/out" --threads 0
expect_status 2 "$program" run "$folder/in" "$folder/out" --threads 2
expect_status 2 "$program" baseline "$folder/in" "$folder/out" --send-first 2>"$folder/said"
grep -q "goes with run" "$folder/said"
"$program" generate "$folder/in" $arguments
# What the result costs is told; a result that cannot be told is a failure.
"$program" run "$folder/in" "$folder/out" --device host --json >"$folder/json"
for word in total_seconds user_seconds minor_faults peak_resident_bytes moved_in_bytes device_bytes stats; do
  grep -q "\"$word\": " "$folder/json"
done
for verb in run pipelined baseline; do
  status=0
  "$program" "$verb" "$folder/in" "$folder/out" --device host --json >/dev/full 2>"$folder/said" || status=$?
  test "$status" = 1
  grep -q "write standard output" "$folder/said"
done
expect_status 3 env HIPPOGRIFF_HOST_MEMORY=4KiB "$program" baseline "$folder/same" "$folder/out" --device host
echo "$(basename "$program") works from end to end"
