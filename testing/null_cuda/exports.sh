#!/usr/bin/env bash
# The shim's dynamic symbols are the driver's functions: by the compiler's reading of cuda.h, by the
# generator's list, or by the driver of this machine (77: it has none).
# usage: exports.sh headers SHIM NAMES INCLUDE_FOLDER COMPILER | exports.sh driver SHIM
set -euo pipefail

functions_of() {
  nm --dynamic --defined-only "$1" | awk '$2 ~ /[TWi]/ {print $3}' | sed 's/@.*//' |
    grep -E '^cu[A-Z]' | sort -u
}

exported=$(functions_of "$2")
case "$1" in
  headers)
    wanted=$(echo '#include <cuda.h>' |
      "$5" -x c++ -E -D__CUDA_API_VERSION_INTERNAL -I"$4" - |
      grep -oE '\bcu[A-Z][A-Za-z0-9_]* *\(' | tr -d ' (' | sort -u)
    if ! diff <(sort -u "$3") <(echo "$exported"); then
      echo "the generator's names (<) are not those that $2 exports (>)" >&2
      exit 1
    fi
    soname=$(readelf --dynamic "$2" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    if [ "$soname" != libcuda.so.1 ]; then
      echo "$2 calls itself $soname" >&2
      exit 1
    fi
    ;;
  driver)
    driver=$(ldconfig -p 2>/dev/null | sed -n 's/.*libcuda\.so\.1 .*=> //p' | head -n 1)
    if [ ! -e "$driver" ]; then
      echo "skipped: this machine has no CUDA driver"
      exit 77
    fi
    wanted=$(functions_of "$driver")
    ;;
esac

if [ "$(wc -l <<<"$wanted")" -lt 400 ]; then
  echo "only $(wc -l <<<"$wanted") functions were found to look for" >&2
  exit 1
fi
missing=$(comm -23 <(echo "$wanted") <(echo "$exported"))
if [ -n "$missing" ]; then
  echo "$2 lacks functions (src/shim/extra_names.txt takes new ones):" >&2
  echo "$missing" >&2
  exit 1
fi
echo "$(wc -l <<<"$wanted") functions, all among the $(wc -l <<<"$exported") exported"
