"""All that has to be seen on a machine with a GPU, each part with a limit and a file of its own.

    python -m tests.gpu [--memory files] [--out build/gpu] [--only kills] [--minutes 8]

A part that fails or hangs takes nothing from the others. `make gpu-wheels` fetches what a machine
without network lacks, into build/wheels. There, before all else:

    python3 -m pip install --no-index --no-deps wheels/*.whl
    python3 -m pip install --no-index --no-deps --no-build-isolation --editable .
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support import leaks
from tests.support.server import ROOT
from tests.support.tools import parse_options

#: Tests that have a GPU, or what stands for one.
_TESTS = [
    "tests/system/protocols/test_cuda_memory.py",
    "tests/standard/on_demand/system/test_gpus.py",
]
_PYTHON = [sys.executable, "-m"]


class Part(NamedTuple):
    """A program, how long it may take, and what must be there for it."""

    name: str
    command: Sequence[str]
    seconds: float
    needs: str = ""


def _parts(memory: str) -> list[Part]:
    of_memory = [f"--memory={memory}"]
    pytest = [*_PYTHON, "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--timeout=60"]
    marked = [path for path in ROOT.glob("tests/**/test_*.py") if "mark.gpu" in path.read_text()]
    kills = [*_PYTHON, "tests.gpu.kills", *of_memory]
    return [
        Part("card", ["nvidia-smi"], 20, "nvidia-smi"),
        Part("doctor", [*_PYTHON, "zmqtriton.ctl.main", "doctor"], 60),
        Part("marked", [*pytest, "-m", "gpu", *map(str, marked)], 120),
        Part("tests", [*pytest, *_TESTS], 120),
        Part("kept", [*_PYTHON, "tests.gpu.kept", *of_memory], 60),
        Part("handover", [*_PYTHON, "tests.gpu.handover", *of_memory], 60),
        Part("kills", [*kills, "--kills=3"], 120),
        Part("frameworks", [*_PYTHON, "tests.gpu.frameworks", *of_memory], 90),
        Part("mps", [*kills, "--kills=2", "--mps=auto"], 120, "nvidia-cuda-mps-control"),
    ]


def _run(part: Part, limit_s: float, log: Path) -> str:
    """Run a part, with its output here and in the log; return its outcome in words."""
    if part.needs and not shutil.which(part.needs):
        return f"left out: no {part.needs}"
    if limit_s <= 0:
        return "left out: no time is left"
    # an interrupt lets it stop its server
    command = ["timeout", "--signal=INT", "--kill-after=10", f"{limit_s:.0f}", *part.command]
    began_s = time.monotonic()
    with log.open("wb") as file:
        done = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
        assert done.stdout is not None
        while data := done.stdout.read(1 << 16):
            file.write(data)
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        code = done.wait()
    outcome = {0: "as it should be", 124: "not within its limit"}.get(code, f"ended with {code}")
    return f"{outcome}, {time.monotonic() - began_s:.0f} s"


def main() -> int:
    options = parse_options(
        __doc__,
        memory=("cuda", "cuda, or files"),
        out=("build/gpu", "the directory of the files"),
        only=("", "parts whose name holds this"),
        minutes=(8.0, "for all parts"),
    )
    leaks.mark_session()
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + 60 * options.minutes
    outcomes = {}
    for part in _parts(options.memory):
        if options.only in part.name:
            print(f"\n== {part.name}", flush=True)
            limit_s = min(part.seconds, end_s - time.monotonic())
            outcomes[part.name] = _run(part, limit_s, folder / f"{part.name}.txt")
    print()
    for name, outcome in outcomes.items():
        print(f"{name:12}{outcome}", flush=True)
    return int(any("with" in outcome for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
