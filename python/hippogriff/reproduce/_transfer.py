"""A process that measures transfers of one kind: `python3 -m hippogriff.reproduce._transfer`.

Its arguments are FILE DIRECTION STATE WAY REPETITIONS; it prints JSON. A way that is the name of a
route is that one; where there is no such, the exit status says so, and the output why. The first
transfer is not counted: memory is pinned in it, which the papers leave out, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hippogriff import _runtime
from hippogriff._measurement import (
    backed,
    make_cold,
    time_naive_read,
    time_naive_write,
    time_read,
    time_write,
    touched,
    warm,
)
from hippogriff.errors import Unsupported
from hippogriff.reproduce.bench import CACHED, NO_SUCH_ROUTE, ROUTES
from hippogriff.reproduce.page_cache import residency
from hippogriff.reproduce.programs import CONVENTIONAL


def measure(words: list[str]) -> dict[str, object]:
    """Measure; return what is printed."""
    path, direction, state, way = Path(words[0]), *words[1:4]
    repetitions = int(words[4])
    samples, shares = [], []
    scratch = path.with_name(f"result.{path.name}")
    route = way if way in ROUTES else "auto"
    # Its memory is made and touched before, as ours is pinned before.
    staging = touched(path.stat().st_size) if way == CONVENTIONAL else None
    with backed(path.stat().st_size, _runtime.default_device()) as array:
        try:
            for _ in range(1 + repetitions):
                if direction == "recv":
                    if staging is None:
                        samples.append(time_write(scratch, array, route))
                    else:
                        samples.append(time_naive_write(scratch, array, staging))
                    continue
                warm(path) if state == CACHED else make_cold(path)
                shares.append(residency(path).share)
                if staging is None:
                    samples.append(time_read(path, array, route))
                else:
                    samples.append(time_naive_read(path, array, staging))
        finally:
            scratch.unlink(missing_ok=True)
    return {
        "bytes": path.stat().st_size,
        "route": samples[-1].route,
        "seconds": [sample.seconds for sample in samples[1:]],
        "cached_before": shares[1:],
        "cpu_seconds": [sample.cpu_seconds for sample in samples[1:]],
    }


def main(words: list[str]) -> int:
    """Measure and print; return the exit status."""
    try:
        print(json.dumps(measure(words)))
    except Unsupported as error:
        print(error)
        return NO_SUCH_ROUTE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
