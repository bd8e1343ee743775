"""A profile next to the kernel's clocks, and to py-spy, all of the same process at once: a bench.

`python -m zmqtriton_extras.inspection.tests.py_spy` judges the share of each line by what the model
has itself measured around its lines: how long a thread had a processor, or waited for one. It ends
with 1 if a profile is further from that than 5 points. py-spy's figures stand beside.
"""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np

from tests.standard.ctl.system.commands import ctl
from tests.standard.tools.advice.world import World
from tests.standard.tools.system import broken_models as broken
from tests.support.needs import find_tool
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.inspection.tests.operators import asked

#: asyncio and a thread at once. Each way to spend time has a line of its own, since py-spy gives
#: the head of a loop its part, and the interpreter gives its lock away at the end of one alone. The
#: time of the event loop itself is in the clocks of the line that awaits.
CODE = """
import asyncio
import ctypes
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils
{begin}
END = {end!r}
TIMES = np.memmap({times!r}, np.int64, "r+")
# of it the interpreter keeps its lock, so that no line waits for that
LIBC = ctypes.PyDLL(None)
DATA = np.random.rand(1 << 20)


class Clock:
    def __init__(self):
        self.text = ctypes.create_string_buffer(128)
        self.file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self.last = self.read()

    def read(self):
        LIBC.pread(self.file, self.text, 127, 0)
        computed, delayed, _ = self.text.value.split()
        return int(computed) + int(delayed)

    def lap(self, line):
        now = self.read()
        TIMES[line] += now - self.last
        self.last = now


def goes_on():
    return not os.path.exists(END)


def count():
    clock = Clock()
    while goes_on():
        sum(number * number for number in range(1_500_000))  # in Python
        clock.lap({line})
        [len(str(number)) for number in range(300_000)]  # calls from Python
        clock.lap({line})
        time.sleep(0.1)  # sleeps
        clock.lap({line})


async def compute():
    clock = Clock()
    while goes_on():
{lines}
        await asyncio.sleep(0.1)  # awaits
        clock.lap({line})


class TritonPythonModel:
    def execute(self, requests):
        thread = threading.Thread(target=count)
        thread.start()
        asyncio.run(compute())  # awaits
        thread.join()
        answer = pb_utils.Tensor("OUT", np.ones(1, np.float32))
        return [pb_utils.InferenceResponse([answer]) for _ in requests]
"""
#: By name of a model: what it imports, and what its coroutine does.
MODELS = {
    "numpy": (
        "",
        """
        np.sort(DATA)  # sorts
        np.exp(np.sin(DATA))  # maps
        sum(number * number for number in range(100_000))  # in Python, too
        """,
    ),
    "torch": (
        """
import torch

torch.set_num_threads(1)
MATRIX = torch.rand(700, 700, requires_grad=True)
IMAGES, FILTERS = torch.rand(8, 8, 96, 96), torch.rand(16, 8, 5, 5)
""",
        """
        np.sort(DATA)  # sorts
        (MATRIX @ MATRIX).relu().sum().backward()  # learns
        torch.conv2d(IMAGES, FILTERS)  # convolves
        [float(row.sum()) for row in MATRIX.detach()]  # many small calls
        """,
    ),
}
SECONDS = 8
#: Profiles of which the median counts: each differs by chance.
TIMES = 7
#: Points. A line with fewer, by all, is not judged; a profile may be so far from the clocks.
LEAST, MOST = 5.0, 5.0
_PLACE = re.compile(r"model\.py:(\d+)\)")
#: Shares of lines by their names, in points.
Shares = dict[str, float]


def main() -> None:
    names = [name for name in MODELS if importlib.util.find_spec(name)]
    for name in MODELS.keys() - names:
        click.echo(f"{name} is not installed here: its model is left out.")
    with tempfile.TemporaryDirectory() as directory:
        far = [line for name in names for line in _compare(name, Path(directory) / name)]
    if far:
        click.echo(f"More than {MOST:.0f} points from the clocks: {', '.join(far)}.")
        sys.exit(1)


def _write(name: str, end: Path, times: Path) -> tuple[str, dict[int, str]]:
    """Return the code of a model, and the names of its lines by their numbers."""
    begin, body = MODELS[name]
    lines = "\n".join(f"        {each.strip()}\n        clock.lap({{line}})" for each in _of(body))
    text = CODE.replace("{lines}", lines).replace("{begin}", begin.rstrip())
    text = text.replace("{end!r}", repr(str(end))).replace("{times!r}", repr(str(times)))
    # a lap has the number of the line before it, counted from 1
    rows = [row.replace("{line}", str(at)) for at, row in enumerate(text.splitlines())]
    np.zeros(len(rows), np.int64).tofile(times)
    named = {at: row.rpartition("  # ")[2] for at, row in enumerate(rows, 1) if "  # " in row}
    return "\n".join(rows), named


def _of(body: str) -> list[str]:
    return body.strip().splitlines()


def _compare(name: str, directory: Path) -> list[str]:
    """Compare for some turns; return the lines of which a profile says something else."""
    own = [f"--runtime-directory={directory}/run"]
    server = Server(directory / "server", ["add_sub"], options=own, frontends=())
    end, times = server.scratch / "end", server.scratch / "times"
    code, lines = _write(name, end, times)
    World(server, name).write(broken.CONFIG, code)
    clocks = np.memmap(times, np.int64, "r")
    turns = []
    with server, asked(server, name):
        try:
            known = set(lines.values())
            eventually(lambda: known == _shares(dict(enumerate(clocks)), lines).keys(), 120)
            for number in range(TIMES):
                turns.append(_turn(server, name, lines, clocks, directory / f"{number}"))
        finally:
            end.touch()
    return _judge(name, turns)


def _turn(
    server: Server,
    name: str,
    lines: Mapping[int, str],
    clocks: np.memmap[tuple[int, ...], np.dtype[np.int64]],
    file: Path,
) -> tuple[Shares, Shares, Shares]:
    """Return the shares of the model's lines by the clocks, by a profile, and by py-spy."""
    words = ["record", "--threads", "--format", "raw", "--rate", "100"]
    words += ["--duration", str(SECONDS), "--output", str(file)]
    [pid] = server.stub_pids(name)
    before = clocks.copy()
    with subprocess.Popen(
        [find_tool("py-spy"), *words, "--pid", str(pid)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as other:
        ours = _ours(server, name)
        took = clocks - before
        said, _ = other.communicate(timeout=120)
    assert not other.returncode, said
    kernels = _shares(dict(enumerate(took)), lines)
    return kernels, _shares(ours, lines), _shares(_theirs(file), lines)


def _judge(name: str, turns: list[tuple[Shares, Shares, Shares]]) -> list[str]:
    """Print the table; return the lines of which a profile says something else."""
    far = []
    click.echo(f"\n{name:<18} clocks    ours {'':12} off  py-spy {'':12} off")
    for line in dict.fromkeys(line for turn in turns for shares in turn for line in shares):
        by_each = zip(*turns, strict=True)
        truth, ours, theirs = ([shares.get(line, 0.0) for shares in by] for by in by_each)
        middles = [statistics.median(shares) for shares in (truth, ours, theirs)]
        if max(middles) < LEAST:
            continue
        off, their_off = (
            statistics.median(a - b for a, b in zip(shares, truth, strict=True))
            for shares in (ours, theirs)
        )
        click.echo(
            f"{line:<18} {middles[0]:4.0f} %  {_range(ours):>17} {off:+5.1f}  "
            f"{_range(theirs):>17} {their_off:+5.1f}"
        )
        if abs(off) > MOST:
            far.append(f"{name}, {line}")
    return far


def _range(shares: list[float]) -> str:
    return f"{statistics.median(shares):.0f} % ({min(shares):.0f} to {max(shares):.0f})"


def _ours(server: Server, name: str) -> dict[int, float]:
    shown = ctl(server, "profile", name, "--seconds", str(SECONDS), "--json")
    assert 0 == shown.exit_code, shown.output
    lines = json.loads(shown.stdout)["lines"]
    return {one["line"]: one["python_seconds"] + one["c_seconds"] for one in lines}


def _theirs(file: Path) -> dict[int, float]:
    """Return the samples by the innermost line of the model in each stack."""
    times: dict[int, float] = defaultdict(float)
    for stack in file.read_text().splitlines():
        frames, _, count = stack.rpartition(" ")
        if places := _PLACE.findall(frames):
            times[int(places[-1])] += float(count)
    return times


def _shares(times: Mapping[int, float], lines: Mapping[int, str]) -> Shares:
    """Return the share of each line that has a part in the time."""
    total = sum(times.values())
    shares: dict[str, float] = defaultdict(float)
    for line, time in times.items():
        if time:
            shares[lines.get(line, f"line {line}")] += 100 * float(time) / float(total)
    return shares


if __name__ == "__main__":
    main()
