#!/usr/bin/env bash
# The library's dynamic symbols are exactly the functions that the header declares, and it needs no
# CUDA library. usage: exports.sh LIBRARY HEADER
set -euo pipefail

library=$1
header=$2
exported=$(nm --dynamic --defined-only "$library" | awk '{print $3}' | sed 's/@.*//' | sort -u)
declared=$(grep -oE '\b(hippogriff|gullfoss)_[a-z_]+\(' <<<"$(grep -A1 HIPPOGRIFF_API "$header")" |
  tr -d '(' | sort -u)

if [ -z "$declared" ]; then
  echo "$header declares no functions" >&2
  exit 1
fi
if ! diff <(echo "$declared") <(echo "$exported"); then
  echo "the functions that $header declares (<) are not those that $library exports (>)" >&2
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
