"""Samples of real threads in this process: which line, what was done, and what it is counted as."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import subprocess
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.stub.interpreters import VERSIONS, base_or_skip
from tests.support.waiting import eventually
from zmqtriton_extras.inspection import sampler
from zmqtriton_extras.inspection.profile import AWAITS, PYTHON, WAITS, C, Profile, Stack, read

HERE = Path(__file__)
#: They watch threads for half a second and more.
pytestmark = pytest.mark.slow


class Instance(NamedTuple):
    ids: tuple[str, ...] = ()
    directories: tuple[str, ...] = (str(HERE.parent),)
    others: list[int] = []  # noqa: RUF012 - a default of a tuple

    def request_ids(self) -> list[str]:
        return list(self.ids)

    def other_threads(self) -> list[int]:
        return self.others


def profile(seconds: float = 0.5, ids: tuple[str, ...] = (), **values: Any) -> Profile:
    part = json.loads(json.dumps(sampler.sample(Instance(ids), seconds, **values)))
    return read({"model": "m", "instances": [{"instance": "m_0", "profile": part}]})


@contextmanager
def running(work: Callable[[Callable[[], bool]], object], name: str = "worker") -> Iterator[None]:
    """Run this in a thread; its argument says whether it is to go on."""
    end = threading.Event()
    begun = threading.Event()

    def run() -> None:
        begun.set()
        work(lambda: not end.is_set())

    thread = threading.Thread(target=run, name=name)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


def of(seen: Profile, function: str, thread: str = "worker") -> list[Stack]:
    """The stacks of a thread that go through a function."""
    return [
        s
        for s in seen.stacks
        if s.thread == thread and any(function in frame.function for frame in s.frames)
    ]


def shares(seen: Profile, function: str, thread: str = "worker") -> list[float]:
    """The share of the time in a function, by what was done."""
    found = [0.0] * 4
    for stack in of(seen, function, thread):
        found[stack.doing] += stack.ns / 1e9 / seen.seconds
    return found


def count_up(goes_on: Callable[[], bool]) -> None:
    total = 0
    while goes_on():
        for number in range(1000):
            total += number


def hash_much(goes_on: Callable[[], bool]) -> None:
    data = bytes(8 << 20)
    while goes_on():
        hashlib.sha256(data)  # without the interpreter's lock


def wait_much(goes_on: Callable[[], bool]) -> None:
    while goes_on():
        time.sleep(0.2)


def computed_s(thread: int | None) -> float:
    """How long a thread has had a processor or has waited for one, by the kernel's clocks."""
    words = Path(f"/proc/self/task/{thread}/schedstat").read_text().split()
    return (int(words[0]) + int(words[1])) / 1e9


def until(reached: Callable[[Profile], bool], **values: Any) -> Profile:
    """Profile until this is so: on a busy machine a thread may not run for a while."""

    def look() -> Profile | None:
        seen = profile(**values)
        return seen if reached(seen) else None

    return eventually(look, 60)


def test_a_loop_runs_python_at_its_lines() -> None:
    with running(count_up):
        seen = until(lambda seen: shares(seen, "count_up")[PYTHON] > 0.5)

    stacks = of(seen, "count_up")
    lines = {f.line for s in stacks for f in s.frames if f.function == "count_up"}
    first = count_up.__code__.co_firstlineno
    assert lines <= set(range(first, first + 5))
    # the innermost may be what the loop calls between its turns
    assert all(str(HERE) == s.frames[s.own].file for s in stacks)


def test_what_computes_without_the_lock_is_in_c() -> None:
    with running(hash_much):
        seen = until(lambda seen: shares(seen, "hash_much")[C] > 0.5)

    assert shares(seen, "hash_much")[PYTHON] < 0.2


def test_what_waits_does_not_compute() -> None:
    with running(wait_much):
        seen = profile()

    python, c, waits, _ = shares(seen, "wait_much")
    assert waits > 0.9
    assert python + c < 0.1


def test_threads_that_contend_compute_as_long_as_the_kernel_says() -> None:
    """A sample that takes one for the other costs neither of them any time."""
    works = {"counts": count_up, "hashes": hash_much}

    def is_near() -> bool:
        # on a busy machine the clocks are read long before or after the samples
        before = {name: computed_s(ids[name]) for name in works}
        begin = time.perf_counter()
        seen = profile(2.0)
        elapsed_s = time.perf_counter() - begin
        return all(
            (computed_s(ids[name]) - before[name]) / elapsed_s
            == pytest.approx(sum(shares(seen, work.__name__, name)[:WAITS]), abs=0.07)
            for name, work in works.items()
        )

    with running(count_up, "counts"), running(hash_much, "hashes"):
        ids = {thread.name: thread.native_id for thread in threading.enumerate()}
        eventually(is_near, 60)


def test_threads_that_begin_and_end_meanwhile_are_met() -> None:
    """The number of a thread that has ended is another's soon."""

    def run_many(goes_on: Callable[[], bool]) -> None:
        while goes_on():
            threads = [threading.Thread(target=time.sleep, args=(0.02,)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    with running(run_many):
        seen = profile(1.0)

    assert shares(seen, "run_many")[WAITS] > 0
    assert seen.samples > 1


def test_the_sampler_itself_is_not_seen_and_leaves_nothing_behind() -> None:
    interval, descriptors = sys.getswitchinterval(), len(os.listdir("/proc/self/fd"))

    with running(count_up):
        seen = profile()

    assert not any(frame.file == sampler.__file__ for s in seen.stacks for frame in s.frames)
    assert interval == sys.getswitchinterval()
    assert descriptors == len(os.listdir("/proc/self/fd"))


def test_threads_of_other_instances_are_left_out() -> None:
    with running(count_up, "mine"), running(count_up, "theirs"):
        [theirs] = [t.ident or 0 for t in threading.enumerate() if t.name == "theirs"]
        part = sampler.sample(Instance(others=[theirs]), 0.5)

    names = {name for _, name, *_ in part["times"]}
    assert "mine" in names
    assert "theirs" not in names


def test_two_samplers_of_a_process_do_not_see_each_other() -> None:
    interval, parts = sys.getswitchinterval(), []

    def run(seconds: float) -> None:
        parts.append(sampler.sample(Instance(), seconds))

    for seconds in (0.3, 0.4, 0.5):
        start_new_thread(run, (seconds,))
    eventually(lambda: len(parts) == 3, 60)

    functions = [function for part in parts for function in part["functions"]]
    assert not any(file == sampler.__file__ for _, file, *_ in functions)
    assert not any(name.endswith("<locals>.run") for name, *_ in functions)
    assert interval == sys.getswitchinterval()


def test_an_awaited_coroutine_is_seen_under_its_own_name() -> None:
    async def fetch() -> None:
        await asyncio.sleep(0.2)

    async def answer(goes_on: Callable[[], bool]) -> None:
        while goes_on():
            await fetch()

    async def compute(goes_on: Callable[[], bool]) -> None:
        while goes_on():
            math.factorial(2000)
            await asyncio.sleep(0)

    async def both(goes_on: Callable[[], bool]) -> None:
        await asyncio.gather(answer(goes_on), compute(goes_on))

    def serve(goes_on: Callable[[], bool]) -> None:
        asyncio.run(both(goes_on))

    def has_both(seen: Profile) -> bool:
        doing = {s.doing for s in seen.stacks if s.thread.endswith("answer")}
        return AWAITS in doing and any(s.thread.endswith("compute") for s in seen.stacks)

    with running(serve):
        seen = until(has_both)

    waiting = max((s for s in seen.stacks if s.thread.endswith("answer")), key=lambda s: s.ns)
    assert AWAITS == waiting.doing
    names = [frame.function.rpartition(".")[2] for frame in waiting.frames]
    assert ["answer", "fetch", "sleep"] == names
    assert "fetch" == waiting.frames[waiting.own].function.rpartition(".")[2]
    assert not any("run_forever" in f.function for s in seen.stacks for f in s.frames[1:2])


def test_only_the_time_of_the_request_is_counted() -> None:
    with running(count_up):
        without = sampler.sample(Instance(("other",)), 0.2, request="mine")
        with_it = sampler.sample(Instance(("other", "mine")), 0.2, request="mine")

    assert 0 == without["samples"] == len(without["times"])
    assert with_it["samples"] > 0


def test_more_than_the_bytes_is_left_out_and_counted() -> None:
    def descend(depth: int, goes_on: Callable[[], bool]) -> None:
        if depth:
            descend(depth - 1, goes_on)
        else:
            count_up(goes_on)

    with running(lambda goes_on: descend(60, goes_on)):
        part = sampler.sample(Instance(), 0.5, most_bytes=2000)

    assert part["left_out_ns"] > 0
    assert len(json.dumps(part)) < 10_000


def test_a_deep_stack_is_seen_from_within() -> None:
    def descend(depth: int, goes_on: Callable[[], bool]) -> None:
        if depth:
            descend(depth - 1, goes_on)
        else:
            wait_much(goes_on)

    with running(lambda goes_on: descend(500, goes_on)):
        seen = profile()

    [stack] = {s.frames for s in of(seen, "wait_much")}
    assert 200 == len(stack)
    assert "wait_much" == stack[-1].function


def test_a_hold_of_the_interpreters_lock_is_named() -> None:
    def hold(goes_on: Callable[[], bool]) -> None:
        while goes_on():
            sum(range(20_000_000))  # one call of C, which keeps the lock
            time.sleep(0.001)

    with running(hold):
        seen = until(lambda seen: seen.held_s > 0.05, seconds=1.0)

    assert any("hold" in frame.function for frame in seen.held)


@pytest.mark.parametrize("name", ["co_lines", "f_lineno"])
def test_lines_are_the_same_in_each_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pythons before 3.10 have no table of lines."""
    from operator import attrgetter

    if name == "f_lineno":
        monkeypatch.setattr(sampler, "_HAS_LINES", False)
        monkeypatch.setattr(sampler, "_place_of", attrgetter(name))

    with running(wait_much):
        seen = profile()

    [frame] = {s.frames[s.own] for s in of(seen, "wait_much")}
    assert wait_much.__code__.co_firstlineno + 2 == frame.line


#: Prints the states and functions of a thread that counts and of a coroutine that waits.
_PROGRAM = """
import asyncio, importlib.util, json, threading
spec = importlib.util.spec_from_file_location("sampler", {file!r})
sampler = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sampler)

class Instance:
    directories = ()
    request_ids = other_threads = staticmethod(list)

end = []

def count():
    while not end:
        for number in range(1000):
            number * number

async def fetch():
    while not end:
        await asyncio.sleep(0.1)

for run in (count, lambda: asyncio.run(fetch())):
    threading.Thread(target=run).start()
seen = sampler.sample(Instance, 1.0)
end.append(1)
for node, name, state, spent_ns, count in seen["times"]:
    while node >= 0:
        node, frame = seen["nodes"][node]
        print(state, seen["functions"][seen["frames"][frame][0]][0])
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_models_of_each_python_are_sampled(version: str) -> None:
    python = base_or_skip(version)

    program = _PROGRAM.format(file=sampler.__file__)
    words = [python, "-W", "error", "-c", program]
    printed = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)

    rows = {tuple(line.split(" ", 1)) for line in printed.stdout.splitlines()}
    assert {(str(PYTHON), "count"), (str(AWAITS), "fetch")} <= rows
