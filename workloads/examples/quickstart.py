"""Move a file to the GPU (or to device host where there is none) and back to another file.

Shows how far it is meanwhile, and the route it took.
"""

import sys
import time

import hippogriff


def main() -> None:
    """Run `quickstart.py IN OUT`."""
    _, source, target = sys.argv
    data = hippogriff.read(source)  # on the device; torch.from_dlpack(data) sees the same memory

    back = hippogriff.write_async(target, data)
    while not back.done():
        print(f"{back.progress.fraction:.0%}")
        time.sleep(0.05)
    size = back.wait()  # raises what the transfer failed with
    print(f"{size} bytes back by the route {back.route}")


if __name__ == "__main__":
    main()
