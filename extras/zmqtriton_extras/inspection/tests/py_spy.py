"""A profile next to that of py-spy, which looks at the same process at the same time: a bench.

`python -m zmqtriton_extras.inspection.tests.py_spy` prints the share of each line by both, in the
median of some pairs, and of the line that has a thread of its own also by the kernel's clocks.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

import click
import psutil

from tests.standard.ctl.system.commands import ctl
from tests.standard.tools.advice.world import World
from tests.standard.tools.system import broken_models as broken
from tests.support.needs import find_tool
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.inspection.tests.operators import asked

#: numpy, asyncio and a thread at once; each way to spend time has a line of its own. Turns are
#: longer than a busy machine keeps a thread waiting: of shorter ones each sampler sees others.
CODE = """
import asyncio
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

END = {end!r}
DATA = np.random.rand(1 << 20)


def goes_on():
    return not os.path.exists(END)


def count():
    total = 0
    while goes_on():
        for number in range(2_000_000):
            total += number * number  # in Python
        time.sleep(0.1)


async def compute():
    while goes_on():
        np.sort(DATA)  # sorts
        np.exp(np.sin(DATA))  # maps
        await asyncio.sleep(0.1)


class TritonPythonModel:
    def execute(self, requests):
        thread = threading.Thread(target=count)
        thread.start()
        asyncio.run(compute())
        thread.join()
        answer = pb_utils.Tensor("OUT", np.ones(1, np.float32))
        return [pb_utils.InferenceResponse([answer]) for _ in requests]
"""
LINES = {
    n: text.rpartition("# ")[2]
    for n, text in enumerate(CODE.splitlines(), 1)
    if text.endswith(("# in Python", "# sorts", "# maps"))
}
SECONDS = 8
#: Pairs of profiles of which the median counts: each differs by chance.
TIMES = 7
_PLACE = re.compile(r"model\.py:(\d+)\)")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        own = [f"--runtime-directory={directory}/run"]
        server = Server(directory / "server", ["add_sub"], options=own, frontends=())
        end = server.scratch / "end"
        World(server, "busy").write(broken.CONFIG, CODE.format(end=str(end)))
        with server, asked(server, "busy"):
            try:
                eventually(lambda: set(LINES.values()) <= set(_ours(server, 1)), 60)
                _compare(server, directory)
            finally:
                end.touch()


def _compare(server: Server, directory: Path) -> None:
    ours: dict[str, list[float]] = {name: [] for name in LINES.values()}
    theirs: dict[str, list[float]] = {name: [] for name in LINES.values()}
    kernels: list[float] = []
    for number in range(TIMES):
        file = directory / f"{number}"
        words = ["record", "--threads", "--format", "raw", "--rate", "100"]
        words += ["--duration", str(SECONDS), "--output", str(file)]
        [pid] = server.stub_pids("busy")
        before = _clocks(pid)
        with subprocess.Popen(
            [find_tool("py-spy"), *words, "--pid", str(pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as other:
            shares = _ours(server, SECONDS)
            said, _ = other.communicate(timeout=120)
        assert not other.returncode, said
        took = {number: s - before.get(number, 0.0) for number, s in _clocks(pid).items()}
        main_s = took.pop(pid)
        kernels.append(100 * max(took.values()) / (max(took.values()) + main_s))
        for name, share in _theirs(file).items():
            theirs[name].append(share)
        for name, share in shares.items():
            ours[name].append(share)
    for name in ours:
        click.echo(f"{name}: {_middle(ours[name])}, by py-spy {_middle(theirs[name])}")
    click.echo(f"in Python, by the kernel's clocks: {_middle(kernels)}")


def _clocks(pid: int) -> dict[int, float]:
    """Return the time that each thread has been on a processor."""
    threads = psutil.Process(pid).threads()
    return {thread.id: thread.user_time + thread.system_time for thread in threads}


def _middle(shares: list[float]) -> str:
    return f"{statistics.median(shares):.0f} % ({min(shares):.0f} to {max(shares):.0f})"


def _ours(server: Server, seconds: int) -> dict[str, float]:
    shown = ctl(server, "profile", "busy", "--seconds", str(seconds), "--json")
    assert 0 == shown.exit_code, shown.output
    times: dict[str, float] = {}
    for line in json.loads(shown.stdout)["lines"]:
        if name := LINES.get(line["line"]):
            times[name] = line["python_seconds"] + line["c_seconds"]
    return _shares(times)


def _theirs(file: Path) -> dict[str, float]:
    """Return the shares by the innermost line of the model in each stack."""
    times: dict[str, float] = {}
    for stack in file.read_text().splitlines():
        frames, _, count = stack.rpartition(" ")
        places = _PLACE.findall(frames)
        if places and (name := LINES.get(int(places[-1]))):
            times[name] = times.get(name, 0.0) + float(count)
    return _shares(times)


def _shares(times: dict[str, float]) -> dict[str, float]:
    """Return each line's share of all these lines, in points."""
    total = sum(times.values()) or 1.0
    return {name: 100 * time / total for name, time in times.items()}


if __name__ == "__main__":
    main()
