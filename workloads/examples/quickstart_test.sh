#!/bin/sh
# Each program given copies a file of odd size through the device, and fails where there is no file.
# Usage: quickstart_test.sh PROGRAM...
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
head -c 12345679 /dev/urandom >"$folder/in"
for program in "$@"; do
  "$program" "$folder/in" "$folder/out"
  cmp "$folder/in" "$folder/out"
  rm "$folder/out"
  if "$program" "$folder/absent" "$folder/out" 2>"$folder/failure"; then
    echo "$program should have failed without a file" >&2
    exit 1
  fi
  grep absent "$folder/failure"
done
