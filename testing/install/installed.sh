#!/usr/bin/env bash
# Installs a build into an empty folder and lets a C program find it, by pkg-config and by CMake,
# also after the tree has been moved and through DESTDIR.
# usage: installed.sh BUILD_FOLDER PROJECT_FOLDER WORK_FOLDER C_COMPILER
set -euo pipefail

build=$1
project=$2
work=$3
compiler=$4

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix="$work/prefix"

pkgconfig=$(dirname "$(find "$prefix" -name hippogriff.pc)")
export PKG_CONFIG_PATH="$pkgconfig"
read -ra flags < <(pkg-config --cflags --libs hippogriff)
library_folder=$(pkg-config --variable=libdir hippogriff)
"$compiler" -std=c11 -Wall -Wextra -Werror -pedantic "$project/main.c" -o "$work/by_pkgconfig" \
  "${flags[@]}" "-Wl,-rpath,$library_folder"
"$work/by_pkgconfig" "$(pkg-config --modversion hippogriff)" "$work/data.bin"

cmake -S "$project" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$compiler" >"$work/cmake.log"
cmake --build "$work/cmake" >>"$work/cmake.log"
"$work/cmake/by_cmake" "$(pkg-config --modversion hippogriff)" "$work/data.bin"

DESTDIR="$work/staged" cmake --install "$build" --prefix /opt/hippogriff >>"$work/install.log"
test -f "$work/staged/opt/hippogriff/include/hippogriff/hippogriff.h"
test ! -e /opt/hippogriff/include/hippogriff/hippogriff.h
