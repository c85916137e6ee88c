"""Small tensors in torch's expandable segments: when that is asked for, and that it ends."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hippogriff import _torch_pages
from hippogriff._torch_pages import Pages

_ON, _OFF = "expandable_segments:True", "expandable_segments:False"
_SIZE = 429_496  # Four to a page of 2 MiB, and 303 KB left.
_KEY = "PYTORCH_CUDA_ALLOC_CONF"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _torch_pages._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_torch_pages, "_has_set", set())


class Allocator:
    """What of torch is asked and set."""

    def __init__(self, *, words: str = "", expandable: bool = False) -> None:
        self.said: list[str] = []
        self.settings = {_KEY: words, "expandable_segments": expandable}
        self._C = SimpleNamespace(
            _accelerator_setAllocatorSettings=self.set,
            _cuda_memorySnapshot=lambda _: {"allocator_settings": dict(self.settings)},
        )
        self.cuda = SimpleNamespace(get_allocator_backend=lambda: "native")

    def set(self, words: str) -> None:
        self.said.append(words)
        self.settings = {_KEY: words, "expandable_segments": words == _ON}

    @property
    def on(self) -> Any:
        return self.settings["expandable_segments"]


def test_the_first_few_are_made_as_ever_and_the_many_side_by_side() -> None:
    allocator = Allocator()
    pages = Pages(allocator)
    pages.expect([_SIZE] * 128)
    assert pages.make(lambda: allocator.on) is False
    pages.expect([_SIZE] * 128)
    assert pages.make(lambda: allocator.on) is True
    assert allocator.said == [_ON, _OFF]
    pages.expect([_SIZE])
    assert pages.make(lambda: allocator.on) is True
    assert allocator.said == [_ON, _OFF] * 2
    assert not _torch_pages._setting.locked()


@pytest.mark.parametrize(
    "sizes",
    [
        [1 << 20] * 5000,
        [512] * 100_000,
        [0] * 100_000,
        [1] * 100_000,
        [(1 << 20) + 1] * 5000,
        [300 << 20] * 70,
    ],
)
def test_sizes_that_leave_little_over_change_nothing(sizes: list[int]) -> None:
    allocator = Allocator()
    pages = Pages(allocator)
    pages.expect(sizes)
    assert pages.make(lambda: allocator.on) is False
    assert allocator.said == []


def test_what_is_left_over_is_what_pages_full_of_like_tensors_leave() -> None:
    for size in random.Random(1).sample(range(1, (1 << 20) + 1), 300):
        rounded = _torch_pages.rounded(size)
        assert rounded % 512 == 0 <= rounded - size < 512
        in_page = next(n for n in range(4097) if (n + 1) * rounded > 2 << 20)
        left = (2 << 20) - in_page * rounded
        assert _torch_pages._left_over(rounded) == left // in_page


@pytest.mark.parametrize("variable", _torch_pages._VARIABLES)
def test_settings_of_the_environment_stay(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "max_split_size_mb:64")
    _expect_unchanged(Allocator())


@pytest.mark.parametrize("words", ["max_split_size_mb:64", _ON, _OFF, "backend:native"])
def test_settings_made_by_the_program_stay(words: str) -> None:
    _expect_unchanged(Allocator(words=words, expandable=words == _ON))


def test_what_is_expandable_by_default_stays() -> None:
    _expect_unchanged(Allocator(expandable=True))


def test_another_allocator_and_an_older_torch_are_left_alone() -> None:
    other = Allocator()
    other.cuda.get_allocator_backend = lambda: "cudaMallocAsync"
    _expect_unchanged(other)
    for name in ("_accelerator_setAllocatorSettings", "_cuda_memorySnapshot"):
        older = Allocator()
        delattr(older._C, name)
        _expect_unchanged(older)
    silent = Allocator()
    silent._C._cuda_memorySnapshot = lambda _: {"segments": []}
    _expect_unchanged(silent)


def _expect_unchanged(allocator: Allocator) -> None:
    before = dict(allocator.settings)
    pages = Pages(allocator)
    pages.expect([_SIZE] * 10_000)
    assert pages.make(lambda: dict(allocator.settings)) == before
    assert allocator.said == []
    assert not _torch_pages._setting.locked()


def test_what_fails_side_by_side_is_made_as_ever() -> None:
    allocator = Allocator()
    pages = Pages(allocator)
    pages.expect([_SIZE] * 10_000)

    def make() -> bool:
        if allocator.on:
            raise RuntimeError("this pool knows no expandable segments")
        return True

    assert pages.make(make)
    assert pages.make(make)
    assert allocator.said == [_ON, _OFF]


@pytest.mark.parametrize("failure", [RuntimeError("out of memory"), KeyboardInterrupt()])
def test_the_setting_ends_whatever_happens(failure: BaseException) -> None:
    allocator = Allocator()
    pages = Pages(allocator)
    pages.expect([_SIZE] * 10_000)

    def fail() -> None:
        raise failure

    with pytest.raises(type(failure)):
        pages.make(fail)
    assert allocator.said == [_ON, _OFF]
    assert not _torch_pages._setting.locked()


def test_an_interrupt_right_after_the_setting_ends_it() -> None:
    allocator = Allocator()

    def interrupted(words: str) -> None:
        allocator.set(words)
        if words == _ON:
            raise KeyboardInterrupt

    allocator._C._accelerator_setAllocatorSettings = interrupted
    pages = Pages(allocator)
    pages.expect([_SIZE] * 10_000)
    with pytest.raises(KeyboardInterrupt):
        pages.make(list)
    assert allocator.on is False
    assert not _torch_pages._setting.locked()


def test_what_one_load_has_set_is_no_setting_of_the_programs_for_the_next() -> None:
    allocator = Allocator()
    for _ in range(3):
        pages = Pages(allocator)
        pages.expect([_SIZE] * 10_000)
        assert pages.make(lambda: allocator.on) is True


def test_threads_do_not_end_each_others_setting() -> None:
    allocator, wrong = Allocator(), []

    def load() -> None:
        for _ in range(200):
            pages = Pages(allocator)
            pages.expect([_SIZE] * 1000)
            if not pages.make(lambda: [allocator.on for _ in range(50)])[-1]:
                wrong.append(True)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong
    assert allocator.said == [_ON, _OFF] * 1600
