# To be read by the tests of the programs, which set `folder`.
# shellcheck shell=sh disable=SC2154 # `folder` is theirs

# What a command must end with: expect_status STATUS COMMAND… Its output is in $folder/said.
expect_status() {
  expected=$1
  shift
  status=0
  "$@" >"$folder/said" 2>&1 || status=$?
  if [ "$status" != "$expected" ]; then
    echo "status $status instead of $expected: $*" >&2
    cat "$folder/said" >&2
    exit 1
  fi
}

# A command that may write 512 bytes to a file and no more, as on a full drive, fails: expect_no_room COMMAND…
expect_no_room() (
  trap '' XFSZ
  ulimit -f 1
  expect_status 1 "$@"
)
