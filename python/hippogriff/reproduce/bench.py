"""What experiments measure with: inputs, the page cache's state, programs from end to end."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippogriff import _library
from hippogriff._measurement import make_cold, warm
from hippogriff._sizes import format_size
from hippogriff.reproduce import children
from hippogriff.reproduce.children import Surroundings
from hippogriff.reproduce.instructions import Counter
from hippogriff.reproduce.journal import lock_folder
from hippogriff.reproduce.outcome import expect_result
from hippogriff.reproduce.page_cache import residency

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hippogriff.reproduce.journal import Record
    from hippogriff.reproduce.programs import Program

COLD, CACHED = "cold", "cached"
STATES = (COLD, CACHED)
ROUTES = ("direct", "mapped", "pipelined", "parked")  # that E2 asks for by name
NO_SUCH_ROUTE = 4  # the exit status of `_transfer` where there is none
_COLD_MOST = 0.1  # A share of a file in the page cache that is cold still.
_CACHED_LEAST = 0.99
_ROOM_BYTES = 256 << 20
_SHOWN_CHARACTERS = 200
_CHECKED_BYTES_MAX = 100_000_000  # Oracles are slow.
# What the user's environment says of these still counts.
_KEPT = ("NVML", "CUDA_DRIVER", "CUFILE", "GDS_ROOT", "HOST_LINK", "IO", "HOST_MEMORY")


def is_in(state: str, share: float) -> bool:
    """Whether a file of which the page cache has that share is in a state."""
    return share <= _COLD_MOST if state == COLD else share >= _CACHED_LEAST


class MeasurementError(Exception):
    """A measurement failed; the message says why."""


class AbsentError(Exception):
    """A measurement does not exist here; the message says why."""


@dataclass(frozen=True)
class Places:
    """Folders: of results, of large files, of the programs."""

    out: Path
    files: Path
    programs: Path


class Bench:
    """Runs programs on one device. Files it makes are removed by `clean`, unless they are kept."""

    def __init__(self, places: Places, device: str, timeout_seconds: float) -> None:
        self.places = places
        self.device = device
        # Programs see no other GPU, so that `hippogriff run` and they mean the same one.
        self.child_device = "host" if device == "host" else "cuda:0"
        self.timeout_seconds = timeout_seconds
        self.context = ""  # of the journal
        self.files = places.files.resolve() / f"hippogriff-reproduce-{os.getuid()}"
        # It is the place's, not the process's: the next run removes what a killed one left.
        place = hashlib.sha256(os.fsencode(self.files)).hexdigest()[:16]
        self._node = Path("/dev/shm") / f"hippogriff-reproduce-{place}"
        self._lock: int | None = None

    def begin(self) -> None:
        """Have the folder of files for this process alone, without what a killed run left there.

        Raises
        ------
        InvalidArgument
            When another process measures with files in it.
        """
        self.files.mkdir(parents=True, exist_ok=True)
        words = f"another process measures with files in {self.files}: name another folder by --dir"
        self._lock = lock_folder(self.files, words)
        self._remove_all_but_inputs()

    @property
    def calibration(self) -> Path:
        """The calibration file of these measurements, not the user's, nor another context's."""
        name = f"calibration-{self.context}" if self.context else "calibration"
        return self.places.out.resolve() / f"{name}.json"

    def kept_settings(self) -> dict[str, str]:
        """Return what of the user's settings reaches programs."""
        kept = {f"HIPPOGRIFF_{name}" for name in _KEPT}
        return {name: value for name, value in sorted(os.environ.items()) if name in kept}

    def environment(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return a program's environment: the user's, without settings that were not asked for."""
        library = Path(_library.lib._name).resolve()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("HIPPOGRIFF_")
        }
        paths = [str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        modules = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        environment |= self.kept_settings() | {
            "HIPPOGRIFF_LIBRARY": str(library),
            "HIPPOGRIFF_CALIBRATION": str(self.calibration),
            "HIPPOGRIFF_DEVICE": self.child_device,
            "HIPPOGRIFF_NODE": str(self._node) if self._node.parent.is_dir() else "off",
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)),
            "PYTHONPATH": os.pathsep.join(filter(None, modules)),
        }
        if self.device.startswith("cuda:"):
            number = int(self.device.removeprefix("cuda:"))
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            environment["CUDA_VISIBLE_DEVICES"] = (
                visible.split(",")[number] if visible else str(number)
            )
        return environment | dict(settings or {})

    def around(
        self, settings: Mapping[str, str] | None = None, cores: tuple[int, ...] = ()
    ) -> Surroundings:
        """Return what a program is run in."""
        return Surroundings(self.environment(settings), cores, self.timeout_seconds)

    def command(
        self, program: Program, way: str, source: Path, target: Path, device: str = ""
    ) -> list[str]:
        """Return the command of a program, unmodified."""
        path = str(self.places.programs / program.name)
        device = device or self.child_device
        return [path, way, str(source), str(target), "--json", "--device", device]

    def input(
        self, program: Program, scale: str, keep: Collection[Path] = (), *, short: bool = False
    ) -> Path:
        """Return a program's input, made where it is not there yet, with `keep` left there."""
        self.files.mkdir(parents=True, exist_ok=True)
        path = self.files / f"{program.name}-{scale}{'-short' * short}"
        if path.exists():
            os.utime(path)  # The ones used last are kept.
            return path
        self.make_room(2 * program.input_bytes(scale), keep, spare_bytes=_ROOM_BYTES)
        unfinished = path.with_suffix(".writing")
        made = children.run(
            [
                str(self.places.programs / program.name),
                "generate",
                str(unfinished),
                *program.arguments(scale, short=short),
            ],
            self.around(),
        )
        if made.failure:
            unfinished.unlink(missing_ok=True)
            raise MeasurementError(f"generating its input: {made.failure}")
        unfinished.replace(path)
        return path

    def own_inputs(self, programs: Sequence[Program], scale: str) -> list[Path]:
        """Return an input for each, no two the same file: none is read into the cache by another.

        There is room for as much again, the results.
        """
        found: list[Path] = []
        for number, program in enumerate(programs):
            path = self.input(program, scale, found)
            if path in found:
                path = self._copy(path, number, found)
            found.append(path)
        self.make_room(sum(path.stat().st_size for path in found), found)
        return found

    def _copy(self, path: Path, number: int, keep: Collection[Path]) -> Path:
        copy = path.with_name(f"{path.name}.copy{number}")
        for other in self.files.glob("*.copy*"):
            if not other.name.startswith(f"{path.name}.copy"):
                other.unlink()  # Those of a program that had its turn.
        if not copy.exists():
            self.make_room(path.stat().st_size, keep)
            unfinished = copy.with_suffix(".writing")
            shutil.copyfile(path, unfinished)
            unfinished.replace(copy)
        return copy

    def make_room(
        self, size_bytes: int, keep: Collection[Path] = (), *, spare_bytes: int = 0
    ) -> None:
        """Remove the inputs used least recently, but for `keep`, while there is too little room.

        Some bytes more are left free, for what else is written there.

        Raises
        ------
        MeasurementError
            When there is too little nevertheless: another time there may be more.
        """
        self.files.mkdir(parents=True, exist_ok=True)
        others = [path for path in self.files.glob("*-*") if path not in keep]
        others.sort(key=lambda path: path.stat().st_mtime)
        wanted_bytes = size_bytes + spare_bytes
        while shutil.disk_usage(self.files).free < wanted_bytes and others:
            others.pop(0).unlink()
        free = shutil.disk_usage(self.files).free
        if free < wanted_bytes:
            spare = f", {format_size(spare_bytes)} are left over" if spare_bytes else ""
            raise MeasurementError(
                f"files of {format_size(size_bytes)} are made{spare}, {format_size(free)} are free "
                f"in {self.files.parent}"
            )

    def target(self, name: str = "out") -> Path:
        """Return where a result goes; nothing is there."""
        path = self.files / f"result.{name}"
        path.unlink(missing_ok=True)
        return path

    def prepare(self, path: Path, state: str) -> float:
        """Bring a file into a state; return what share of it the page cache has then.

        Raises
        ------
        AbsentError
            When the kernel says that it did not come into that state.
        """
        if state == COLD:
            make_cold(path)
        elif residency(path).share < 1:  # What is there need not be read again.
            warm(path)
        share = residency(path).share
        if not is_in(state, share):
            raise AbsentError(
                f"{share:.0%} of the file are in the page cache: there is no {state} state here"
            )
        return share

    def clean(self, *, keep_inputs: bool) -> None:
        """Remove results, and inputs unless they are kept."""
        self._remove_all_but_inputs()
        if not keep_inputs:
            shutil.rmtree(self.files, ignore_errors=True)

    def _remove_all_but_inputs(self) -> None:
        self._node.unlink(missing_ok=True)
        for pattern in ("result.*", "*.writing"):  # Of inputs that were being made, too.
            for path in self.files.glob(pattern):
                path.unlink(missing_ok=True)

    def whole_program(
        self,
        program: Program,
        scale: str,
        way: str,
        state: str,
        around: Surroundings | None = None,
        options: Sequence[str] = (),
    ) -> Record:
        """Run a program from end to end; return its own words, and how long the process took."""
        source = self.input(program, scale)
        cached_before = self.prepare(source, state)
        target = self.target()
        command = [*self.command(program, way, source, target), *options]
        with Counter() as counter:
            done = children.run(command, around or self.around())
            counted = counter.found()
        record: Record = {"command": command, "seconds": done.seconds, "counter": counted}
        if done.failure:
            raise MeasurementError(done.failure)
        result = result_of(done.output)
        expect_whole(target, result)
        return {**record, "cached_before": cached_before, "result": result}

    def digest(self, scale: str, program: Program, *, ask: bool) -> Record:
        """Return a checksum of the last result, and, if asked, what the oracle says of a small one.

        Raises
        ------
        MeasurementError
            When that is wrong.
        """
        target = self.files / "result.out"
        record: Record = {"result_crc32": crc32_of(target)}
        source = self.input(program, scale)
        if ask and source.stat().st_size <= _CHECKED_BYTES_MAX:
            name = str(self.places.programs / program.name)
            checked = children.run([name, "check", str(source), str(target)], self.around())
            if checked.failure:
                raise MeasurementError(f"its result is wrong: {checked.failure}")
            record["oracle"] = checked.output.strip()
        return record


def json_of(output: str) -> Any:
    """Return what a program printed.

    Raises
    ------
    MeasurementError
        When that is no JSON, or has numbers that are none; with the output's beginning.
    """
    try:
        value = json.loads(output)
        json.dumps(value, allow_nan=False)  # Results have no infinities.
    except (ValueError, RecursionError) as error:
        raise MeasurementError(f"its output is no JSON ({error}): {_beginning(output)}") from None
    return value


def _beginning(output: str) -> str:
    return repr(output[:_SHOWN_CHARACTERS]) + "…" * (len(output) > _SHOWN_CHARACTERS)


def result_of(output: str) -> dict[str, Any]:
    """Return what a program said of its run.

    Raises
    ------
    MeasurementError
        When that is no result.
    """
    result = json_of(output)
    try:
        expect_result(result)
    except ValueError as error:
        raise MeasurementError(f"its output is no result ({error}): {_beginning(output)}") from None
    return dict(result)


def transfers_of(output: str, state: str, count: int) -> dict[str, Any]:
    """Return what `_transfer` said of so many transfers of a file in a state.

    Raises
    ------
    MeasurementError
        When that is no result, or when the file was not in that state.
    """
    result = json_of(output)
    try:
        for name in ("seconds", "cpu_seconds"):
            if len(result[name]) != count or not all(float(each) >= 0 for each in result[name]):
                raise ValueError(f"{name} are not {count}")
        shares = [float(share) for share in result["cached_before"]]
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise MeasurementError(
            f"its output is no result ({error!r}): {_beginning(output)}"
        ) from None
    for share in shares:
        if not is_in(state, share):
            raise MeasurementError(f"{share:.0%} of the file were cached, not {state}")
    return dict(result)


def expect_whole(target: Path, result: Mapping[str, Any]) -> None:
    """Expect that a program left a result, of the size that it says.

    Raises
    ------
    MeasurementError
        When it did not.
    """
    try:
        size = target.stat().st_size
    except FileNotFoundError:
        raise MeasurementError(f"it left no result: {target} is not there") from None
    said = result.get("output_bytes", size)
    if size == 0 or size != said:
        raise MeasurementError(f"its result {target} has {size} bytes, and should have {said}")


def crc32_of(path: Path) -> int:
    """Return the checksum of a file."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(16 << 20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def cpu_seconds_of(result: Mapping[str, Any]) -> float:
    """Return the CPU seconds of a program's process."""
    usage = result["usage"]
    return float(usage["user_seconds"] + usage["system_seconds"])


def moved_seconds(result: Mapping[str, Any]) -> float:
    """Return the seconds in which a program moved data."""
    seconds: dict[str, float] = result["seconds"]
    return sum(value for name, value in seconds.items() if name not in ("start", "kernels"))


def total_seconds(record: Record) -> float:
    """Return the seconds of a whole program without the start of its device."""
    result: dict[str, Any] = record["result"]
    return float(result["total_seconds"]) - float(result["seconds"].get("start", 0))
