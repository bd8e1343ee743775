"""The models that the document of Triton's Python backend lists, with instances of each kind.

They stand here as they stand there, but for what it leaves to the reader.
"""

from __future__ import annotations

import json
import textwrap
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.scripted import string_parameter
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "system/model_api/test_instances_threads.py::test_instances_are_threads_of_one_process_with_one_object_each",
        "system/model_api/test_instances_forks.py::test_instances_share_what_was_preloaded_and_are_restarted_from_it",
        "system/model_api/test_api.py::test_a_request_with_all_arguments_of_the_guides_is_asked_many_times",
    ),
]

_IMPORTS = "import asyncio, json, time\nimport triton_python_backend_utils as pb_utils\n"
_CONFIG = """
backend: "python"
input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }
output { name: "OUTPUT1" data_type: TYPE_FP32 dims: 4 }
instance_group { count: 2 kind: KIND_CPU }
"""
_DECOUPLED = "model_transaction_policy { decoupled: true }\n"
_STEPS = "sequence_batching { iterative_sequence: true }\n"
#: What a listing says of its answer with three dots.
_RESPONSE = """
def response_to(request):
    tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor("OUTPUT0", tensor + 1), pb_utils.Tensor("OUTPUT1", tensor - 1)])
"""
_ASKED = """
inference_request = pb_utils.InferenceRequest(
    model_name='{model}',
    requested_output_names=['OUTPUT0', 'OUTPUT1'],
    inputs=[pb_utils.get_input_tensor_by_name(request, "INPUT0")]{more})
"""
_ALL_ARGUMENTS = """,
    request_id="1", correlation_id=4, model_version=1, flags=0, timeout=5000000,
    preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)"""
_USED = """
if inference_response.has_error():
    raise pb_utils.TritonModelException(
        inference_response.error().message())
else:
    output1 = pb_utils.get_output_tensor_by_name(
        inference_response, 'OUTPUT0')
    output2 = pb_utils.get_output_tensor_by_name(
        inference_response, 'OUTPUT1')
"""
_WHOLE = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        inputs = [{
            'name': 'INPUT0',
            'data_type': 'TYPE_FP32',
            'dims': [4],
            # this parameter will set `INPUT0 as an optional input`
            'optional': True
        }, {
            'name': 'INPUT1',
            'data_type': 'TYPE_FP32',
            'dims': [4]
        }]
        outputs = [{
            'name': 'OUTPUT0',
            'data_type': 'TYPE_FP32',
            'dims': [4]
        }, {
            'name': 'OUTPUT1',
            'data_type': 'TYPE_FP32',
            'dims': [4]
        }]
        config = auto_complete_model_config.as_dict()
        input_names = []
        output_names = []
        for input in config['input']:
            input_names.append(input['name'])
        for output in config['output']:
            output_names.append(output['name'])
        for input in inputs:
            if input['name'] not in input_names:
                auto_complete_model_config.add_input(input)
        for output in outputs:
            if output['name'] not in output_names:
                auto_complete_model_config.add_output(output)
        auto_complete_model_config.set_max_batch_size(0)
        return auto_complete_model_config

    def initialize(self, args):
        print('Initialized...')

    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, 'INPUT1').as_numpy()
            responses.append(pb_utils.InferenceResponse(
                [pb_utils.Tensor('OUTPUT0', tensor + 1), pb_utils.Tensor('OUTPUT1', tensor - 1)]))
        return responses

    def finalize(self):
        print('Cleaning up...')
"""


def _model(execute: str, before: str = "", head: str = "def execute") -> str:
    """Return a model whose execute is this for each request."""
    lines = textwrap.indent(textwrap.dedent(execute).strip(), " " * 12)
    return f"""{_RESPONSE}
class TritonPythonModel:
{textwrap.indent(textwrap.dedent(before), "    ")}
    {head}(self, requests):
        responses = []
        for request in requests:
{lines}
        return responses
"""


def _calling(call: str, used: str = _USED, more: str = "", head: str = "def execute") -> str:
    answer = "responses.append(pb_utils.InferenceResponse([output1, output2]))"
    request = _ASKED.format(model="summary", more=more)
    return _model(f"{request}\n{call}\n{used}\n{answer}", head=head)


_EACH = "for inference_response in infer_responses:\n" + textwrap.indent(_USED, "    ")
_GATHERED = """
infer_response_awaits = []
for i in range(4):
    infer_response_awaits.append(inference_request.async_exec())
infer_responses = await asyncio.gather(*infer_response_awaits)
"""
_LISTINGS = {
    "whole": ("", _WHOLE),
    "summary": (
        _CONFIG,
        _model(
            "responses.append(response_to(request))",
            """
            @staticmethod
            def auto_complete_config(auto_complete_model_config):
                return auto_complete_model_config

            def initialize(self, args):
                print('Initialized...')

            def finalize(self):
                print('Cleaning up...')
            """,
        ),
    ),
    "error": (
        _CONFIG,
        _model(
            """
            responses.append(pb_utils.InferenceResponse(
                error=pb_utils.TritonError("An Error Occurred")))
            """
        ),
    ),
    "code": (
        _CONFIG,
        _model(
            """
            responses.append(pb_utils.InferenceResponse(error=
                pb_utils.TritonError("The file is not found", pb_utils.TritonError.NOT_FOUND)))
            """
        ),
    ),
    "cancelled": (
        _CONFIG,
        _model(
            """
            if request.is_cancelled():
                responses.append(pb_utils.InferenceResponse(
                    error=pb_utils.TritonError("Message", pb_utils.TritonError.CANCELLED)))
            else:
                responses.append(response_to(request))
            """
        ),
    ),
    "decoupled": (
        _CONFIG + _DECOUPLED,
        _model(
            """
            sender = request.get_response_sender()
            for i in range(3):
                sender.send(response_to(request))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            """
        ).replace("return responses", "return None"),
    ),
    "rescheduled": (
        _CONFIG + _STEPS,
        _model(
            """
            self.steps = getattr(self, "steps", 0) + 1
            if self.steps % 3:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                responses.append(None)
            else:
                responses.append(response_to(request))
            """
        ),
    ),
    "bls": (_CONFIG, _calling("inference_response = inference_request.exec()")),
    "bls_all": (
        _CONFIG,
        _calling("inference_response = inference_request.exec()", more=_ALL_ARGUMENTS),
    ),
    "bls_async": (_CONFIG, _calling(_GATHERED, _EACH, head="async def execute")),
    "logging": (
        _CONFIG,
        _model(
            """
            logger = pb_utils.Logger
            logger.log_info("Info Msg!")
            logger.log_warn("Warning Msg!")
            logger.log_error("Error Msg!")
            logger.log_verbose("Verbose Msg!")
            responses.append(response_to(request))
            """
        ),
    ),
    "parameters": (
        _CONFIG + string_parameter("custom_key", "custom_value"),
        _model(
            "responses.append(response_to(request))",
            """
            def initialize(self, args):
                print(json.loads(args['model_config'])['parameters'])
            """,
        ),
    ),
}
_DATA = [1.0, 2.0, 3.0, 4.0]
_OUTPUTS = {"OUTPUT0": [2.0, 3.0, 4.0, 5.0], "OUTPUT1": [0.0, 1.0, 2.0, 3.0]}
#: Those that answer with an error, its status, and what it says.
_ERRORS = {"error": (500, "An Error Occurred"), "code": (404, "The file is not found")}


@pytest.fixture(scope="module", params=["processes", "forks", "threads"])
def server(request: pytest.FixtureRequest, shared_server: SharedServer) -> Iterator[Server]:
    with shared_server.lent() as started:
        for name, (config, code) in _LISTINGS.items():
            text = (config or 'backend: "python"\n') + string_parameter("INSTANCES", request.param)
            started.write_model(name, text, _IMPORTS + code)
        started.load(*_LISTINGS)
        yield started


def _ask(server: Server, model: str) -> tuple[int, Any]:
    name = "INPUT1" if model == "whole" else "INPUT0"
    return server.infer_json(model, tensor(name, "FP32", _DATA))


def _outputs(answer: Any) -> dict[str, list[float]]:
    return {one["name"]: one["data"] for one in answer["outputs"]}


@pytest.mark.parametrize("model", sorted(_LISTINGS.keys() - {"decoupled"}))
def test_a_listed_model_answers_alike(server: Server, model: str) -> None:
    for _ in range(4):  # both instances
        status, answer = _ask(server, model)
        if model in _ERRORS:
            expected, text = _ERRORS[model]
            assert (expected, True) == (status, text in answer["error"])
        else:
            assert (200, _OUTPUTS) == (status, _outputs(answer)), answer


def test_a_listed_decoupled_model_sends_its_responses(server: Server) -> None:
    body = json.dumps({"INPUT0": _DATA}).encode()
    url = f"{server.url}/v2/models/decoupled/generate_stream"
    with urllib.request.urlopen(url, body, timeout=60) as answer:
        events = [json.loads(line[6:]) for line in answer if line.startswith(b"data: ")]

    assert [_OUTPUTS] * 3 == [{name: event[name] for name in _OUTPUTS} for event in events]


def test_what_listed_models_say_is_in_the_log(server: Server) -> None:
    _ask(server, "logging")

    said = ("Info Msg!", "Warning Msg!", "Error Msg!", "Initialized...", "custom_value")
    eventually(lambda: all(text in server.log_text() for text in said), 60)
    assert "Verbose Msg!" not in server.log_text()
