#!/usr/bin/env bash
# Runs the benchmarks of this folder on this machine within a time budget.
#
# Usage: bench/run_all.sh [SECONDS] [PART...]
#   SECONDS  for everything together, default 540
#   PART     cached, cold, back, latency, kvikio, first, lud: default all of them
# Environment:
#   BUILD     folder with bin/transfer_bench and libhippogriff.so, default build
#   RESULTS   where the JSON files go, default bench/results
#   DIRS      directories for the files, default "$PWD/build/bench_files,/dev/shm"
#   DEVICE    cuda:0 or host, default the first GPU
#   SIZES     as transfer_bench --sizes; QUICK=1 for sizes up to 256 MiB without sweeps
#   COMMIT    recorded with the results, default from git
#   WHEELS    folder with the wheels of KvikIO for a machine without registries (bench/README.md)
#   PYTHON    default python3
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-540}
shift || true
parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then
  parts=(latency cached cold back lud kvikio first)
fi
build=$(realpath "${BUILD:-build}")
results=${RESULTS:-bench/results}
dirs=${DIRS:-$build/bench_files,/dev/shm}
python=${PYTHON:-python3}
commit=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
name=$(hostname)-$(date -u +%Y%m%dT%H%M%SZ)
name=${NAME:-$name}
mkdir -p "$results"
for directory in ${dirs//,/ }; do
  mkdir -p "$directory"
done

# The router learns from these runs; what it learnt on this machine before stays out of them.
export HIPPOGRIFF_CALIBRATION=${HIPPOGRIFF_CALIBRATION:-$build/bench_calibration.json}
export HIPPOGRIFF_LIBRARY=$build/libhippogriff.so
export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PYTHONUNBUFFERED=1

remove_files() {
  for directory in ${dirs//,/ }; do
    rm -f "$directory"/hippogriff_bench_{in,out}.bin
  done
  rm -rf "${wheel_site:-}"
}
trap remove_files EXIT

# Each part's share of the time is its weight.
declare -A weight=([latency]=14 [cached]=26 [cold]=32 [back]=26 [lud]=5 [kvikio]=30 [first]=10)
total=0
for part in "${parts[@]}"; do
  total=$((total + ${weight[$part]:?unknown part: $part}))
done
end=$((SECONDS + seconds))
left_weight=$total

common=(--commit "$commit" --dirs "$dirs" --keep-files)
if [ -n "${DEVICE:-}" ]; then
  common+=(--device "$DEVICE")
fi
if [ -n "${SIZES:-}" ]; then
  common+=(--sizes "$SIZES")
fi
if [ -n "${QUICK:-}" ]; then
  common+=(--quick)
fi
calibrated=

# What earlier parts did not use goes to the later ones.
budget_of() {
  echo $(((end - SECONDS) * ${weight[$1]} / left_weight))
}

transfer() {
  local part=$1 budget=$2
  shift 2
  local calibrate=()
  if [ -z "$calibrated" ]; then
    calibrate=(--calibrate)
    calibrated=1
  fi
  "$build/bin/transfer_bench" "${common[@]}" "${calibrate[@]}" --budget-seconds "$budget" \
    --json "$results/$name-$part.json" "$@"
}

from_python() {
  local options=("${common[@]}" --budget-seconds "$2" --json "$results/$name-$1.json")
  shift 2
  if [ -n "${WHEELS:-}" ] && [ -z "${wheel_site:-}" ]; then
    wheel_site=$(mktemp -d)
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
      --target "$wheel_site" "$WHEELS"/*.whl
  fi
  if [ -z "${DEVICE:-}" ] && ! "$python" -c 'import cupy; cupy.cuda.Device(0).compute_capability' \
    2>/dev/null; then
    options+=(--device host)
  fi
  PYTHONPATH=python:${wheel_site:-}${PYTHONPATH:+:$PYTHONPATH} \
    "$python" -m bench.kvikio_bench "${options[@]}" "$@"
}

# The papers' example beside the conventional program, three times each in turns.
lud() {
  local folder=${dirs%%,*}/lud n=${LUD_N:-16384}
  if [ -n "${QUICK:-}" ]; then
    n=2048
  fi
  local device=()
  if [ -n "${DEVICE:-}" ]; then
    device=(--device "$DEVICE")
  elif ! command -v nvidia-smi >/dev/null; then
    n=$((n < 2048 ? n : 2048))
  fi
  mkdir -p "$folder"
  "$build/bin/lud" generate "$folder/in" "$n"
  for _ in 1 2 3; do
    timeout "$1" "$build/bin/lud" run "$folder/in" "$folder/out" "${device[@]}"
    timeout "$1" "$build/bin/lud" baseline "$folder/in" "$folder/baseline" "${device[@]}"
  done | tee "$results/$name-lud.txt"
  "$build/bin/lud" check "$folder/in" "$folder/out" | tee -a "$results/$name-lud.txt"
  rm -rf "$folder"
}

for part in "${parts[@]}"; do
  budget=$(budget_of "$part")
  left_weight=$((left_weight - weight[$part]))
  # The first of it goes to calibrating and to writing the files.
  if [ "$part" = latency ] && [ "$budget" -lt 60 ]; then
    budget=60
  fi
  if [ "$budget" -lt 2 ]; then
    echo "no time left for $part"
    continue
  fi
  echo "== $part, $budget s"
  case $part in
    latency) transfer latency "$budget" --latency-only ;;
    cached) transfer cached "$budget" --no-latency --directions send --states cached ;;
    cold) transfer cold "$budget" --no-latency --directions send --states half_cached,striped,cold ;;
    back) transfer back "$budget" --no-latency --directions recv --states empty_file ;;
    lud) lud "$budget" ;;
    kvikio) from_python kvikio "$budget" ;;
    first) from_python first "$budget" --states first --directions send --no-sweep ;;
  esac
done
