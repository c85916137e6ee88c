#!/bin/sh
# Runs `vectoradd` as a user would, on device host or another: all modes write the sum, and files that do not go
# together are refused. Usage: vectoradd_test.sh PROGRAM [DEVICE]
set -eu
program=$1
device=${2:-host}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HIPPOGRIFF_NODE=off

# shellcheck source=workloads/papers/expect_status.sh
. "$(dirname "$0")/../papers/expect_status.sh"

# Whole lines, a last line that is not whole, less than a line, one number; more and fewer tiles than numbers.
for count in 16384 16385 100 1; do
  "$program" generate "$folder/$count" --count $count
  for options in "--cache 512 --line 512" "--cache 48KiB --tiles 1" "--cache 24MiB --line 4KiB" "--tiles 3 --line 1KiB" "--tiles 1000"; do
    # A longer file that is there already is replaced.
    head -c 200000 /dev/zero >"$folder/$count/c"
    # shellcheck disable=SC2086 # options and their values
    "$program" run "$folder/$count" --mode all --device "$device" --check $options >"$folder/said"
    test "$(grep -c '"checked": true' "$folder/said")" = 3
  done
done
# Lines of C that are written as a whole are not read: with a cache for all of it nothing is read twice.
"$program" run "$folder/16384" --device "$device" --json >"$folder/json"
grep -q '"needed_bytes": 262144, "read_bytes": 262144, "amplification": 1, "needed_written_bytes": 131072, "written_bytes": 131072' "$folder/json"

truncate -s -8 "$folder/100/b"
expect_status 1 "$program" run "$folder/100" --device "$device"
grep -q "not as many numbers" "$folder/said"
truncate -s 801 "$folder/100/a" "$folder/100/b"
expect_status 1 "$program" run "$folder/100" --device "$device"
: >"$folder/1/a"
: >"$folder/1/b"
expect_status 1 "$program" run "$folder/1" --device "$device"
expect_no_room "$program" generate "$folder/partial" --count 100
test -z "$(ls "$folder/partial")"
expect_status 1 "$program" run "$folder/absent" --device "$device"
expect_status 2 "$program" run "$folder/16384" --line 600 --device "$device"
expect_status 2 "$program" run "$folder/16384" --line 32KiB --device "$device"
test "$device" != host || expect_status 2 "$program" run "$folder/16384" --warps 32 --device host
expect_status 2 "$program" run "$folder/16384" --mode paper --device "$device"
expect_status 2 "$program" run "$folder/16384" --check --pace 1 --device "$device"
expect_status 2 "$program" generate "$folder/16384" --count 0
expect_status 2 "$program" dance
echo "vectoradd works from end to end"
