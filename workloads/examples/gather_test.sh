#!/bin/sh
# With a GPU the numbers are those of the file, without one the failure names the device.
# Usage: gather_test.sh PROGRAM
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
seq -w 1000000 1999999 >"$folder/numbers" # 8 MB of ordinary bytes, none of which is a NaN
if "$1" "$folder/numbers" 2>"$folder/failure"; then
  exit 0
fi
if [ -e /dev/nvidia0 ]; then
  cat "$folder/failure" >&2
  exit 1
fi
grep cuda:0 "$folder/failure"
