"""An instance from what is checked before its import to its end."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.stub.fakes import FakeLink
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, Unavailable
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.logs import LogOptions
from zmqtriton_stub import instance
from zmqtriton_stub import instance as this_process
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.fork_server import rehearse
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.memory import device_span
from zmqtriton_stub.own_process import check_files, see_own_gpu, take_priority
from zmqtriton_stub.readiness import ModelReadiness

# --------------------------------------------------------------------------- readiness
# A model's is_ready(), asked over a lifeline by a supervisor that is the test.


class Asked:
    """A model that says what the test has it say."""

    def __init__(self) -> None:
        self.says: Any = True
        self.calls = 0
        self.link = FakeLink()
        ours, theirs = pair()
        self.line = Lifeline(ours)
        self._theirs = Lifeline(theirs)
        self.readiness = ModelReadiness(self.link.instance, self._is_ready, self._theirs)

    def end(self) -> None:
        """The supervisor has gone, and the thread with it."""
        self.line.close()
        # it lives until its process ends
        self.readiness._thread.join(30)
        assert not self.readiness._thread.is_alive()
        self._theirs.close()

    def _is_ready(self) -> Any:
        self.calls += 1
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says() if callable(self.says) else self.says

    def ask(self, number: int = 3) -> wire.CallResult:
        self.line.send(wire.Call(number, "is_ready", "{}"))
        assert self.line.wait(30)
        [(message, _)] = self.line.receive()
        assert type(message) is wire.CallResult
        assert number == message.id
        return message

    def logged(self) -> list[tuple[str, str]]:
        return [(said.level, said.text) for said in self.link.sent_to_supervisor]


@pytest.fixture
def model() -> Iterator[Asked]:
    model = Asked()

    yield model

    model.end()


def test_an_answer_may_be_awaited(model: Asked) -> None:
    async def later() -> bool:
        await asyncio.sleep(0)
        return False

    model.says = later

    assert "false" == model.ask().result


@pytest.mark.parametrize("says", [1, None, "True", ValueError("broken"), SystemExit()])
def test_what_is_no_boolean_is_a_failure(model: Asked, says: Any) -> None:
    model.says = says

    answer = model.ask()

    expected = (InternalError.number, "is_ready() has failed", "false")
    assert expected == (answer.code, answer.text, answer.result)
    [(level, text)] = model.logged()
    assert "E" == level
    assert type(says).__name__ in text or "must return a boolean" in text


@pytest.mark.row("A28")
def test_each_change_is_logged_and_not_each_question(
    model: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a stub of another test may have had others
    monkeypatch.setattr(this_process, "log_options", LogOptions())
    for says in (True, False, False, ValueError("broken"), ValueError("broken"), True, True):
        model.says = says
        model.ask()

    assert ["W", "E", "I"] == [level for level, _ in model.logged()]
    texts = [text for _, text in model.logged()]
    assert texts[0] == "'m_0_0': is_ready() says False"
    assert "ValueError: broken" in texts[1]
    assert texts[2] == "'m_0_0': is ready again"


def test_a_model_that_is_being_finalized_is_not_asked(model: Asked) -> None:
    model.ask()

    model.readiness.close()
    model.line.send(wire.Call(4, "is_ready", "{}"))
    model.end()

    assert 1 == model.calls


# --------------------------------------------------------------------------- rehearsal
# The fork server's rehearsal, of which nothing may be left.


def _state() -> dict[str, Any]:
    gc.collect()
    return {
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "instance": (this_process.current, list(this_process.on_fork)),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "frozen": gc.get_freeze_count(),
    }


@pytest.mark.slow
def test_it_leaves_nothing_in_the_process() -> None:
    rehearse()  # what is made once is not what is left each time
    before = _state()

    rehearse()

    assert before == _state()


# ------------------------------------------------------------------------------ ending
# The end of a forked stub, in programs of their own; whole servers are in tests/system.


_ROOTS = os.pathsep.join(sys.path)


_PROGRAM = """
    import sys, threading, time
    from zmqtriton_stub import ending
    shared = frozenset(sys.modules)
    sys.path.append({directory!r})
    import of_model
    ending.end(shared)
    print("returned")
"""


def _end(tmp_path: Path, code: str, **others: str) -> tuple[int, list[str]]:
    """Return the exit status and the lines of a program that imports `of_model` and ends."""
    for name, text in {"of_model": code, **others}.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM).format(directory=str(tmp_path))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": _ROOTS},
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


def test_exit_functions_and_destructors_run_and_the_importer_s_first(tmp_path: Path) -> None:
    code = """
        import atexit, library
        class Model:
            def __del__(self):
                print("destroyed:", library.text())
        model = Model()
        atexit.register(print, "exit function")
    """
    library = """
        word = "library"
        def text():
            return word
    """

    assert (0, ["exit function", "destroyed: library"]) == _end(tmp_path, code, library=library)


def test_what_was_written_to_an_open_file_is_in_it(tmp_path: Path) -> None:
    code = f"""
        _file = open({str(tmp_path / "output")!r}, "w")
        _file.write("all of it")
    """

    assert ((0, []), "all of it") == (_end(tmp_path, code), (tmp_path / "output").read_text())


def test_what_the_c_library_holds_back_is_written(tmp_path: Path) -> None:
    code = """
        import ctypes
        ctypes.CDLL(None).printf(b"of C")
    """

    assert (0, ["of C"]) == _end(tmp_path, code)


def test_a_destructor_that_raises_keeps_nothing_from_its_end(tmp_path: Path) -> None:
    code = """
        class Model:
            def __del__(self):
                raise ValueError("of the model")
        first, second = Model(), Model()
    """

    status, lines = _end(tmp_path, code)

    assert (0, 2) == (status, lines.count("ValueError: of the model"))
    assert "returned" not in lines


@pytest.mark.parametrize(
    "code",
    [
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        "import zmq\ncontext = zmq.Context()\nsocket = context.socket(zmq.PUB)",
    ],
    ids=["of Python", "of a library"],
)
def test_a_process_with_threads_is_left_to_python(tmp_path: Path, code: str) -> None:
    assert (0, ["returned"]) == _end(tmp_path, code)


# ---------------------------------------------------------------------------- instance
# The configuration of an instance, and the words for what the server refuses.


def configured(**config: Any) -> StubInstance:
    instance = FakeLink().instance
    instance.configure(json.dumps({"name": "m", **config}))
    return instance


def inflight(text: str) -> dict[str, Any]:
    return {"MAX_INFLIGHT": {"string_value": text}}


@pytest.mark.parametrize(("text", "batches"), [("1", 1), ("7", 7), ("1024", 1024)])
def test_the_number_of_batches_at_once_is_a_parameter(text: str, batches: int) -> None:
    assert batches == configured(parameters=inflight(text)).max_inflight


@pytest.mark.parametrize("text", ["0", "1025", "-1", "x", "", "1.0"])
def test_a_number_of_batches_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number from 1 to 1024") as caught:
        configured(parameters=inflight(text))

    assert str(caught.value).endswith(f"got '{text}'")


@pytest.mark.parametrize(
    ("error", "status", "shows"),
    [(None, 0, False), (SystemExit(), 1, False), (ValueError("broken"), 1, True)],
)
def test_a_fork_that_comes_back_from_the_models_code_ends(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | None,
    status: int,
    shows: bool,
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)

    try:
        if error is not None:
            raise error
        instance.end_forked()
    except (SystemExit, ValueError):
        instance.end_forked()

    assert [status] == ended
    shown = capsys.readouterr().err
    assert ("ValueError: broken" in shown, bool(shown)) == (shows, shows)


def test_a_fork_gives_up_what_is_the_instance_s(monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned: list[str] = []
    monkeypatch.setattr(instance, "is_forked", False)
    monkeypatch.setattr(instance, "on_fork", [lambda: abandoned.append("connection")])

    instance.become_forked()

    assert instance.is_forked
    assert ["connection"] == abandoned


def test_each_thread_may_have_an_instance_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, others = FakeLink().instance, FakeLink().instance
    monkeypatch.setattr(instance, "current", mine)

    def run() -> list[Any]:
        before = instance.here()
        instance.take_thread(others)
        return [before, instance.here()]

    with ThreadPoolExecutor(1) as thread:
        assert [mine, others] == thread.submit(run).result()
    assert instance.here() is mine


# -------------------------------------------------------------------------------------- pre import
# Checksums and priorities, before a model is imported.


CONTENT = b"weights" * 1000


def asking(name: str, checksum: str) -> Any:
    agent = {"name": "checksum", "parameters": {f"MD5:{name}": checksum}}
    return {"model_repository_agents": {"agents": [agent]}}


@pytest.mark.row("E49")
def test_files_must_have_the_checksums_that_were_given(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "weights").write_bytes(CONTENT)
    right = hashlib.md5(CONTENT).hexdigest()

    check_files({}, str(tmp_path))
    check_files(asking("1/weights", right.upper()), str(tmp_path))
    with pytest.raises(TritonModelException) as wrong:
        check_files(asking("1/weights", "0" * 32), str(tmp_path))
    with pytest.raises(TritonModelException, match="'1/gone' for its checksum: No such file"):
        check_files(asking("1/gone", right), str(tmp_path))

    expected = f"Mismatched MD5 hash for file 1/weights, expected {'0' * 32}, got {right}"
    assert expected == str(wrong.value)


@pytest.mark.row("E48")
@pytest.mark.parametrize(
    ("priority", "expected"),
    [("PRIORITY_MAX", [-10]), ("PRIORITY_MIN", [10]), ("PRIORITY_DEFAULT", [])],
)
def test_a_priority_is_that_of_the_process(
    monkeypatch: pytest.MonkeyPatch, priority: str, expected: list[int]
) -> None:
    priorities: list[int] = []
    monkeypatch.setattr(os, "nice", priorities.append)

    take_priority({"optimization": {"priority": priority}}, lambda level, text: None)

    assert expected == priorities


@pytest.mark.row("E48")
def test_a_priority_that_the_system_refuses_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(by: int) -> int:
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(os, "nice", refuse)
    said: list[tuple[str, str]] = []

    take_priority(
        {"optimization": {"priority": "PRIORITY_MAX"}},
        lambda level, text: said.append((level, text)),
    )

    assert [("W", "PRIORITY_MAX has no effect: Operation not permitted")] == said


# ------------------------------------------------------------------------------------------ own gpu
# The GPUs that an instance's process sees if its model has CUDA_VISIBLE_DEVICES `instance`.


_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables and the number are as they were, afterwards."""
    for name in _VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(device_span, "only_gpu", None)


def load(kind: str, device: int, value: str = "instance") -> wire.LoadModel:
    parameters = {"CUDA_VISIBLE_DEVICES": {"string_value": value}} if value else {}
    config = json.dumps({"name": "m", "parameters": parameters})
    return wire.LoadModel("m_0", "m", 1, kind, device, "/m", "/m/1/model.py", config, 0)


def variables() -> tuple[str | None, ...]:
    return tuple(map(os.environ.get, _VARIABLES))


@pytest.mark.usefixtures("environment")
@pytest.mark.row("B22")
@pytest.mark.parametrize(
    ("visible", "device", "seen"),
    [
        (None, 0, "0"),
        (None, 3, "3"),
        ("2,0", 1, "0"),
        ("GPU-ab, MIG-cd", 1, "MIG-cd"),
    ],
)
def test_an_instance_sees_its_gpu_alone_as_the_first(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: int, seen: str
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert load("GPU", 0) == see_own_gpu(load("GPU", device))
    assert (seen, "PCI_BUS_ID") == variables()
    assert 0 == device_span.number_here(device)
    with pytest.raises(
        Unavailable, match=f"memory on GPU 7 is not visible: the instance has GPU {device}"
    ):
        device_span.number_here(7)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("instance", "seen"),
    [("m_0", "MIG-ab"), ("m_0_1", "MIG-cd"), ("m_0_2", "MIG-ab"), ("template", "MIG-ab")],
)
def test_instances_see_the_slices_of_a_list_in_turn(
    monkeypatch: pytest.MonkeyPatch, instance: str, seen: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2")
    named = load("GPU", 1, "MIG-ab, MIG-cd")._replace(instance=instance)

    assert named._replace(device=0) == see_own_gpu(named)
    assert (seen, "PCI_BUS_ID") == variables()


@pytest.mark.usefixtures("environment")
def test_the_order_that_the_operator_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")

    see_own_gpu(load("GPU", 1))

    assert ("1", "FASTEST_FIRST") == variables()


@pytest.mark.usefixtures("environment")
def test_an_instance_on_the_cpu_sees_none() -> None:
    alone = load("CPU", 0)

    assert alone == see_own_gpu(alone)
    assert "" == os.environ["CUDA_VISIBLE_DEVICES"]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("order", [load("GPU", 1, ""), load("GPU", 1, "0"), load("MODEL", 0)])
def test_other_models_see_all(order: wire.LoadModel) -> None:
    assert order == see_own_gpu(order)
    assert ((None, None), 5) == (variables(), device_span.number_here(5))
