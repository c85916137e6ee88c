#!/bin/sh
# Runs `queries` as a user would, on device host or another: all modes give what the oracle says, the converter makes
# columns of CSV files, and damaged columns are refused. Usage: queries_test.sh PROGRAM [DEVICE]
set -eu
program=$1
device=${2:-host}
convert=$(dirname "$0")/convert.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HIPPOGRIFF_NODE=off

# shellcheck source=workloads/papers/expect_status.sh
. "$(dirname "$0")/../papers/expect_status.sh"

"$program" generate "$folder/trips" --rows 50000
"$program" run "$folder/trips" --mode all --device "$device" --cache 64KiB --line 512 --check --json >"$folder/json"
test "$(grep -c '"checked": true' "$folder/json")" = 24
for word in open load compute total_seconds needed_bytes read_bytes amplification misses; do
  grep -q "\"$word\": " "$folder/json"
done
# Every row is wanted, none is, one is, and a part of a row's columns straddles nothing.
"$program" generate "$folder/long" --rows 3000 --long-per-million 1000000
"$program" generate "$folder/short" --rows 3000 --long-per-million 0 --seed 5
"$program" generate "$folder/one" --rows 1 --long-per-million 1000000
for trips in long short one; do
  "$program" run "$folder/$trips" --mode all --device "$device" --cache 512 --line 512 --check >"$folder/said"
  test "$(grep -c '"checked": true' "$folder/said")" = 24
done

# The list is full now and then, or always.
for wanted in 1 7 64; do
  for trips in trips long; do
    "$program" run "$folder/$trips" --query 3 --mode all --device "$device" --cache 64KiB --line 512 --wanted $wanted \
      --check >"$folder/said"
    test "$(grep -c '"checked": true' "$folder/said")" = 4
  done
done

# By tiles each column is read once as a whole, in memory of the cache's size; tiles of one row, a last one that is
# short (50000 is no multiple of 341, nor of 512), one tile for all.
tile_of() {
  # shellcheck disable=SC2086 # options and their values
  "$program" run "$folder/trips" --query "$1" --mode tiled --device "$device" --check --json $2 >"$folder/json"
  grep -q '"checked": true' "$folder/json"
  grep -q "\"tile_bytes\": $3, \"tiles_in_memory\": $4, .*\"read_bytes\": $((400000 * ($1 + 1)))," "$folder/json"
}
tile_of 5 "--cache 64KiB" 16368 4
tile_of 5 "--cache 1MiB --tile 24KiB" 24576 42
tile_of 0 "--cache 1MiB" 262144 2
tile_of 2 "--cache 4MiB" 1044480 2
tile_of 1 "--cache 1GiB" 800000 1
tile_of 0 "--cache 1MiB --tile 512" 512 782
"$program" run "$folder/long" --query 1 --mode tiled --device "$device" --check --cache 512 --tile 1 >"$folder/said"
grep -q '"tile_bytes": 16, "tiles_in_memory": 32' "$folder/said"

# What is not what it says: no float64s, another number of rows, a column that is not there.
for change in -1 +8; do
  cp "$folder/trips/extra.f64" "$folder/extra"
  truncate -s $change "$folder/trips/extra.f64"
  expect_status 1 "$program" run "$folder/trips" --query 2 --device "$device"
  grep -q "extra.f64 is damaged" "$folder/said"
  mv "$folder/extra" "$folder/trips/extra.f64"
done
mv "$folder/trips/mta_tax.f64" "$folder/elsewhere"
expect_status 1 "$program" run "$folder/trips" --query 5 --device "$device"
grep -q "mta_tax.f64" "$folder/said"
"$program" run "$folder/trips" --query 4 --device "$device" --check >"$folder/said"
: >"$folder/one/trip_distance.f64"
expect_status 1 "$program" run "$folder/one" --query 0 --device "$device"
# What there is no room for leaves no column.
expect_no_room "$program" generate "$folder/partial" --rows 3000
test -z "$(ls "$folder/partial")"
expect_status 2 "$program" run "$folder/trips" --query 6 --device "$device"
expect_status 2 "$program" run "$folder/trips" --mode paper --device "$device"
expect_status 2 "$program" generate "$folder/trips" --rows 0
expect_status 2 "$program" dance

# The converter: names of several years, empty fields and lines.
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  echo "no Python 3.10: the converter is not tested"
  exit 0
fi
cat >"$folder/new.csv" <<'END'
VendorID,trip_distance,extra,mta_tax,tolls_amount,improvement_surcharge,total_amount
1,1.5,0.5,0.5,,0.3,9.8
2,40.0,1.0,0.5,6.5,0.3,128.3
1,29.99,0,0.5,0,0.3,80
END
printf 'vendor_id, Trip_Distance, surcharge, mta_tax, Tolls_Amt, Total_Amt\r\n\r\nCMT,50,1,1,8,110\r\n' >"$folder/old.csv"
test "$(python3 "$convert" "$folder/columns" "$folder/new.csv" "$folder/old.csv")" = "4 rows"
"$program" run "$folder/columns" --device "$device" --check >"$folder/said"
# (128.3 - 1 - 0.3 - 6.5 - 0.5) / 40 is 3, (110 - 1 - 8 - 1) / 50 is 2.
grep '"Q5"' "$folder/said" | grep -q '"wanted_rows": 2, "average_miles": 45, "average_dollars_a_mile": 2.5,'
if python3 -c 'import pyarrow.csv, pyarrow.parquet' 2>/dev/null; then
  python3 -c 'import sys; from pyarrow import csv, parquet; parquet.write_table(csv.read_csv(sys.argv[1]), sys.argv[2])' \
    "$folder/new.csv" "$folder/new.parquet"
  python3 "$convert" "$folder/same" "$folder/new.parquet" "$folder/old.csv"
  for column in "$folder"/columns/*.f64; do
    cmp "$column" "$folder/same/$(basename "$column")"
  done
  printf 'nothing of the kind' >"$folder/junk.parquet"
  expect_status 1 python3 "$convert" "$folder/bad" "$folder/junk.parquet"
  grep -q "junk.parquet: " "$folder/said"
else
  echo "no pyarrow: Parquet files are not tested"
fi
printf 'trip_distance,total_amount\n30,far\n' >"$folder/bad.csv"
expect_status 1 python3 "$convert" "$folder/bad" "$folder/bad.csv"
grep -q "bad.csv, line 2: " "$folder/said"
printf 'trip_distance,extra\n30,1\n' >"$folder/bad.csv"
expect_status 1 python3 "$convert" "$folder/bad" "$folder/bad.csv"
grep -q "no column total_amount" "$folder/said"
expect_status 1 python3 "$convert" "$folder/bad" "$folder/absent.csv"
# What cannot be read leaves no column, also behind a file that can, and those that were there as they are.
printf 'trip_distance,total_amount\n30,"1,234.5"\n' >"$folder/bad.csv"
expect_status 1 python3 "$convert" "$folder/bad" "$folder/bad.csv"
expect_status 1 python3 "$convert" "$folder/bad" "$folder/new.csv" "$folder/absent.csv"
test -z "$(ls -A "$folder/bad")"
cp -r "$folder/columns" "$folder/before"
expect_status 1 python3 "$convert" "$folder/columns" "$folder/new.csv" "$folder/bad.csv"
diff -r "$folder/before" "$folder/columns"
# Each as by `open`, not for the owner alone as what is temporary.
umask 022
python3 "$convert" "$folder/columns" "$folder/new.csv" >"$folder/said"
test "$(stat -c %a "$folder/columns/extra.f64")" = 644
test "$(stat -c %s "$folder/columns/extra.f64")" = 24
echo "queries works from end to end"
