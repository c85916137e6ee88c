"""The experiments as lists of measurements, and those that this machine cannot have."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hippogriff._bench import make_file
from hippogriff.errors import HippogriffError
from hippogriff.reproduce import callgrind, children, shapes
from hippogriff.reproduce.bench import (
    CACHED,
    COLD,
    NO_SUCH_ROUTE,
    ROUTES,
    STATES,
    AbsentError,
    Bench,
    MeasurementError,
    cpu_seconds_of,
    expect_whole,
    json_of,
    transfers_of,
)
from hippogriff.reproduce.energy import Meter, modelled
from hippogriff.reproduce.programs import BY_HAND, BY_NAME, CONVENTIONAL, OURS, PROGRAMS, WAYS
from hippogriff.reproduce.together import CONFIGURATIONS, DRIVE, Need, Together, programs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from hippogriff.reproduce.effort import Effort, Shape
    from hippogriff.reproduce.journal import Journal, Record
    from hippogriff.reproduce.programs import Program

_BYTES_PER_SECOND = 4e8  # A first guess, for the estimate of the time.
_START_SECONDS = 0.5
ONE_CHANNEL = "one_channel"
CORES = (1, 2, 4)
_IDLE_SECONDS = 2.5
_REST_SECONDS = 4.0  # as a GPU needs them
_MIB = 1 << 20
_UNSET = "default"
# Of E8: a setting, its variable, values; the first is the default.
SETTINGS = (
    ("piece", "HIPPOGRIFF_PIECE", ("2MiB", "256KiB", "512KiB", "1MiB")),
    ("pinbuffer", "HIPPOGRIFF_PINBUFFER", ("256MiB", "64MiB", "128MiB", "512MiB")),
    ("channels", "HIPPOGRIFF_CHANNELS", (_UNSET, "1", "2", "4", "8")),
)
_CALIBRATIONS = ("1", "0.5", "2")
_PARKING = (_UNSET, "64MiB", "1GiB", "off")
DEFAULTS = {name: values[0] for name, _, values in SETTINGS} | {
    "calibration": _CALIBRATIONS[0],
    "parking": _PARKING[0],
}


@dataclass(frozen=True)
class Unit:
    """One measurement. `act` returns what was measured; `group`: those that take about as long."""

    key: str
    experiments: tuple[str, ...]
    group: str
    guess_seconds: float
    act: Callable[[], Record]
    fields: Mapping[str, Any] = field(default_factory=dict)

    def measure(self) -> Record:
        """Measure; a failure and an absence are results, too."""
        begin = time.monotonic()
        record: Record = {"key": self.key, "experiments": list(self.experiments), **self.fields}
        try:
            record |= self.act()
        except MeasurementError as error:
            record["failure"] = str(error)
        except AbsentError as error:
            record["absent"] = str(error)
        except (OSError, HippogriffError) as error:
            record["failure"] = f"{type(error).__name__}: {error}"
        record["took_seconds"] = time.monotonic() - begin
        return record


class Experiments:
    """Lists the measurements of experiments on a bench. What one needs of others is asked for."""

    def __init__(self, bench: Bench, effort: Effort, journal: Journal) -> None:
        self._bench = bench
        self._effort = effort
        self._journal = journal
        self._meter: Meter | None = None

    def units(self, names: tuple[str, ...]) -> list[Unit]:
        """Return the measurements of experiments, each once, in their order."""
        found: dict[str, Unit] = {}
        if self._effort.calibrates:
            unit = self._calibration()
            found[unit.key] = unit
            if not self._bench.calibration.exists():  # The journal came here without it.
                self._journal.forget(unit.key)
        lists: dict[str, Callable[[], Iterator[Unit]]] = {
            "E1": self._where_time_goes,
            "E2": self._transfers,
            "E3": self._speeds,
            "E4": self._costs,
            "E5": self._energy,
            "E6": self._cores,
            "E7": self._together,
            "E8": self._settings,
        }
        for name in names:
            for unit in lists[name]():
                found.setdefault(unit.key, unit)
        return list(found.values())

    def _programs(self) -> list[Program]:
        return [program for program in PROGRAMS if program.name in self._effort.programs]

    def _guess(self, program: Program, scale: str) -> float:
        return _START_SECONDS + 2 * program.input_bytes(scale) / _BYTES_PER_SECOND

    def _calibration(self) -> Unit:
        def act() -> Record:
            self._bench.files.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "hippogriff", "calibrate", str(self._bench.files)]
            command += ["--device", self._bench.child_device, "--json"]
            done = children.run(command, self._bench.around())
            if done.failure:
                raise MeasurementError(done.failure)
            return {"calibration": json_of(done.output)}

        return Unit("calibration", (), "calibration", 15, act)

    # --- E1, E3, E4 ---

    def _whole(self, program: Program, scale: str, state: str, way: str, number: int) -> Unit:
        group = f"whole/{program.name}/{scale}"

        def act() -> Record:
            record = self._bench.whole_program(program, scale, way, state)
            if number == 0:
                ask = state == COLD or way == OURS
                record |= self._bench.digest(scale, program, ask=ask)
                if way != CONVENTIONAL or state != COLD:
                    first = way == CONVENTIONAL
                    self._expect_same_result(program, scale, record["result_crc32"], first=first)
            return record

        fields = {"program": program.name, "scale": scale, "state": state, "way": way}
        wanted = ("E1", "E3", "E4") if way == CONVENTIONAL and state == COLD else ("E3", "E4")
        key = f"{group}/{state}/{way}/{number}"
        return Unit(key, wanted, group, self._guess(program, scale), act, fields)

    def _conventional_crc32(self, program: Program, scale: str) -> int | None:
        """Return the checksum of the conventional program's result, or None before it has one."""
        for state in STATES:
            key = f"whole/{program.name}/{scale}/{state}/{CONVENTIONAL}/0"
            record = self._journal.get(key) or {}
            if "result_crc32" in record and not record.get("failure"):
                return int(record["result_crc32"])
        return None

    def _expect_same_result(
        self, program: Program, scale: str, crc32: int, *, first: bool = False
    ) -> None:
        """Compare a result with the conventional program's; `first`: it may be the only one.

        Raises
        ------
        MeasurementError
            When they differ, or when there is nothing to compare with.
        """
        known = self._conventional_crc32(program, scale)
        if known is None and not first:
            raise MeasurementError(
                "its result was compared with nothing: the conventional program has none for this "
                "input"
            )
        if known is not None and known != crc32:
            raise MeasurementError("its result is not that of the conventional program")

    def _whole_programs(self) -> Iterator[Unit]:
        for program in self._programs():
            for scale in self._effort.scales:
                for state in STATES:
                    for number in range(self._effort.repetitions):
                        # They take turns, so that a drift of the machine hits all alike.
                        for way in WAYS[number % 3 :] + WAYS[: number % 3]:
                            yield self._whole(program, scale, state, way, number)

    def _where_time_goes(self) -> Iterator[Unit]:
        for program in self._programs():
            for scale in self._effort.scales:
                for number in range(self._effort.repetitions):
                    yield self._whole(program, scale, COLD, CONVENTIONAL, number)

    def _speeds(self) -> Iterator[Unit]:
        yield from self._whole_programs()
        for name in self._effort.setting_programs:
            for state in STATES:
                program = BY_NAME[name]
                for number in range(self._effort.setting_repetitions):
                    # In no order: what came just before may leave a drive slower, or faster.
                    order: list[Shape | str] = [
                        *(OURS, shapes.DEFAULT_SHAPE),
                        *self._effort.shapes,
                    ]
                    random.Random(f"{name} {state} {number}").shuffle(order)
                    for shape in order:
                        yield self._by_hand(program, state, shape, number)
                # The least of several medians is less than that shape takes: so both again.
                for number in range(self._effort.tuned_repetitions):
                    for way in (OURS, BY_HAND)[:: -1 if number % 2 else 1]:
                        yield self._tuned(program, state, way, number)

    def _by_hand(self, program: Program, state: str, shape: Shape | str, number: int) -> Unit:
        """Run a pipeline by hand of some shape, or hippogriff, which takes its turn beside them."""
        scale = self._effort.scale
        way = OURS if shape == OURS else BY_HAND

        def act() -> Record:
            options = shapes.options_of(shape)
            return self._bench.whole_program(program, scale, way, state, options=options)

        group = f"shape/{program.name}/{scale}"
        named = shapes.name_of(shape)
        fields = {"program": program.name, "scale": scale, "state": state, "shape": named}
        key = shapes.shape_key(f"{program.name}/{scale}/{state}", shape, number)
        return Unit(key, ("E3",), group, self._guess(program, scale), act, fields)

    def _tuned(self, program: Program, state: str, way: str, number: int) -> Unit:
        """Run the shape by hand that was the fastest, or hippogriff."""
        scale = self._effort.scale
        case = f"{program.name}/{scale}/{state}"

        def act() -> Record:
            shape = shapes.fastest(self._journal, self._effort, case)
            options = [] if way == OURS else shapes.options_of(shape)
            record = self._bench.whole_program(program, scale, way, state, options=options)
            return {**record, "shape": shapes.name_of(shape)}

        group = f"tuned/{program.name}/{scale}"
        fields = {"program": program.name, "scale": scale, "state": state, "way": way}
        key = shapes.tuned_key(case, way, number)
        return Unit(key, ("E3",), group, self._guess(program, scale), act, fields)

    def _costs(self) -> Iterator[Unit]:
        yield from self._whole_programs()
        for number in range(self._effort.counted_repetitions):
            for name in self._effort.counted_programs:
                for way in WAYS:
                    yield self._counted(BY_NAME[name], way, number)

    def _counted(self, program: Program, way: str, number: int) -> Unit:
        scale = self._effort.counted_scale

        def act() -> Record:
            valgrind = shutil.which("valgrind")
            if valgrind is None:
                raise AbsentError("valgrind, whose callgrind counts instructions, is not installed")
            source = self._bench.input(program, scale, short=True)
            self._bench.prepare(source, CACHED)
            target = self._bench.target()
            command = self._bench.command(program, way, source, target, "host")
            # What is learnt on a machine that is fifty times slower is thrown away.
            scratch = self._bench.target("calibration")
            settings = {"HIPPOGRIFF_DEVICE": "host", "HIPPOGRIFF_CALIBRATION": str(scratch)}
            around = self._bench.around(settings)
            record = callgrind.count(valgrind, command, self._bench.files, around)
            expect_whole(target, record["result"])
            return {"command": command, "valgrind": callgrind.version(valgrind), **record}

        group = f"instructions/{program.name}/{scale}"
        fields = {"program": program.name, "scale": scale, "state": CACHED, "way": way}
        guess = 3 + 20 * (scale != "tiny")
        return Unit(f"{group}/{way}/{number}", ("E4",), group, guess, act, fields)

    # --- E2 ---

    def _make_transfer_file(self, path: Path, size_bytes: int) -> None:
        if path.exists():
            os.utime(path)  # The ones used last are kept.
            return
        unfinished = path.with_suffix(".writing")
        unfinished.unlink(missing_ok=True)
        make_file(unfinished, size_bytes)
        unfinished.replace(path)

    def _transfers(self) -> Iterator[Unit]:
        kinds = [("send", COLD), ("send", CACHED), ("recv", COLD)]
        for size_bytes in self._effort.transfer_bytes:
            # Routes beside the default: a drive may be another one minutes later.
            routes = ROUTES if size_bytes in self._effort.routed_bytes else ()
            for direction, state in kinds:
                for way in (CONVENTIONAL, ONE_CHANNEL, OURS, *routes):
                    yield self._transfer(size_bytes, direction, state, way)

    def _transfer(self, size_bytes: int, direction: str, state: str, way: str) -> Unit:
        def act() -> Record:
            path = self._bench.files / f"transfer-{size_bytes}"
            self._bench.make_room((1 if path.exists() else 3) * size_bytes, {path})
            self._make_transfer_file(path, size_bytes)
            if direction == "send":
                self._bench.prepare(path, state)
            command = [sys.executable, "-m", "hippogriff.reproduce._transfer", str(path)]
            command += [direction, state, way, str(self._effort.transfer_repetitions)]
            settings = {"HIPPOGRIFF_CHANNELS": "1"} if way == ONE_CHANNEL else {}
            done = children.run(command, self._bench.around(settings))
            if way in ROUTES and done.status == NO_SUCH_ROUTE:
                raise AbsentError(done.output.strip())
            if done.failure:
                raise MeasurementError(done.failure)
            count = self._effort.transfer_repetitions
            return {"command": command, "result": transfers_of(done.output, state, count)}

        group = f"transfer/{size_bytes}"
        fields = {"bytes": size_bytes, "direction": direction, "state": state, "way": way}
        guess = 1 + (1 + self._effort.transfer_repetitions) * size_bytes / _BYTES_PER_SECOND
        return Unit(f"{group}/{direction}/{state}/{way}", ("E2",), group, guess, act, fields)

    # --- E5 ---

    def _measured(self, act: Callable[[], None]) -> Record:
        meter = self._the_meter()
        meter.begin()
        act()
        return meter.end()

    def _the_meter(self) -> Meter:
        if self._meter is None:
            self._meter = Meter(self._bench.device)
        return self._meter

    def _energy(self) -> Iterator[Unit]:
        seconds = max(self._effort.energy_seconds, 0.2)

        def idle() -> Record:
            rested = self._the_meter().rest()
            energy = self._measured(lambda: time.sleep(min(seconds, _IDLE_SECONDS)))
            return {"energy": energy, "rested": rested}

        for number in range(self._effort.few):
            guess = min(seconds, _IDLE_SECONDS) + _REST_SECONDS
            yield Unit(f"energy/idle/{number}", ("E5",), "energy/idle", guess, idle, {"idle": True})
            for name in self._effort.energy_programs:
                for state in STATES:
                    for way in WAYS:
                        yield self._energy_of(BY_NAME[name], state, way, number)

    def _energy_of(self, program: Program, state: str, way: str, number: int) -> Unit:
        def act() -> Record:
            runs: list[Record] = []

            def repeat() -> None:
                begin = time.monotonic()
                while not runs or time.monotonic() - begin < self._effort.energy_seconds:
                    runs.append(self._bench.whole_program(program, self._effort.scale, way, state))

            self._bench.prepare(self._bench.input(program, self._effort.scale), state)
            energy = self._measured(repeat)
            energy["modelled"] = modelled(sum(cpu_seconds_of(run["result"]) for run in runs))
            return {"energy": energy, "runs": runs, "command": runs[0]["command"]}

        group = f"energy/{program.name}/{self._effort.scale}"
        fields = {"program": program.name, "state": state, "way": way, "scale": self._effort.scale}
        guess = self._effort.energy_seconds + self._guess(program, self._effort.scale)
        return Unit(f"{group}/{state}/{way}/{number}", ("E5",), group, guess, act, fields)

    # --- E6 ---

    def _cores(self) -> Iterator[Unit]:
        for number in range(self._effort.few):
            for name in self._effort.core_programs:
                for count in CORES:
                    for busy in (False, True):
                        for way in WAYS:
                            yield self._cores_of(BY_NAME[name], (count, busy), way, number)

    def _cores_of(
        self, program: Program, weakness: tuple[int, bool], way: str, number: int
    ) -> Unit:
        count, busy = weakness
        scale = self._effort.core_scale

        def act() -> Record:
            cores = tuple(sorted(os.sched_getaffinity(0))[:count])
            if len(cores) < count:
                raise AbsentError(f"there are {len(cores)} cores")
            around = self._bench.around(cores=cores)
            self._bench.input(program, scale)  # before anything is busy
            # A neighbour on each core: the program has half of what there is.
            spin = [sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"]
            runs: list[Record] = []
            # Energy takes seconds to tell; what a neighbour takes of it cannot be told apart.
            seconds = 0.0 if busy or not self._the_meter().measures else self._effort.energy_seconds

            def repeat() -> None:
                begin = time.monotonic()
                while not runs or time.monotonic() - begin < seconds:
                    runs.append(self._bench.whole_program(program, scale, way, COLD, around))

            with children.beside([spin] * (count if busy else 0), around):
                energy = self._measured(repeat)
            energy["modelled"] = modelled(sum(cpu_seconds_of(run["result"]) for run in runs))
            return {**runs[0], "energy": energy, "repeats": runs[1:]}

        group = f"cores/{program.name}/{scale}/{count}"
        key = f"{group}/{'busy' if busy else 'alone'}/{way}/{number}"
        fields = {"program": program.name, "cores": count, "busy": busy, "way": way, "scale": scale}
        return Unit(key, ("E6",), group, 2 * self._guess(program, scale), act, fields)

    # --- E7 ---

    def _need(self, program: Program) -> Unit:
        scale = self._effort.scale

        def act() -> Record:
            record = self._bench.whole_program(program, scale, CONVENTIONAL, CACHED)
            record |= self._bench.digest(scale, program, ask=True)
            self._expect_same_result(program, scale, record["result_crc32"], first=True)
            return {**record, "device_bytes": int(record["result"]["device_bytes"])}

        key = f"need/{program.name}/{scale}"
        fields = {"program": program.name, "scale": scale}
        return Unit(key, ("E7",), "need", self._guess(program, scale), act, fields)

    def _needs(self, workload: str) -> dict[str, Need]:
        needs = {}
        for program in programs_of(workload):
            record = self._journal.get(self._need(program).key) or {"failure": "not measured"}
            if record.get("failure") or record.get("absent"):
                raise MeasurementError(
                    f"what memory {program.name} needs, and its result, are not known: "
                    f"{record.get('failure') or record.get('absent')}"
                )
            needs[program.name] = Need(
                int(record["device_bytes"]),
                int(record["result_crc32"]),
                int(record["result"].get("output_bytes", 0)),
            )
        return needs

    def _together(self) -> Iterator[Unit]:
        for workload in self._effort.workloads:
            for program in programs_of(workload):
                yield self._need(program)
        for workload in self._effort.workloads:  # Its inputs' copies are made once.
            for number in range(self._effort.few):
                for name in self._effort.configurations:
                    alone = name == DRIVE
                    yield (
                        self._drive_alone(workload, number)
                        if alone
                        else self._eight(workload, name, number)
                    )

    def _drive_alone(self, workload: str, number: int) -> Unit:
        scale = self._effort.scale

        def act() -> Record:
            together = Together(self._bench, scale, self._needs(workload))
            return together.measure_drive(workload)

        group = f"together/{workload}/{scale}"
        fields = {"workload": workload, "configuration": DRIVE, "scale": scale}
        guess = sum(self._guess(program, scale) for program in programs_of(workload))
        return Unit(f"{group}/{DRIVE}/{number}", ("E7",), group, guess, act, fields)

    def _eight(self, workload: str, name: str, number: int, parking: str = "") -> Unit:
        configuration = next(each for each in CONFIGURATIONS if each.name == name)
        scale = self._effort.scale

        def act() -> Record:
            chosen = configuration
            if parking and parking != _UNSET:
                settings = (("HIPPOGRIFF_PARKING", parking),)
                chosen = type(configuration)(name, configuration.title, settings=settings)
            together = Together(self._bench, scale, self._needs(workload))
            return together.measure(workload, chosen)

        fields = {"workload": workload, "configuration": name, "scale": scale}
        group = f"together/{workload}/{scale}"
        key, wanted = f"{group}/{name}/{number}", "E7"
        if parking:
            fields = {"setting": "parking", "value": parking, "workload": workload, "scale": scale}
            key, wanted = f"setting/parking/{workload}/{scale}/{parking}/{number}", "E8"
        guess = sum(self._guess(program, scale) for program in programs_of(workload))
        return Unit(key, (wanted,), group, guess, act, fields)

    # --- E8 ---

    def _settings(self) -> Iterator[Unit]:
        for workload in self._effort.parking_workloads:
            for program in programs_of(workload):
                yield self._need(program)
        for number in range(self._effort.setting_repetitions):
            for name in self._effort.setting_programs:
                for state in STATES:
                    for setting, variable, values in SETTINGS:
                        for value in values:
                            yield self._setting(
                                (BY_NAME[name], state), setting, {variable: value}, number
                            )
                    for factor in _CALIBRATIONS:
                        yield self._setting(
                            (BY_NAME[name], state), "calibration", {"factor": factor}, number
                        )
        for number in range(self._effort.few):
            for workload in self._effort.parking_workloads:
                for parking in _PARKING:
                    yield self._eight(workload, "everything", number, parking)

    def _setting(
        self, case: tuple[Program, str], setting: str, variable: Mapping[str, str], number: int
    ) -> Unit:
        program, state = case
        value = next(iter(variable.values()))

        def act() -> Record:
            scratch = self._bench.files / "calibration.json"
            factor = float(value) if setting == "calibration" else 1.0
            self._bench.input(program, self._effort.scale)
            if self._bench.calibration.exists():
                known = json_of(self._bench.calibration.read_text(errors="replace"))
                scratch.write_text(json.dumps(scaled(known, factor)))
            elif setting == "calibration":
                raise AbsentError("no calibration is there that could be wrong")
            settings = {"HIPPOGRIFF_CALIBRATION": str(scratch)}
            if setting != "calibration" and value != _UNSET:
                settings |= variable
            around = self._bench.around(settings)
            try:
                return self._bench.whole_program(program, self._effort.scale, OURS, state, around)
            finally:
                scratch.unlink(missing_ok=True)

        group = f"setting/{program.name}/{self._effort.scale}"
        key = f"{group}/{state}/{setting}/{value}/{number}"
        fields = {
            "program": program.name,
            "state": state,
            "scale": self._effort.scale,
            "setting": setting,
            "value": value,
        }
        return Unit(key, ("E8",), group, self._guess(program, self._effort.scale), act, fields)


def scaled(calibration: Any, factor: float) -> Any:
    """Return a calibration whose rates of links and drives are wrong by a factor.

    The host's are left: with all of them wrong alike, no choice would change.
    """
    if not isinstance(calibration, dict):
        return calibration
    changed = {}
    for name, value in calibration.items():
        if name == "bytes_per_second" and isinstance(value, int | float):
            changed[name] = value * factor
        elif name == "host":
            changed[name] = value
        else:
            changed[name] = scaled(value, factor)
    return changed
