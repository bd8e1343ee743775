"""Models bring their own interpreter: floor and stub run under each CPython from 3.8 on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.stub import interpreters
from tests.stub.conftest import Write
from tests.stub.fakes import body, fp32
from tests.stub.running import MAIN, RunningStub
from zmqtriton_floor import wire

pytestmark = pytest.mark.system

_CHECK = Path(__file__).with_name("old_python_check.py")


#: The oldest and the newest are of the first tier: what one between lacks, one of them lacks too.
VERSIONS = (
    interpreters.VERSIONS[0],
    *(
        pytest.param(
            version,
            marks=pytest.mark.long(
                "stub/test_old_python.py::test_every_module_imports_and_the_basics_work",
                "stub/test_old_python.py::test_a_model_is_served_from_load_to_finish",
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

        response = stub.infer(fp32("IN", numbers.tobytes(), [3]))
        failed = stub.infer(fp32("OTHER"))

        assert isinstance(response, wire.ResponseBody)
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
