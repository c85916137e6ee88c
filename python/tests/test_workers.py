"""What worker processes and threads do: forks, spawns, DataLoaders, many threads at once."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy

import hippogriff
from hippogriff import _library
from hippogriff.safetensors import load_file, safe_open

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

METHODS = ("fork", "spawn", "forkserver")
FAKE_CUDA = Path(_library.lib._name).parent / "libhippogriff_fake_cuda.so"
forks_beside_threads = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def _model(path: Path, count: int = 12) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(count)
    tensors: dict[str, np.ndarray[Any, Any]] = {
        f"layer{number:03}": random.standard_normal((257, 100 + number)).astype(np.float32)
        for number in range(count)
    }
    tensors["half"] = random.standard_normal(3333).astype(np.float16)
    tensors["empty"] = np.empty((0, 4), np.int8)
    safetensors.numpy.save_file(tensors, path)
    return tensors


def _check(loaded: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].tobytes() == tensor.tobytes(), name


@pytest.fixture
def model(tmp_path: Path) -> Path:
    _model(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def _load(path: Path) -> dict[str, bytes]:
    """What a worker does with a model, by every way of loading."""
    loaded = load_file(path, framework="np")
    whole = hippogriff.read(path, device="host").to_numpy().tobytes()
    assert whole == path.read_bytes()
    with safe_open(path, framework="np") as file:
        for name in file.keys():  # noqa: SIM118
            assert file.get_tensor(name).tobytes() == loaded[name].tobytes()
    return {name: array.tobytes() for name, array in loaded.items()}


def _in_children(context: BaseContext, path: Path, count: int = 2) -> None:
    expected = {name: array.tobytes() for name, array in safetensors.numpy.load_file(path).items()}
    with context.Pool(count) as pool:
        for result in pool.map_async(_load, [path] * (2 * count)).get(60):
            assert result == expected


@forks_beside_threads
@pytest.mark.parametrize("method", METHODS)
def test_children_load_after_the_parent_did(model: Path, method: str) -> None:
    _load(model)
    _in_children(multiprocessing.get_context(method), model)
    _load(model)


def _run(program: str, *arguments: object, **more: str) -> str:
    """Run a program of its own file, as spawn needs it; what hangs is killed."""
    file = Path(str(arguments[0])).parent / "program.py"
    file.write_text(textwrap.dedent(program))
    quiet = ("-W", "error", "-W", "ignore::DeprecationWarning")
    done = subprocess.run(
        [sys.executable, *quiet, str(file), *map(str, arguments)],
        env={**os.environ, **more, "HIPPOGRIFF_LIBRARY": _library.lib._name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return str(done.stdout)


@pytest.mark.parametrize("method", METHODS)
def test_children_load_before_the_parent_does(model: Path, method: str) -> None:
    program = """
        import multiprocessing, sys
        from hippogriff.safetensors import load_file

        def load(path):
            return sum(array.nbytes for array in load_file(path, framework="np").values())

        if __name__ == "__main__":
            path, method = sys.argv[1:]
            with multiprocessing.get_context(method).Pool(2) as pool:
                children = pool.map(load, [path] * 4)
            assert children == [load(path)] * 4
            print("done")
    """
    assert _run(program, model, method) == "done\n"


def test_children_forked_while_threads_load_do_not_hang(model: Path) -> None:
    program = """
        import multiprocessing, sys, threading
        from hippogriff.safetensors import load_file, safe_open

        opened = safe_open(sys.argv[1], framework="np")  # all threads and children use it
        names = opened.keys()
        expected = {name: opened.get_tensor(name).tobytes() for name in names}
        ending = threading.Event()

        def load_on():
            while not ending.is_set():
                for name in names:
                    assert opened.get_tensor(name).tobytes() == expected[name]
                load_file(sys.argv[1], framework="np")

        def child():
            for name in names:
                assert opened.get_tensor(name).tobytes() == expected[name]
            loaded = load_file(sys.argv[1], framework="np")
            assert {name: array.tobytes() for name, array in loaded.items()} == expected

        threads = [threading.Thread(target=load_on) for _ in range(4)]
        for thread in threads:
            thread.start()
        codes = []
        for _ in range(15):
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join(30)
            codes.append(process.exitcode)
            if process.exitcode is None:
                process.kill()
        ending.set()
        for thread in threads:
            thread.join()
        print(codes)
    """
    assert _run(program, model) == f"{[0] * 15}\n"


@forks_beside_threads
def test_a_child_uses_a_file_whose_lock_a_thread_of_the_parent_held(model: Path) -> None:
    with hippogriff.open(model) as file, file._lock:
        process = multiprocessing.get_context("fork").Process(
            target=file.read_into, args=(np.empty(100, np.uint8),)
        )
        process.start()
        process.join(30)
        code = process.exitcode
        process.kill()
    assert code == 0


@forks_beside_threads
def test_a_childs_death_does_not_disturb_the_parent(model: Path) -> None:
    _load(model)
    pid = os.fork()
    if pid == 0:
        _load(model)
        os.kill(os.getpid(), 9)
    assert os.waitpid(pid, 0)[1] == 9
    _load(model)


def test_an_open_file_says_why_spawn_cannot_take_it_along(model: Path) -> None:
    with safe_open(model, framework="np") as file, pytest.raises(TypeError, match="in the worker"):
        pickle.dumps(file)


class _Samples:
    """A dataset as people write them: the file is opened once, in the parent."""

    def __init__(self, path: Path) -> None:
        self.file = safe_open(path, framework="np")
        self.names = self.file.keys()

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        tensor: np.ndarray[Any, Any] = self.file.get_tensor(self.names[index])
        return tensor


def _serve(samples: _Samples, wanted: Any, found: Any) -> None:
    """What a DataLoader's worker does."""
    while (index := wanted.get()) is not None:
        found.put((index, samples[index].tobytes()))


@forks_beside_threads
def test_workers_as_a_data_loader_has_them_serve_several_epochs(model: Path) -> None:
    samples = _Samples(model)
    expected = [samples[index].tobytes() for index in range(len(samples))]
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        wanted, found = context.Queue(), context.Queue()
        workers = [context.Process(target=_serve, args=(samples, wanted, found)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for index in range(len(samples)):
            wanted.put(index)
        seen = dict(found.get(timeout=60) for _ in range(len(samples)))
        for _ in workers:
            wanted.put(None)
        for worker in workers:
            worker.join(30)
            assert worker.exitcode == 0
        assert [seen[index] for index in range(len(samples))] == expected


@pytest.mark.torch
@forks_beside_threads
@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # one core
@pytest.mark.parametrize("method", METHODS)
def test_torchs_data_loader_loads_in_workers(model: Path, method: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    loader = torch.utils.data.DataLoader(
        _Tensors(model), batch_size=None, num_workers=2, multiprocessing_context=method
    )
    expected = safetensors.numpy.load_file(model)
    for _ in range(2):
        for name, tensor in loader:
            assert tensor.float().numpy().tobytes() == expected[name].tobytes()


@pytest.mark.torch
@forks_beside_threads
@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # one core
def test_a_worker_that_fails_is_heard_of_by_torchs_data_loader(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    loader = torch.utils.data.DataLoader(_Tensors(tmp_path / "missing"), num_workers=2, timeout=60)
    with pytest.raises(FileNotFoundError, match="missing"):
        next(iter(loader))


class _Tensors:
    """For torch's DataLoader, and to be pickled: the file is opened in the worker."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[str, Any]:
        with safe_open(self.path, framework="pt") as file:
            return f"layer{index:03}", file.get_tensor(f"layer{index:03}")


def test_many_threads_at_once_get_the_right_bytes(tmp_path: Path) -> None:
    models = {tmp_path / f"{count}": _model(tmp_path / f"{count}", count) for count in range(1, 6)}
    shared = tmp_path / "5"
    together = threading.Barrier(16)

    def work(number: int, file: safe_open) -> None:
        together.wait(30)
        for path, tensors in models.items():
            _check(load_file(path, framework="np"), tensors)
            read = hippogriff.read(path, device="host").to_numpy()
            assert read.tobytes() == path.read_bytes()
            with safe_open(path, framework="np") as own:
                _check(own.get_tensors(), tensors)
            name = f"layer{number % 5:03}"
            part = file.get_slice(name)[number : number + 50, 3:]
            whole = models[shared][name]
            assert part.tobytes() == whole[number : number + 50, 3:].tobytes()

    with safe_open(shared, framework="np") as file, ThreadPoolExecutor(16) as pool:
        for future in [pool.submit(work, number, file) for number in range(16)]:
            future.result(120)


@pytest.mark.skipif(not FAKE_CUDA.exists(), reason="the fake driver was not built")
@pytest.mark.parametrize("method", METHODS)
def test_cuda_in_a_forked_child_is_one_clear_error(model: Path, method: str) -> None:
    program = """
        import multiprocessing, sys
        import hippogriff

        def ask(path, device):
            try:
                return hippogriff.read(path, device=device).device
            except hippogriff.HippogriffError as error:
                return type(error).__name__, "spawn start method" in str(error)

        if __name__ == "__main__":
            path, method = sys.argv[1:]
            assert hippogriff.read(path).device == "cuda:0"
            with multiprocessing.get_context(method).Pool(1) as pool:
                devices = ("cuda:1", "cuda", None, "host")
                print([pool.apply_async(ask, (path, device)).get(30) for device in devices])
    """
    told = _run(program, model, method, HIPPOGRIFF_CUDA_DRIVER=str(FAKE_CUDA), HIPPOGRIFF_DEVICE="")
    if method == "fork":
        assert told == f"{[('Forked', True)] * 3 + ['host']}\n"
    else:
        assert told == f"{['cuda:1', 'cuda:0', 'cuda:0', 'host']}\n"


def test_cuda_that_somebody_else_used_before_the_fork_is_told_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Driver:
        def __init__(self, *_: object) -> None:
            self.cuInit = lambda _: 3

    monkeypatch.setattr(ctypes, "CDLL", Driver)
    monkeypatch.delenv("HIPPOGRIFF_DEVICE")
    hippogriff._runtime._driver.cache_clear()
    try:
        with pytest.raises(hippogriff.Forked, match="spawn start method"):
            hippogriff.default_device()
    finally:
        hippogriff._runtime._driver.cache_clear()
