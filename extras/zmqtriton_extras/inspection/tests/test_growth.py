"""Memory that grows in this process: the line that keeps it, what holds it, and what does not."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.stub.interpreters import VERSIONS, base_or_skip
from zmqtriton_extras.inspection import growth
from zmqtriton_extras.inspection.tests.leaks import LEAKS, line_of

#: They trace all of a process for seconds.
pytestmark = pytest.mark.slow


class Instance(NamedTuple):
    directories: tuple[str, ...]


def load(directory: Path, name: str, code: str) -> Any:
    file = directory / f"{name}.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.TritonPythonModel()


@contextmanager
def executing(execute: Callable[[int], object]) -> Iterator[None]:
    """Execute again and again, in a thread."""
    end = threading.Event()

    def run() -> None:
        number = 0
        while not end.is_set():
            execute(number)
            number += 1
            time.sleep(0.002)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def measure(directory: Path, execute: Callable[[int], object], seconds: float = 1) -> Any:
    with executing(execute):
        return json.loads(json.dumps(growth.measure(Instance((str(directory),)), seconds)))


@pytest.mark.long(
    "extras/inspection/test_growth.py::test_models_of_each_python_are_measured",
    "extras/inspection/system/test_memory.py::test_of_a_leak_the_line_and_its_holder_are_named",
)
@pytest.mark.timeout(1200)
def test_of_each_leak_line_and_holder_are_named(tmp_path: Path) -> None:
    missed = {}
    for name, leak in LEAKS.items():
        model = load(tmp_path, name, leak.code)
        seen = measure(tmp_path, model.execute)
        first = seen["lines"][0] if seen["lines"] else {}
        is_line = (str(tmp_path / f"{name}.py"), line_of(leak.code)) == (
            first.get("file"),
            first.get("line"),
        )
        holders = [one["name"] for one in seen["holders"]]
        is_held = not leak.holder or leak.holder in holders
        if not (is_line and is_held):
            missed[name] = line_of(leak.code), first.get("line"), holders
        del model, sys.modules[name]

    assert {} == missed


def test_what_is_replaced_is_no_growth(tmp_path: Path) -> None:
    code = (
        "class TritonPythonModel:\n"
        "    def execute(self, number):\n        self.last = bytearray(1 << 20)\n"
    )
    seen = measure(tmp_path, load(tmp_path, "replaces", code).execute)

    assert sum(line["bytes"] for line in seen["lines"] if line["is_own"]) < 1 << 20


class _OnDemand(dict[str, Any]):
    """A dict, or what says that it is one, which loads something when it is asked."""

    loads = 0

    def values(self) -> Any:
        type(self).loads += 1
        return super().values()

    def __len__(self) -> int:
        type(self).loads += 1
        return super().__len__()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        type(self).loads += 1
        return dict


def test_what_loads_on_demand_is_not_loaded(tmp_path: Path) -> None:
    kept = _OnDemand()

    seen = measure(tmp_path, lambda number: kept.update({str(number): []}), 0.4)

    assert "kept" in "".join(one["name"] for one in seen["holders"])
    assert 0 == _OnDemand.loads


class _Equal(type):
    """A type of types that are equal, and have no hash."""

    def __eq__(cls, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_types_may_lack_a_hash(tmp_path: Path) -> None:
    kept: list[Any] = []
    kind = _Equal("kind", (), {})

    seen = measure(tmp_path, lambda number: kept.append(kind()), 0.4)

    assert "kind" in [name for name, _, _ in seen["types"]]


def test_tracing_ends_with_the_measurement(tmp_path: Path) -> None:
    measure(tmp_path, lambda number: None, 0.1)

    import tracemalloc

    assert not tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        with pytest.raises(RuntimeError, match="traces its allocations itself"):
            growth.measure(Instance(()), 0.1)
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()


_PROGRAM = """
import importlib.util, sys, threading, time
spec = importlib.util.spec_from_file_location("growth", {file!r})
growth = importlib.util.module_from_spec(spec)
spec.loader.exec_module(growth)

class Instance:
    directories = ({directory!r},)

class Model:
    def __init__(self):
        self.kept, self.answers = [], {{}}
    def execute(self):
        self.kept.append(bytearray(20000))
        self.answers[len(self.answers)] = bytes(100)

model, end = Model(), threading.Event()
def run():
    while not end.is_set():
        model.execute()
        time.sleep(0.002)
thread = threading.Thread(target=run)
thread.start()
seen = growth.measure(Instance, 0.6)
end.set()
thread.join()
print([one["name"] for one in seen["holders"]])
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_models_of_each_python_are_measured(version: str, tmp_path: Path) -> None:
    python = base_or_skip(version)

    program = _PROGRAM.format(file=growth.__file__, directory=str(tmp_path))
    words = [python, "-W", "error", "-c", program]
    printed = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)

    assert 0 == printed.returncode, printed.stderr
    assert "Model.kept" in printed.stdout
    assert "Model.answers" in printed.stdout, "the collector does not know it"
