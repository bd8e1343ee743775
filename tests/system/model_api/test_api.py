"""pb_utils as a model sees it in a real server: functions, tensors, requests, log, configuration.

The same code was run in Triton 2.51. What could be compared is equal except for the texts of
TypeErrors and docs/recorded-differences.md. That version has neither parameters of responses nor
the number of a datatype, and it crashed in the tests of DLPack and in the one of a request with all
arguments.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.server import Server, tensor
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=["api_completed", "api_probe", "told"]),
]


def prepare(server: Server) -> None:
    twice = server.add_model("api_completed", "api_completed_twice")
    (twice / "config.pbtxt").write_text('backend: "python"\ninstance_group { count: 2 }\n')


def run(server: Server, code: str, *inputs: dict[str, Any]) -> Any:
    """Return what the body of a function returns, run by the model, or raises as text."""
    row = tensor("CODE", "BYTES", [textwrap.dedent(code)])
    status, answer = server.infer_json("api_probe", row, *inputs)
    assert 200 == status, answer
    return json.loads(answer["outputs"][0]["data"][0])


# ------------------------------------------------------------------ functions


@pytest.mark.row("A96")
def test_the_other_module_has_its_own_names_and_the_same_classes(server: Server) -> None:
    assert ["triton_python_backend_utils", "c_python_backend_utils", True, True] == run(
        server,
        """
        from c_python_backend_utils import InferenceTrace, MemoryType, ResponseIterator
        from c_python_backend_utils import InferenceResponseSender, PreferredMemory, SharedMemory
        from c_python_backend_utils import TRITONSERVER_MEMORY_CPU, TritonModelException
        return (
            pb_utils.__name__,
            c_utils.__name__,
            pb_utils.Tensor is c_utils.Tensor,
            TritonModelException is pb_utils.TritonModelException,
        )
        """,
    )
    before, during = run(
        server,
        """
        before = c_utils.shared_memory.free_memory()
        answered = pb_utils.InferenceRequest(
            inputs=[pb_utils.Tensor('INPUT0', np.zeros(300_000, np.float32))],
            requested_output_names=[], model_name='told').exec()
        assert not answered.has_error(), answered.error().message()
        return before, c_utils.shared_memory.free_memory()
        """,
    )
    assert isinstance(before, int)
    assert during > before  # what was made for the question is free again


# -------------------------------------------------------------------- tensors


@pytest.mark.row("A29", "A42")
def test_an_array_that_a_model_keeps_stays_as_it_was(server: Server) -> None:
    numbers = tensor("FP32", "FP32", [3.5] * 40_000, [200, 200])
    keep = """
        tensor = pb_utils.get_input_tensor_by_name(request, 'FP32')
        kept['array'], kept['capsule'] = tensor.as_numpy(), tensor.to_dlpack()
        return 1
    """

    run(server, keep, numbers)
    for _ in range(5):
        run(server, "return 1", {**numbers, "data": [8.5] * 40_000})

    assert [3.5] * 4 == run(
        server,
        """
        array = kept.pop('array')
        taken = pb_utils.Tensor.from_dlpack('again', kept.pop('capsule')).as_numpy()
        assert np.shares_memory(array, taken)
        return [float(limit) for a in (array, taken) for limit in (a.min(), a.max())]
        """,
    )


@pytest.mark.row("A47")
def test_bfloat16_goes_through_a_model(server: Server) -> None:
    code = """
        tensor = pb_utils.get_input_tensor_by_name(request, 'BF16')
        try:
            tensor.as_numpy()
        except pb_utils.TritonModelException:
            return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack('REPORT', tensor)])
    """
    data = b"\xc0\x3f\x00\xc0"
    row = {"shape": [1], "datatype": "BYTES", "data": [textwrap.dedent(code)]}
    size = {"binary_data_size": len(data)}
    document = {
        "inputs": [
            {"name": "CODE", **row},
            {"name": "BF16", "shape": [2], "datatype": "BF16", "parameters": size},
        ],
        "outputs": [{"name": "REPORT", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(document).encode()

    answer = server.exchange(
        "/v2/models/api_probe/infer",
        head + data,
        {"Inference-Header-Content-Length": str(len(head))},
    )
    length = int(answer.headers["Inference-Header-Content-Length"])
    [output] = json.loads(answer.body[:length])["outputs"]

    assert ("BF16", [2], data) == (output["datatype"], output["shape"], answer.body[length:])


# -------------------------------------------------------------- configuration


@pytest.mark.row("A80", "A86", "A09")
def test_what_a_model_makes_of_its_configuration_is_what_is_served(server: Server) -> None:
    _, config = server.request_json("/v2/models/api_completed/config")
    directory = str(server.repository / "api_completed" / "1")
    _, answered = server.infer_json("api_completed", tensor("ANY", "BYTES", ["x"], [1, 1]))

    assert (4, False) == (config["max_batch_size"], config["model_transaction_policy"]["decoupled"])
    assert "dynamic_batching" in config
    [entry] = config["input"]
    assert ("ANY", "TYPE_STRING", [1], True) == (
        entry["name"],
        entry["data_type"],
        [int(dim) for dim in entry["dims"]],
        entry["optional"],
    )
    assert ["SEEN"] == [output["name"] for output in config["output"]]
    assert {} == config["parameters"]
    assert [directory, {}] == json.loads(answered["outputs"][0]["data"][0])
    eventually(lambda: f'"completed in {directory}"' in server.log_text(), 60)


@pytest.mark.row("A21")
def test_the_first_instance_completes_the_configuration_and_goes_on(server: Server) -> None:
    """Triton imports the module in a process of its own, and again in each instance."""
    log = server.log_text()
    imported = re.findall(r"api_completed_twice/1 is imported by (\d+)", log)
    completed = re.findall(r"api_completed_twice/1 is completed by (\d+)", log)

    # Both import at the same time, so either line may be the first.
    assert sorted(map(int, imported)) == sorted(server.stub_pids("api_completed_twice"))
    assert (2, 1) == (len(imported), len(completed))
    assert "api_completed_twice_0_0" in psutil.Process(int(completed[0])).cmdline()


# --------------------------------------------------------- guides for Triton


@pytest.mark.row("A50", "A57")
def test_a_request_with_all_arguments_of_the_guides_is_asked_many_times(server: Server) -> None:
    assert [[False, "1", 4, 5]] * 5 == run(
        server,
        """
        import asyncio

        inference_request = pb_utils.InferenceRequest(
            model_name='told',
            requested_output_names=['TOLD'],
            inputs=[pb_utils.Tensor('INPUT0', np.zeros(1, np.float32))],
            request_id="1", correlation_id=4, model_version=1, flags=0, timeout=5,
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0))

        async def ask():
            awaits = [inference_request.async_exec() for _ in range(4)]
            return await asyncio.gather(*awaits)

        def describe(response):
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            output = pb_utils.get_output_tensor_by_name(response, 'TOLD').as_numpy()
            told = json.loads(output[0])
            return response.has_error(), told['id'], told['correlation'], told['timeout']

        return [describe(r) for r in [inference_request.exec(), *asyncio.run(ask())]]
        """,
    )


# ----------------------------------------------------------------------- logs


@pytest.mark.row("A90", "I15")
def test_the_logger_writes_the_caller_s_place(server: Server, tmp_path: Path) -> None:
    module = tmp_path / "elsewhere.py"
    module.write_text("def say(log, *arguments, **named):\n    log(*arguments, **named)\n")
    calls = [
        ("log", "'first'", "I"),
        ("log", "'second', pb_utils.Logger.WARNING", "W"),
        ("log", "message='third', level=pb_utils.Logger.ERROR", "E"),
        ("log_info", "'fourth'", "I"),
        ("log_warn", "'fifth'", "W"),
        ("log_error", "message='sixth'", "E"),
        ("log_verbose", "'not seen'", ""),
        ("log", "'not seen', pb_utils.Logger.VERBOSE", ""),
        ("log_info", "'last'", "I"),
    ]
    run(
        server,
        f"import sys; sys.path.append({str(tmp_path)!r}); import elsewhere\n"
        + "\n".join(f"elsewhere.say(pb_utils.Logger.{name}, {what})" for name, what, _ in calls)
        + "\nreturn 1",
    )
    eventually(lambda: '"last"' in server.log_text(), 30, "the log has it all")

    lines = [line for line in server.log_text().splitlines() if " elsewhere.py:2] " in line]
    words = ["first", "second", "third", "fourth", "fifth", "sixth", "last"]
    assert [f'"{word}"' for word in words] == [line.partition("] ")[2] for line in lines]
    assert [level for *_, level in calls if level] == [line[0] for line in lines]
    assert "TypeError: message must be a str, got <class 'int'>" == run(
        server, "return pb_utils.Logger.log_info(5)"
    )
