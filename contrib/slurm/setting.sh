# shellcheck shell=sh
# Where things are: for the prologs and the epilog beside it, which read it. A site's own values go
# into /etc/default/hippogriff, which is read last.

# The command; the PATH of a prolog is short.
HIPPOGRIFF_COMMAND=${HIPPOGRIFF_COMMAND:-hippogriff}
# Below it a folder for each user, with the segment in it. Not /dev/shm: job_container/tmpfs gives each
# job one of its own, and systemd's RemoveIPC= empties it when a user logs out.
HIPPOGRIFF_FOLDER=${HIPPOGRIFF_FOLDER:-/run/hippogriff}
# A file to log to; empty: syslog.
HIPPOGRIFF_LOG=${HIPPOGRIFF_LOG:-}
# How many seconds the command may take.
HIPPOGRIFF_SECONDS=${HIPPOGRIFF_SECONDS:-20}

# shellcheck source=/dev/null
if [ -r "${HIPPOGRIFF_DEFAULTS:=/etc/default/hippogriff}" ]; then . "$HIPPOGRIFF_DEFAULTS"; fi

say() {
  if [ -n "$HIPPOGRIFF_LOG" ]; then
    printf '%s job %s: %s\n' "$(date +%FT%T)" "${SLURM_JOB_ID:-?}" "$*" >>"$HIPPOGRIFF_LOG"
  elif command -v logger >/dev/null 2>&1; then
    logger -t hippogriff-slurm "job ${SLURM_JOB_ID:-?}: $*"
  fi
}

# Runs hippogriff as the job's user, on the user's segment. What it prints goes on.
as_user() {
  set -- timeout -k 5 "$HIPPOGRIFF_SECONDS" \
    env HIPPOGRIFF_NODE="$HIPPOGRIFF_FOLDER/$SLURM_JOB_UID/node" "$HIPPOGRIFF_COMMAND" "$@"
  if [ "$(id -u)" = "$SLURM_JOB_UID" ]; then
    "$@"
  else
    setpriv --reuid "$SLURM_JOB_UID" --regid "$(id -g "$SLURM_JOB_UID")" --init-groups --reset-env "$@"
  fi
}

# One line a device: what is promised, to how many, and how many wait.
summary() {
  as_user metrics | awk -F '[{}" ]+' '
    /^hippogriff_device_promised_bytes/ { promised[$3] = $4 }
    /^hippogriff_reservations/ { held[$3] = $4 }
    /^hippogriff_waiting{/ { waiting[$3] = $4 }
    END {
      for (device in promised)
        printf "%s: %.2f GiB promised to %d, %d wait\n",
          device, promised[device] / 2^30, held[device], waiting[device]
    }'
}
