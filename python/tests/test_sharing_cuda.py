"""Unmodified programs under `hippogriff run` on a GPU: skipped, visibly, where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hippogriff._library import lib
from hippogriff.sharing.run import shim_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1 << 30
PATIENCE = 120
FAILED = 9  # how the programs below end when there is no memory


@pytest.fixture
def gpu(torch: Any, tmp_path: Path) -> Iterator[dict[str, str]]:  # noqa: ARG001 (it skips)
    """An environment with a node of its own and the machine's GPUs."""
    if shim_folder() is None:
        pytest.skip("the shim is not built")
    segment = Path("/dev/shm") / f"hippogriff-test-{os.getpid()}-{tmp_path.name}"
    environment = {**os.environ, "HIPPOGRIFF_NODE": str(segment)}
    environment.pop("HIPPOGRIFF_DEVICE", None)
    yield environment
    segment.unlink(missing_ok=True)


def started(
    code: str, environment: dict[str, str], memory: int | None, *options: str
) -> subprocess.Popen[str]:
    """Start a Python program, under `hippogriff run` where `memory` bytes are said."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    if memory is not None:
        run = [sys.executable, "-m", "hippogriff", "run", "--memory", str(memory), *options]
        command = [*run, "--timeout", str(PATIENCE), "--", *command]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(program: subprocess.Popen[str], status: int = 0) -> dict[str, Any]:
    """Wait for a program; return the JSON that it printed."""
    output, errors = program.communicate(timeout=PATIENCE)
    assert program.returncode == status, errors
    return dict(json.loads(output)) if output else {}


TORCH = """
    import json, torch
    GIB = 1 << 30
    answers = {"total": torch.cuda.mem_get_info()[1]}
    held = torch.full((GIB,), 7, dtype=torch.uint8, device="cuda")
    answers["free"] = torch.cuda.mem_get_info()[0]
    try:
        torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        answers["refused"] = True
    more = torch.full((GIB // 2,), 1, dtype=torch.uint8, device="cuda")
    answers["sum"] = int(held[::1024].sum() + more[::1024].sum())
    graph, numbers = torch.cuda.CUDAGraph(), torch.zeros(1000, device="cuda")
    with torch.cuda.graph(graph):
        doubled = numbers * 2 + 1
    numbers.fill_(3)
    graph.replay()
    answers["graph"] = float(doubled[-1])
    ones = torch.ones(64, 64, device="cuda")
    answers["product"] = float((ones @ ones)[0, 0])
    print(json.dumps(answers))
"""


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True", "backend:cudaMallocAsync"])
def test_torch_is_held_to_its_reservation(gpu: dict[str, str], allocator: str) -> None:
    answers = said(started(TORCH, {**gpu, "PYTORCH_ALLOC_CONF": allocator}, 2 * GIB))
    assert answers["total"] == 2 * GIB
    assert answers["free"] <= GIB
    assert answers["refused"]
    assert answers["sum"] == 7 * GIB // 1024 + GIB // 2 // 1024
    assert answers["graph"] == 7
    assert answers["product"] == 64


CUPY = """
    import json, cupy
    GIB = 1 << 30
    cupy.cuda.set_allocator(ALLOCATOR)
    answers = {"total": cupy.cuda.runtime.memGetInfo()[1]}
    held = cupy.full(GIB, 7, dtype=cupy.uint8)
    try:
        cupy.empty(2 * GIB, dtype=cupy.uint8)
    except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
        answers["refused"] = type(error).__name__
    twice = cupy.RawKernel(
        'extern "C" __global__ void twice(float* a) { a[threadIdx.x] *= 2; }', "twice")
    numbers = cupy.arange(32, dtype=cupy.float32)
    twice((1,), (32,), (numbers,))
    answers["last"], answers["sum"] = float(numbers[-1]), int(held[::1024].sum())
    print(json.dumps(answers))
"""


@pytest.mark.parametrize(
    "allocator", ["None", "cupy.cuda.MemoryPool().malloc", "cupy.cuda.MemoryAsyncPool().malloc",
                  "cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc"]
)  # fmt: skip
def test_cupy_is_held_to_its_reservation(gpu: dict[str, str], cupy: Any, allocator: str) -> None:  # noqa: ARG001
    answers = said(started(CUPY.replace("ALLOCATOR", allocator), gpu, 2 * GIB))
    assert answers["total"] == 2 * GIB
    assert "refused" in answers
    assert (answers["last"], answers["sum"]) == (62, 7 * GIB // 1024)


NUMBA = """
    import json, numpy
    if not hasattr(numpy, "row_stack"):  # Numba of 2026 wants what NumPy 2.5 has no more.
        numpy.row_stack = numpy.vstack
    from numba import cuda
    answers = {"total": cuda.current_context().get_memory_info().total}
    @cuda.jit
    def twice(numbers):
        numbers[cuda.threadIdx.x] *= 2
    numbers = cuda.to_device(numpy.arange(32, dtype=numpy.float32))
    twice[1, 32](numbers)
    answers["last"] = float(numbers.copy_to_host()[-1])
    try:
        held = cuda.device_array(3 << 30, dtype=numpy.uint8)
    except Exception as error:
        answers["refused"] = str(error)
    print(json.dumps(answers))
"""


def test_numba_is_held_to_its_reservation(gpu: dict[str, str]) -> None:
    pytest.importorskip("numba")
    answers = said(started(NUMBA, gpu, 2 * GIB))
    assert answers["total"] == 2 * GIB
    assert answers["last"] == 62
    assert "OUT_OF_MEMORY" in answers["refused"]


def test_a_program_with_cuda_inside_is_held_to_its_reservation(gpu: dict[str, str]) -> None:
    program = Path(lib._name).resolve().parent / "bin" / "risk"
    if not program.is_file():
        pytest.skip("workloads are not built")
    hippogriff_run = [sys.executable, "-m", "hippogriff", "run", "--memory", "1GiB", "--"]
    command = [str(program), "--trials", "1000", "--json", "--device", "cuda:0", "--memory"]
    statuses = {}
    for memory in (GIB // 2, 2 * GIB):
        ran = subprocess.run(
            [*hippogriff_run, *command, str(memory)],
            env=gpu,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        statuses[memory] = ran.returncode
    assert statuses == {GIB // 2: 0, 2 * GIB: 3}


def test_books_show_what_a_program_uses(gpu: dict[str, str]) -> None:
    code = """
        import sys, torch
        held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        print("{}", flush=True)
        sys.stdin.readline()
    """
    program = started(code, gpu, 2 * GIB)
    assert program.stdout is not None
    assert program.stdout.readline()
    status = json.loads(
        subprocess.run(
            [sys.executable, "-m", "hippogriff", "ps", "--json"],
            env=gpu,
            capture_output=True,
            check=True,
            timeout=PATIENCE,
        ).stdout
    )
    program.communicate("\n", timeout=PATIENCE)
    promised = [device for device in status["devices"] if device["promised_bytes"]]
    assert [device["promised_bytes"] for device in promised] == [2 * GIB]
    (used,) = (client["used_bytes"] for client in status["clients"] if client["used_bytes"])
    assert used == {promised[0]["uuid"]: GIB}


# Takes 60 % of the GPU, trains a little in it, and holds it while the other may be trying.
TRAINING = f"""
    import sys, time, torch
    from pathlib import Path
    share, mine, other, patience = float(sys.argv[1]), *map(Path, sys.argv[2:4]), float(sys.argv[4])
    def wait_for(path):
        end = time.monotonic() + patience
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.02)
    try:
        memory = torch.empty(int(share), dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        mine.write_text("failed")
        print(error, file=sys.stderr)
        sys.exit({FAILED})
    mine.write_text("holds")
    memory.fill_(1)
    inputs, targets = torch.randn(4096, 512, device="cuda"), torch.randn(4096, 1, device="cuda")
    model = torch.nn.Sequential(torch.nn.Linear(512, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    model = model.cuda()
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    wait_for(other)
"""


@pytest.mark.parametrize("reserved", [False, True], ids=["alone", "hippogriff-run"])
def test_two_trainings_of_60_percent(
    gpu: dict[str, str], torch: Any, tmp_path: Path, reserved: bool
) -> None:
    """Together one fails; under `hippogriff run` both succeed, one after the other."""
    total = torch.cuda.get_device_properties(0).total_memory
    share = int(total * 0.6)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    marks = [tmp_path / "first", tmp_path / "second"]
    programs = []
    for mine, other in (marks, marks[::-1]):
        # Alone, who has the memory holds it until the other has tried; else it need not wait.
        patience = "2" if reserved else str(PATIENCE)
        command = [sys.executable, str(script), str(share), str(mine), str(other), patience]
        if reserved:
            memory = str(share + (1 << 28))  # the model beside it
            run = [sys.executable, "-m", "hippogriff", "run", "--memory", memory]
            command = [*run, "--timeout", str(PATIENCE), "--", *command]
        programs.append(subprocess.Popen(command, env=gpu, stderr=subprocess.PIPE, text=True))
    errors = [program.communicate(timeout=2 * PATIENCE)[1] for program in programs]
    statuses = sorted(program.returncode for program in programs)
    assert statuses == ([0, 0] if reserved else [0, FAILED]), errors


FIRST_USE = """
    import json, sys, time
    from pathlib import Path
    mine, other = map(Path, {marks!r})
    mine.touch()
    end = time.monotonic() + 60
    while not other.exists():
        assert time.monotonic() < end, "the other has not begun"
        time.sleep(0.01)
    import torch
    memory = torch.full(({share},), 3, dtype=torch.uint8, device="cuda")
    print(json.dumps({{"total": torch.cuda.mem_get_info()[1], "sum": int(memory[::1024].sum())}}))
"""


def test_at_first_use_both_begin_and_one_waits_for_the_others_memory(
    gpu: dict[str, str], torch: Any, tmp_path: Path
) -> None:
    share = int(torch.cuda.get_device_properties(0).total_memory * 0.6) // GIB * GIB
    marks = [str(tmp_path / "first"), str(tmp_path / "second")]
    programs = [
        started(FIRST_USE.format(marks=each, share=share), gpu, share + GIB, "--wait", "first-use")
        for each in (marks, marks[::-1])
    ]
    for program in programs:
        answers = said(program)
        assert answers == {"total": share + GIB, "sum": 3 * share // 1024}
