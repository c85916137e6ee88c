#!/bin/sh
# Runs the three programs as a user would, small: answers are checked, and failures have their status.
# Usage: sharing_end_to_end_test.sh RISK ALIGN PROTEINS
# shellcheck disable=SC2086 # the programs are words with options
set -eu
risk=$1
align=$2
proteins=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HIPPOGRIFF_NODE="$folder/node" # memory of this test's own

# shellcheck source=workloads/papers/expect_status.sh
. "$(dirname "$0")/../papers/expect_status.sh"

small_risk="$risk --device host --trials 500 --per-trial 20"
small_align="$align --device host --reference 20000 --reads 200"
small_proteins="$proteins --device host --sequences 100 --queries 2 --query 100 --cutoff 30"

for program in "$small_risk" "$small_align" "$small_proteins"; do
  expect_status 0 $program --check --json
  grep -q '"wrong": 0,' "$folder/said"
  checksum=$(sed 's/.*"checksum": "\([0-9a-f]*\)".*/\1/' "$folder/said")
  expect_status 0 $program --memory 16MiB --json
  grep -q "\"checksum\": \"$checksum\"" "$folder/said"
  grep -q '"memory_bytes": 16777216,' "$folder/said"
  expect_status 3 env HIPPOGRIFF_HOST_MEMORY=8MiB $program --memory 16MiB
  expect_status 2 $program --memory 1
  expect_status 2 $program --dance
  expect_status 2 $program --seed
  expect_status 2 $program --device nowhere:7
  expect_status 0 $program --help
done
echo "risk, align and proteins work from end to end"
