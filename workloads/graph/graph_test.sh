#!/bin/sh
# Runs `graph` as a user would, on device host or another: all modes give what the oracle says, and damaged graphs are
# refused. Usage: graph_test.sh PROGRAM [DEVICE]
set -eu
program=$1
device=${2:-host}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HIPPOGRIFF_NODE=off

# shellcheck source=workloads/papers/expect_status.sh
. "$(dirname "$0")/../papers/expect_status.sh"

# Writes bytes at an offset: spoil FILE OFFSET BYTES
spoil() {
  printf %b "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# A graph is the same however much memory it is made with, and another for another seed or kind.
"$program" generate "$folder/graph" --scale 11
"$program" generate "$folder/same" --scale 11 --memory 10000
cmp "$folder/graph" "$folder/same"
"$program" generate "$folder/same" --scale 11 --seed 1
expect_status 1 cmp "$folder/graph" "$folder/same"
"$program" generate "$folder/same" --scale 11 --device "$device"
cmp "$folder/graph" "$folder/same"
"$program" generate "$folder/same" --scale 11 --device host
cmp "$folder/graph" "$folder/same"
"$program" generate "$folder/uniform" --scale 9 --kind uniform --edge-factor 3
"$program" generate "$folder/tiny" --scale 1 --edge-factor 1
# One vertex' list is longer than what a warp takes at a time.
"$program" generate "$folder/dense" --scale 12 --edge-factor 600

for graph in graph uniform tiny dense; do
  for algorithm in bfs "bfs --top-down" cc pagerank; do
    # shellcheck disable=SC2086 # an algorithm and an option
    "$program" run "$folder/$graph" --algorithm $algorithm --mode all --check --json --device "$device" \
      --cache 32KiB --line 512 --sources 3 --iterations 3 >"$folder/json"
    test "$(grep -c '"checked": true' "$folder/json")" = 4
  done
done
# By tiles: of one neighbour each, of which two are in memory; so small that most lists lie in several; a last one that
# is short; one for all.
tiled() {
  graph=$1
  options=$2
  shift 2
  for algorithm in bfs "bfs --top-down" cc pagerank; do
    # shellcheck disable=SC2086 # options and their values
    "$program" run "$folder/$graph" --algorithm $algorithm --mode tiled --check --json --device "$device" \
      --sources 2 --iterations 3 $options >"$folder/json"
    grep -q '"checked": true' "$folder/json"
    for word; do
      grep -q "\"$word" "$folder/json"
    done
  done
}
read_by_tiles() {
  sed -n 's/.*"read_bytes": \([0-9]*\).*/\1/p' "$folder/json"
}
tiled tiny "--cache 512 --tile 1"
"$program" generate "$folder/edgeless" --scale 1 --edge-factor 1 --kind uniform --seed 4 --device host
test "$(stat -c %s "$folder/edgeless")" = 8192
tiled edgeless "" 'read_bytes": 0'
tiled uniform "--cache 512 --tile 4" 'tile_bytes": 4, "tiles_in_memory": 128'
tiled graph "--cache 512" 'tile_bytes": 128, "tiles_in_memory": 4'
tiled dense "--cache 256KiB --tile 30001" 'tile_bytes": 28672, "tiles_in_memory": 9'
# What all finds room for is read once, by all passes together: here by three iterations.
tiled graph "--cache 1MiB --tile 8KiB"
test "$(read_by_tiles)" = "$(sed -n 's/.*"data_bytes": \([0-9]*\).*/\1/p' "$folder/json")"
# Each pass but the first finds the last one's four tiles.
tiled graph "--cache 32KiB" 'tile_bytes": 8192, "tiles_in_memory": 4'
size=$(sed -n 's/.*"data_bytes": \([0-9]*\).*/\1/p' "$folder/json")
last=$(((size - 1) % 8192 + 1))
test "$(read_by_tiles)" = $((3 * size - (3 * 8192 + last) - 4 * 8192))
# Components are found in one pass. A search leaves out tiles without a vertex whose list it reads: of a level of its own
# most, where few vertices are reached at a time.
"$program" run "$folder/graph" --algorithm cc --mode tiled --device "$device" --cache 32KiB --json >"$folder/json"
grep -q '"passes": 1,' "$folder/json"
test "$(read_by_tiles)" = "$size"
"$program" run "$folder/graph" --mode tiled --device "$device" --cache 4KiB --top-down --json >"$folder/json"
passes=$(sed -n 's/.*"passes": \([0-9]*\).*/\1/p' "$folder/json")
test "$passes" -gt 2
test "$(read_by_tiles)" -lt $((size * (passes - 1)))
"$program" run "$folder/graph" --mode array --check --json --device "$device" --cache 512 --line 512 >"$folder/json"
for word in open compute total_seconds edges_per_second needed_bytes read_bytes amplification misses; do
  grep -q "\"$word\": " "$folder/json"
done
# From below a search reads less.
read_of() {
  "$program" run "$folder/larger" --mode array --device host --cache 512KiB --json "$@" |
    sed -n 's/.*"read_bytes": \([0-9]*\).*/\1/p'
}
"$program" generate "$folder/larger" --scale 15 --device host
test "$(read_of)" -lt "$(read_of --top-down)"
# A cache that holds all of it reads nothing twice.
"$program" run "$folder/graph" --algorithm pagerank --device "$device" --cache 1MiB --json >"$folder/json"
misses=$(sed -n 's/.*"misses": \([0-9]*\).*/\1/p' "$folder/json")
size=$(sed -n 's/.*"data_bytes": \([0-9]*\).*/\1/p' "$folder/json")
test "$misses" -le $((size / 4096 + 1))

# What is not what it says: cut, longer, of another program, offsets that fall, start late or end elsewhere.
for change in -1 +1 0 100 4096; do
  cp "$folder/uniform" "$folder/damaged"
  truncate -s "$change" "$folder/damaged"
  expect_status 1 "$program" run "$folder/damaged" --device "$device"
  grep -q "damaged\|no input" "$folder/said"
done
for offset in 0 8 24 29 4096 4112 $((4096 + 512 * 8)); do
  cp "$folder/uniform" "$folder/damaged"
  spoil "$folder/damaged" "$offset" '\0377\0377'
  expect_status 1 "$program" run "$folder/damaged" --device "$device"
  grep -q "damaged\|no input" "$folder/said"
done
# Neighbours that are no vertices are seen by the kernels that read them, whatever the mode: the first one, the last one.
for which in "cc 12288" "pagerank $(($(stat -c %s "$folder/uniform") - 4))"; do
  cp "$folder/uniform" "$folder/damaged"
  spoil "$folder/damaged" "${which#* }" '\0377\0377\0377\0377'
  for mode in array resident zero-copy tiled; do
    expect_status 1 "$program" run "$folder/damaged" --algorithm "${which% *}" --mode $mode --device "$device"
    grep -q "damaged.*no vertices" "$folder/said"
  done
done
expect_status 1 "$program" run "$folder/damaged" --check --device "$device"

# What there is no room for leaves nothing.
for where in "" "--device $device"; do
  # shellcheck disable=SC2086 # an option and its value
  expect_no_room "$program" generate "$folder/partial" --scale 11 $where
  test ! -e "$folder/partial"
done
expect_status 1 "$program" run "$folder/absent" --device "$device"
expect_status 1 "$program" generate "$folder/absent/graph"
for wrong in "--algorithm sort" "--mode paper" "--source 512" "--line 600 --mode array" "--pace 3" "--cache"; do
  # shellcheck disable=SC2086 # options and their values
  if "$program" run "$folder/uniform" --device "$device" $wrong >"$folder/said" 2>&1; then
    echo "not refused: $wrong" >&2
    exit 1
  fi
  test -s "$folder/said"
done
expect_status 2 "$program" generate "$folder/same" --scale 32
expect_status 2 "$program" generate "$folder/same" --device nowhere:7
expect_status 2 "$program" run "$folder/uniform" --device nowhere:7
expect_status 2 "$program" dance
echo "graph works from end to end"
