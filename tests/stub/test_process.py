"""The process itself, with the test as its supervisor and broker; under old CPythons, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.stub import interpreters
from tests.stub.conftest import Write
from tests.stub.fakes import body, fp32
from tests.stub.running import MAIN, RunningStub
from tests.support import leaks
from tests.support.waiting import eventually
from zmqtriton_floor import wire

pytestmark = pytest.mark.system


# ----------------------------------------------------------------------------------------- process
# The process itself, with the test as its supervisor and broker.


def test_it_shows_where_it_is_even_if_python_watches_for_crashes_already() -> None:
    code = (
        "import os, signal; from zmqtriton_stub import process\n"
        "process.watch_for_crashes(); os.kill(os.getpid(), signal.SIGURG)"
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )

    assert 'File "<string>", line 2' in done.stderr


def test_durations_are_those_of_the_model(stub: RunningStub, write_model: Write) -> None:
    code = """
        import time
        class TritonPythonModel:
            def execute(self, requests):
                end = time.monotonic() + 0.02
                while time.monotonic() < end: pass
                return [pb_utils.InferenceResponse() for _ in requests]
    """
    stub.start(write_model(code))

    stub.send_batches([body()])
    results, _ = stub.receive_results()

    [executed] = results.executed
    assert executed.infer_ns >= 20_000_000
    assert executed.input_ns > 0
    assert executed.output_ns > 0


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("raise ImportError('no torch')", "ImportError: no torch\n\nAt:\n  {}(2): <module>\n"),
        ("import sys; sys.exit(4)", "SystemExit: 4\n\nAt:\n  {}(2): <module>\n"),
        (
            "class TritonPythonModel:\n  def initialize(self, args): args['nothing']",
            "KeyError: 'nothing'\n\nAt:\n  {}(3): initialize\n",
        ),
    ],
)
def test_a_model_that_fails_to_load_says_why_and_ends(
    stub: RunningStub, write_model: Write, code: str, text: str
) -> None:
    model = write_model(code)
    stub.take_bootstrap()
    path = f"{model}/1/model.py"
    stub.send_message(
        wire.LoadModel("m_0_0", "m", 1, "CPU", 0, str(model), path, '{"name": "m"}', 0)
    )
    stub.send_message(wire.Initialize('{"name": "m"}'))

    assert stub.receive_message(wire.LoadFailed).reason.text == text.replace("{}", path)
    assert stub.process.wait(30) == 1


def test_log_lines_carry_the_model_s_file_and_line(stub: RunningStub, write_model: Write) -> None:
    code = """
        class TritonPythonModel:
            def initialize(self, args):
                pb_utils.Logger.log_warn("careful")
                pb_utils.Logger.log("not asked for", pb_utils.Logger.VERBOSE)
                pb_utils.Logger.log(pb_utils.get_model_dir(), pb_utils.Logger.ERROR)
    """
    model = write_model(code)
    stub.start(model)

    assert stub.receive_message(wire.LogLine) == wire.LogLine("W", "model.py", 5, "careful")
    assert stub.receive_message(wire.LogLine) == wire.LogLine("E", "model.py", 7, f"{model}/1")


def test_what_was_printed_before_a_crash_is_not_lost(stub: RunningStub, write_model: Write) -> None:
    code = """
        import os, signal
        class TritonPythonModel:
            def execute(self, requests):
                print("last words")
                os.kill(os.getpid(), signal.SIGKILL)
    """
    stub.start(write_model(code))

    stub.send_batches([body()])

    assert stub.process.stdout is not None
    assert stub.process.stdout.read().endswith(b"] last words\n")
    assert stub.process.wait(30) == -signal.SIGKILL


def test_terminal_signals_do_not_end_it_but_end_what_the_model_starts(
    stub: RunningStub, write_model: Write
) -> None:
    code = """
        import multiprocessing, signal, subprocess, sys, threading
        class TritonPythonModel:
            def execute(self, requests):
                command = [sys.executable, "-c", "import time; time.sleep(600)"]
                program = subprocess.Popen(command)
                child = multiprocessing.get_context("fork").Process(target=signal.pause)
                child.start()
                program.terminate()
                child.terminate()
                child.join()
                codes = f"{program.wait()} {child.exitcode}"
                return [pb_utils.InferenceResponse(parameters={"codes": codes})]
    """
    stub.start(write_model(code))

    for number in (signal.SIGTERM, signal.SIGINT):
        stub.process.send_signal(number)

    assert stub.answer_to().parameters == {"codes": "-15 -15"}
    assert stub.finish() == 0


def test_its_name_tells_the_instance(stub: RunningStub, write_model: Write) -> None:
    stub.start(write_model("class TritonPythonModel: pass"))

    assert Path(f"/proc/{stub.process.pid}/comm").read_text() == "stub m_0_0\n"


def test_the_server_s_packages_and_files_are_not_on_the_model_s_path(
    stub: RunningStub, write_model: Write
) -> None:
    root = MAIN.parent.parent
    code = f"""
        import sys
        class TritonPythonModel:
            def execute(self, requests):
                found = "\\n".join(p for p in sys.path if p.startswith({str(root)!r}))
                try:
                    import wire
                except ImportError:
                    return [pb_utils.InferenceResponse(parameters={{"found": found}})]
    """
    stub.start(write_model(code))

    assert stub.answer_to().parameters == {"found": str(MAIN.parent / "model_path")}


def test_children_of_a_model_see_the_same_classes(stub: RunningStub, write_model: Write) -> None:
    code = """
        import multiprocessing
        import c_python_backend_utils
        def same(_):
            import triton_python_backend_utils
            return (
                triton_python_backend_utils is pb_utils
                and pb_utils.Tensor is c_python_backend_utils.Tensor
            )
        class TritonPythonModel:
            def execute(self, requests):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    [answer] = pool.map(same, [0])
                return [pb_utils.InferenceResponse(parameters={"same": answer})]
    """
    stub.start(write_model(code))

    assert stub.answer_to().parameters == {"same": True}


def test_children_of_a_model_run_what_its_files_have_now(
    stub: RunningStub, write_model: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved twice within a second, at the same size: the same file to Python's cache."""
    code = """
        import multiprocessing
        def number(_):
            import helper
            return helper.NUMBER
        class TritonPythonModel:
            def execute(self, requests):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    [answer] = pool.map(number, [0])
                return [pb_utils.InferenceResponse(parameters={"number": answer})]
    """
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    numbers: list[object] = []
    for number in (1, 2):
        model = write_model(code, helper=f"NUMBER = {number}")
        os.utime(model / "1" / "helper.py", (1, 1))
        if not numbers:
            stub.start(model)
        numbers.append(stub.answer_to().parameters["number"])

    assert numbers == [1, 2]
    assert not list(model.rglob("__pycache__"))


def test_the_supervisor_s_death_ends_a_stub_that_is_executing(
    tmp_path: Path, write_model: Write
) -> None:
    code = """
        import time
        class TritonPythonModel:
            def execute(self, requests):
                pb_utils.Logger.log_info("executing")
                time.sleep(600)
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn where the process has threads; the child uses none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        # The supervisor: PDEATHSIG is about the process that started the stub.
        try:
            stub = RunningStub(tmp_path)
            stub.start(write_model(code))
            stub.send_batches([body()])
            stub.receive_message(wire.LogLine)
            os.write(writer, str(stub.process.pid).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    pid = int(os.read(reader, 100))
    os.close(reader)

    eventually(lambda: not leaks.is_alive(pid), within_s=30)


# -------------------------------------------------------------------------------------- old python
# Models bring their own interpreter: floor and stub run under each CPython from 3.8 on.


_CHECK = Path(__file__).with_name("old_python_check.py")


#: The oldest and the newest are of the first tier: what one between lacks, one of them lacks too.
VERSIONS = (
    interpreters.VERSIONS[0],
    *(
        pytest.param(
            version,
            marks=pytest.mark.long(
                "stub/test_process.py::test_every_module_imports_and_the_basics_work",
                "stub/test_process.py::test_a_model_is_served_from_load_to_finish",
            ),
        )
        for version in interpreters.VERSIONS[1:-1]
    ),
    interpreters.VERSIONS[-1],
)


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    """The interpreter of an environment with nothing but what stubs need."""
    return interpreters.python_or_skip(request.param)


@pytest.mark.skipif(
    not interpreters.versions_that_must_be_here(), reason="ZT_PYTHONS names no versions"
)
def test_the_pythons_are_there_that_this_machine_must_have() -> None:
    versions = interpreters.versions_that_must_be_here()

    assert {} == {version: why for version in versions if (why := interpreters.reason(version))}


def test_every_module_imports_and_the_basics_work(python: str) -> None:
    command = [python, "-I", "-W", "error", str(_CHECK), str(MAIN.parents[1])]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (answer.stdout, answer.stderr) == ("as expected\n", "")


def test_a_model_is_served_from_load_to_finish(
    python: str, tmp_path: Path, write_model: Write
) -> None:
    code = """
        import sys
        class TritonPythonModel:
            def initialize(self, args):
                pb_utils.Logger.log_info(".".join(map(str, sys.version_info[:2])))
            def execute(self, requests):
                responses = []
                for request in requests:
                    array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
                    array *= 2
                    responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
                return responses
    """
    numbers = np.arange(3, dtype=np.float32)
    model = write_model(code)
    with RunningStub(tmp_path, python) as stub:
        stub.start(model)
        assert f"python-{stub.receive_message(wire.LogLine).text}/" in python

        response = stub.answer_to(fp32("IN", numbers.tobytes(), [3]))
        failed = stub.infer(fp32("OTHER"))

        assert response.outputs == [fp32("OUT", (numbers * 2).tobytes(), [3])]
        assert isinstance(failed, wire.Outcome)
        assert failed.text == (
            "Failed to process the request(s) for model 'm_0_0', message: AttributeError: "
            "'NoneType' object has no attribute 'as_numpy'\n\n"
            f"At:\n  {model}/1/model.py(10): execute\n"
        )
        assert stub.finish() == 0


def test_threads_and_async_models_work(python: str, tmp_path: Path, write_model: Write) -> None:
    code = """
        import asyncio, threading
        class TritonPythonModel:
            async def execute(self, requests):
                await asyncio.sleep(0)
                for request in requests:
                    threading.Thread(target=self.answer, args=(request,)).start()
            def answer(self, request):
                request.get_response_sender().send(pb_utils.InferenceResponse(), 1)
    """
    with RunningStub(tmp_path, python) as stub:
        stub.start(write_model(code))

        stub.send_batches([body(), body()])
        answered: list[int] = []
        while len(answered) < 2:
            answered += [outcome.id for outcome in stub.receive_results()[0].outcomes]

        assert sorted(answered) == [1, 2]
        assert stub.finish() == 0
