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
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.support.probing import REPORT, Probe, add_probes
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

SHARED = True


MODELS = ["api_completed", "told"]


def prepare(server: Server) -> None:
    twice = server.add_model("api_completed", "api_completed_twice")
    (twice / "config.pbtxt").write_text('backend: "python"\ninstance_group { count: 2 }\n')
    add_probes(server)


@pytest.fixture
def probe(server: Server) -> Probe:
    return Probe(server)


# ------------------------------------------------------------------ functions


@pytest.mark.row("A01", "A02")
def test_types_have_triton_s_names_and_numbers(probe: Probe) -> None:
    assert {
        "TYPE_BOOL": "<class 'bool'>",
        **{
            f"TYPE_{kind}INT{bits}": f"<class 'numpy.{kind.lower()}int{bits}'>"
            for kind in ("U", "")
            for bits in (8, 16, 32, 64)
        },
        **{f"TYPE_FP{bits}": f"<class 'numpy.float{bits}'>" for bits in (16, 32, 64)},
        "TYPE_STRING": "<class 'numpy.object_'>",
    } == probe.run("return {k: repr(v) for k, v in pb_utils.TRITON_STRING_TO_NUMPY.items()}")
    assert "KeyError: 'TYPE_BF16'" == probe.run(
        "return pb_utils.triton_string_to_numpy('TYPE_BF16')"
    )
    assert "KeyError: 'FP32'" == probe.run("return pb_utils.triton_string_to_numpy('FP32')")
    assert [None, *range(1, 14), None, None] == probe.run(
        "return [pb_utils.numpy_to_triton_type(pb_utils.triton_to_numpy_type(i))"
        " if pb_utils.triton_to_numpy_type(i) else None for i in range(16)]"
    )
    assert [13, 13, None, None, None] == probe.run(
        "types = np.bytes_, np.dtype('S'), np.str_, int, np.dtype('>f4')\n"
        "return [pb_utils.numpy_to_triton_type(t) for t in types]"
    )


@pytest.mark.row("A03", "A04")
def test_strings_are_serialized_and_back(probe: Probe) -> None:
    assert [] == probe.run("return pb_utils.serialize_byte_tensor(np.empty((2, 0), object))")
    assert repr(b"\1\0\0\0a\2\0\0\0\xc3\xa9\1\0\0\x001\4\0\0\0None") == probe.run(
        "return pb_utils.serialize_byte_tensor(np.array([[b'a', 'é'], [1, None]], object))"
    )
    assert repr(b"\2\0\0\0ab\1\0\0\0c") == probe.run(
        "return pb_utils.serialize_byte_tensor(np.array([b'ab', b'c']))"
    )
    assert probe.run("return pb_utils.serialize_byte_tensor(np.zeros(2))") is None
    assert [["b'a'", "b''"], 1, "object"] == probe.run(
        """
        array = pb_utils.deserialize_bytes_tensor(b'\\1\\0\\0\\0a\\0\\0\\0\\0')
        return array.tolist(), array.ndim, array.dtype.name
        """
    )


@pytest.mark.row("A05", "A06", "A07")
def test_tensors_and_configurations_are_found_by_name(probe: Probe, server: Server) -> None:
    assert [["FP32", [1, 2]], None, None, "REPORT", None] == probe.run(
        f"""
        tensor = pb_utils.get_input_tensor_by_name(request, 'FP32')
        response = pb_utils.InferenceResponse([{REPORT}])
        return (
            (tensor.name(), tensor.shape()),
            pb_utils.get_input_tensor_by_name(request, 'TEXT'),
            pb_utils.get_output_tensor_by_name(response, 'NO'),
            pb_utils.get_output_tensor_by_name(response, 'REPORT').name(),
            pb_utils.get_output_config_by_name(config, 'NO'),
        )
        """,
        inputs=({"name": "FP32", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]},),
    )
    assert ["TYPE_BF16", "TYPE_STRING", None] == probe.run(
        "return (pb_utils.get_input_config_by_name(config, 'BF16')['data_type'],"
        " pb_utils.get_output_config_by_name(config, 'REPORT')['data_type'],"
        " pb_utils.get_input_config_by_name({}, 'X'))"
    )
    policy = "return pb_utils.using_decoupled_model_transaction_policy(config)"
    assert probe.run(policy) is False
    [response] = probe.stream(policy, 1)
    assert [b"true"] == response.as_numpy("REPORT").tolist()


@pytest.mark.row("A08", "A09")
def test_constants_and_the_directory_of_the_version(probe: Probe, server: Server) -> None:
    assert [1, 2, 1, 1, 2] == probe.run(
        """
        return (
            pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
            pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
            pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
            pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL,
            pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
        )
        """
    )
    assert str(server.repository / "api_probe" / "1") == probe.run(
        "return pb_utils.get_model_dir()"
    )


@pytest.mark.row("A96")
def test_the_other_module_has_its_own_names_and_the_same_classes(probe: Probe) -> None:
    assert ["triton_python_backend_utils", "c_python_backend_utils", True, True] == probe.run(
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
        """
    )
    before, during = probe.run(
        """
        before = c_utils.shared_memory.free_memory()
        answered = pb_utils.InferenceRequest(
            inputs=[pb_utils.Tensor('INPUT0', np.zeros(300_000, np.float32))],
            requested_output_names=[], model_name='told').exec()
        assert not answered.has_error(), answered.error().message()
        return before, c_utils.shared_memory.free_memory()
        """
    )
    assert isinstance(before, int)
    assert during > before  # what was made for the question is free again


# -------------------------------------------------------------------- tensors


@pytest.mark.row("A40", "A41", "A43")
def test_tensors_are_made_of_what_the_protocol_has(probe: Probe) -> None:
    made = "TritonModelException: Tensor name cannot be an empty string."
    assert made == probe.run("return pb_utils.Tensor('', np.zeros(1))")
    for dtype in ("U4", "complex64", "datetime64[s]", ">f4"):
        assert "TritonModelException: NumPy dtype is not supported." == probe.run(
            f"return pb_utils.Tensor('a', np.zeros(1, '{dtype}'))"
        )
    assert [["a", [3, 2], 9, True], [[0, 3], [1, 4], [2, 5]]] == probe.run(
        """
        tensor = pb_utils.Tensor('a', np.arange(6).reshape(2, 3).T)
        told = tensor.name(), tensor.shape(), tensor.triton_dtype(), tensor.is_cpu()
        return told, tensor.as_numpy().tolist()
        """
    )
    assert [13, 13, [], "TypeError"] == probe.run(
        """
        try:
            pb_utils.Tensor('a', [1])
        except Exception as error:
            raised = type(error).__name__
        return (
            pb_utils.Tensor('a', np.array([b'x'])).triton_dtype(),
            pb_utils.Tensor('a', np.array(['x'], object)).triton_dtype(),
            pb_utils.Tensor('a', np.array(5)).shape(),
            raised,
        )
        """
    )


@pytest.mark.row("A42", "A48")
def test_arrays_of_tensors(probe: Probe) -> None:
    text = {"name": "TEXT", "shape": [2], "datatype": "BYTES", "data": ["a", "é"]}
    empty = {"name": "FP32", "shape": [0, 3], "datatype": "FP32", "data": []}

    assert [["b'a'", repr("é".encode())], True, [0, 3]] == probe.run(
        """
        tensor = pb_utils.get_input_tensor_by_name(request, 'TEXT')
        array = tensor.as_numpy()
        numbers = pb_utils.get_input_tensor_by_name(request, 'FP32').as_numpy()
        return array.tolist(), array is tensor.as_numpy(), numbers.shape
        """,
        inputs=(text, empty),
    )
    [output] = probe.infer(
        "return pb_utils.InferenceResponse([pb_utils.Tensor('REPORT', np.empty((0, 2), object))])",
        inputs=({**text, "shape": [0], "data": []},),
    )["outputs"]
    assert ("REPORT", "BYTES", [0, 2], []) == tuple(output.values())


@pytest.mark.row("A29", "A42")
def test_an_array_that_a_model_keeps_stays_as_it_was(probe: Probe) -> None:
    numbers = {"name": "FP32", "shape": [200, 200], "datatype": "FP32", "data": [3.5] * 40_000}
    keep = """
        tensor = pb_utils.get_input_tensor_by_name(request, 'FP32')
        kept['array'], kept['capsule'] = tensor.as_numpy(), tensor.to_dlpack()
        return 1
    """

    probe.run(keep, inputs=(numbers,))
    for _ in range(5):
        probe.run("return 1", inputs=({**numbers, "data": [8.5] * 40_000},))

    assert [3.5] * 4 == probe.run(
        """
        array = kept.pop('array')
        taken = pb_utils.Tensor.from_dlpack('again', kept.pop('capsule')).as_numpy()
        assert np.shares_memory(array, taken)
        return [float(limit) for a in (array, taken) for limit in (a.min(), a.max())]
        """
    )


@pytest.mark.row("A44", "A45")
def test_dlpack_in_a_model(probe: Probe) -> None:
    assert [True, True, [1, 0], True] == probe.run(
        """
        array = np.arange(4.)
        tensor = pb_utils.Tensor.from_dlpack('a', array)
        again = pb_utils.Tensor.from_dlpack('b', tensor.to_dlpack())
        taken = np.from_dlpack(tensor)
        return (
            np.shares_memory(array, again.as_numpy()),
            np.shares_memory(array, taken),
            tensor.__dlpack_device__(),
            repr(tensor.__dlpack__(stream=None)).startswith('<capsule object "dltensor" at'),
        )
        """
    )
    assert "TritonModelException: DLPack does not have support for string tensors." == probe.run(
        "return pb_utils.get_input_tensor_by_name(request, 'CODE').to_dlpack()"
    )
    assert (
        "TritonModelException: DLPack tensor is not contiguous. Only contiguous DLPack tensors "
        "that are stored in C-Order are supported."
    ) == probe.run("return pb_utils.Tensor.from_dlpack('a', np.zeros((2, 3)).T)")
    assert (
        "TritonModelException: Provided tensor is not supported. Tensor must be a DLPack capsule"
        "         or have `__dlpack__` and `__dlpack_device__` attributes"
    ) == probe.run("return pb_utils.Tensor.from_dlpack('a', 5)")


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

    request = urllib.request.Request(
        f"{server.url}/v2/models/api_probe/infer",
        head + data,
        {"Inference-Header-Content-Length": str(len(head))},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        length = int(answer.headers["Inference-Header-Content-Length"])
        [output] = json.loads(answer.read(length))["outputs"]
        answered = answer.read()

    assert ("BF16", [2], data) == (output["datatype"], output["shape"], answered)


# ------------------------------------------------------------------- requests


_BASE = "inputs=[], requested_output_names=['B', 'A', 'B'], model_name='m'"


@pytest.mark.row("A50", "A62", "A64")
def test_requests_are_made_by_position_and_by_name(probe: Probe) -> None:
    assert ["id", 5, 3, 7, {"p": True}, ["A", "B"], None] == probe.run(
        """
        memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0)
        made = pb_utils.InferenceRequest('id', 5, [], ['B', 'A', 'B'], 'm', 2, 3, 7, memory,
                                         request.trace(), {'p': True})
        return (made.request_id(), made.correlation_id(), made.flags(), made.timeout(),
                json.loads(made.parameters()), sorted(made.requested_output_names()),
                made.trace().get_context())
        """
    )
    assert ["", 0, 0, 0, "{}", 0, 1] == probe.run(
        f"""
        made = pb_utils.InferenceRequest({_BASE})
        cpu, gpu = pb_utils.TRITONSERVER_MEMORY_CPU, pb_utils.TRITONSERVER_MEMORY_GPU
        pb_utils.PreferredMemory(preferred_memory_type=cpu, preferred_device_id=0)
        return (made.request_id(), made.correlation_id(), made.flags(), made.timeout(),
                made.parameters(), int(gpu), int(cpu))
        """
    )
    for wrong, text in (
        ("correlation_id=1.5", "Correlation ID must be integer or string"),
        (
            "parameters={'a': 1.5}",
            "Expect parameters values to have type bool/int/str, found type <class 'float'>",
        ),
    ):
        assert f"TritonModelException: {text}" == probe.run(
            f"return pb_utils.InferenceRequest({_BASE}, {wrong})"
        )
    for missing in ("inputs", "requested_output_names", "model_name"):
        assert (
            "TypeError: InferenceRequest() needs inputs, requested_output_names and model_name"
            == probe.run(
                f"asked = dict({_BASE}); del asked['{missing}']\n"
                "return pb_utils.InferenceRequest(**asked)"
            )
        )
    assert (
        "TritonModelException: Requested output name for request with id '7' and model name 'm' "
        "should not be empty."
    ) == probe.run("return pb_utils.InferenceRequest('7', 0, [], [''], 'm')")


@pytest.mark.row("A51", "A52")
def test_a_request_tells_what_its_client_sent(probe: Probe) -> None:
    script = """
        return (request.request_id(), request.correlation_id(), request.flags(), request.timeout(),
                json.loads(request.parameters()), sorted(request.requested_output_names()),
                type(request.parameters()).__name__, request.is_cancelled())
    """
    sent = {"own": "é", "number": -7, "half": 0.5, "yes": True}
    reserved = {"sequence_id": "s", "sequence_start": True, "priority": 0, "timeout": 5_000_000}

    assert ["i", "s", 1, 5_000_000, sent, ["REPORT"], "str", False] == probe.run(
        script, id="i", parameters={**sent, **reserved}, outputs=[{"name": "REPORT"}]
    )
    assert ["", 42, 2, 0, {}, ["REPORT"], "str", False] == probe.run(
        script, parameters={"sequence_id": 42, "sequence_end": True}
    )
    # A client that names no outputs wants all of the configuration.
    assert [0, 3] == probe.run(
        "before = request.flags(); request.set_flags(3)\nreturn before, request.flags()"
    )


# -------------------------------------------------------------- configuration


@pytest.mark.row("A80", "A86", "A09")
def test_what_a_model_makes_of_its_configuration_is_what_is_served(
    probe: Probe, server: Server
) -> None:
    url = f"{server.url}/v2/models/api_completed/config"
    with urllib.request.urlopen(url, timeout=60) as answer:
        config = json.load(answer)
    directory = str(server.repository / "api_completed" / "1")
    text = {"name": "ANY", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]}
    answered = probe.post("api_completed", {"inputs": [text]})

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
    assert f'"completed in {directory}"' in server.log_text()


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
def test_a_request_with_all_arguments_of_the_guides_is_asked_many_times(probe: Probe) -> None:
    assert [[False, "1", 4, 5]] * 5 == probe.run(
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
        """
    )


# ----------------------------------------------------------------------- logs


@pytest.mark.row("A90", "I15")
def test_the_logger_writes_the_caller_s_place(probe: Probe, server: Server, tmp_path: Path) -> None:
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
    probe.run(
        f"import sys; sys.path.append({str(tmp_path)!r}); import elsewhere\n"
        + "\n".join(f"elsewhere.say(pb_utils.Logger.{name}, {what})" for name, what, _ in calls)
        + "\nreturn 1"
    )
    eventually(lambda: '"last"' in server.log_text(), 30, "the log has it all")

    lines = [line for line in server.log_text().splitlines() if " elsewhere.py:2] " in line]
    words = ["first", "second", "third", "fourth", "fifth", "sixth", "last"]
    assert [f'"{word}"' for word in words] == [line.partition("] ")[2] for line in lines]
    assert [level for *_, level in calls if level] == [line[0] for line in lines]
    assert "TypeError: message must be a str, got <class 'int'>" == probe.run(
        "return pb_utils.Logger.log_info(5)"
    )
