#!/usr/bin/env bash
# The library's dynamic symbols are exactly the functions that the headers declare, and it needs no
# CUDA library. usage: exports.sh LIBRARY HEADER…
set -euo pipefail

library=$1
headers=("${@:2}")
exported=$(nm --dynamic --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' | sort -u)
names='(hippogriff|gullfoss)_[a-z_]+|schedGPUInit|preCudaMalloc|postCudaFree'
declared=$(grep -oE "\b($names)\(" <<<"$(grep -h -A1 HIPPOGRIFF_API "${headers[@]}")" |
  tr -d '(' | sort -u)

if [ -z "$declared" ]; then
  echo "${headers[*]} declare no functions" >&2
  exit 1
fi
if ! diff <(echo "$declared") <(echo "$exported"); then
  echo "the functions that ${headers[*]} declare (<) are not those that $library exports (>)" >&2
  exit 1
fi
if needed=$(readelf --dynamic "$library" | grep NEEDED | grep -E 'cuda|cudart|nvidia|stdc|uring'); then
  case "$library" in
    *-address/* | *-thread/*) ;; # The sanitizers' runtimes want the shared C++ library.
    *)
      echo "$library needs a library that may be missing where it runs: $needed" >&2
      exit 1
      ;;
  esac
fi
echo "$(wc -l <<<"$exported") functions"
