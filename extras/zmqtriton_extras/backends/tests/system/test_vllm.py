"""Text from a stand-in for the engine of vLLM, which has its names and no language model."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.support.scraping import read_series
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: Says the prompt backwards, a word at a time, again and again up to max_tokens.
ENGINE = """
import asyncio
import json
from types import SimpleNamespace

from prometheus_client import Counter, Gauge, Histogram

LABELS = ["model_name"]
TOKENS = Counter("vllm:generation_tokens", "Tokens made", LABELS).labels("none")
RUNNING = Gauge("vllm:num_requests_running", "Requests", LABELS).labels("none")
FIRST = Histogram(
    "vllm:time_to_first_token_seconds", "Time", LABELS, buckets=(0.001, 0.5, 1.0)
).labels("none")
OTHER = Counter("somebody_elses", "Not the engine's")


def probability(word):
    return SimpleNamespace(logprob=-0.5, rank=1, decoded_token=word)


class AsyncEngineArgs:
    def __init__(self, model, journal):
        self.journal = journal


class SamplingParams:
    def __init__(
        self, max_tokens=16, n=1, logprobs=None, logit_bias=None, structured_outputs=None
    ):
        self.max_tokens, self.n, self.logprobs = max_tokens, n, logprobs
        #: What the engine says in place of the prompt.
        self.told = [text for text in (logit_bias, structured_outputs) if text]


class StructuredOutputsParams:
    def __init__(self, **wish):
        self.wish = wish

    def __repr__(self):
        return json.dumps(self.wish).replace(" ", "")


sampling_params = SimpleNamespace(StructuredOutputsParams=StructuredOutputsParams)


class AsyncLLMEngine:
    @classmethod
    def from_engine_args(cls, arguments):
        engine = cls()
        engine.journal = arguments.journal
        return engine

    async def generate(self, prompt, sampling, request_id, lora_request=None):
        words = prompt.split()[::-1]
        if lora_request is not None:
            words = [f"{lora_request.name}:{lora_request.number}:{lora_request.path}"]
        elif sampling.told:
            words = [repr(one).replace(" ", "") for one in sampling.told]
        said = []
        RUNNING.set(7)
        FIRST.observe(0.25)
        for number in range(sampling.max_tokens):
            await asyncio.sleep(0.002)
            said.append(words[number % len(words)])
            TOKENS.inc()
            one = SimpleNamespace(
                text=" ".join(said),
                token_ids=list(range(len(said))),
                finish_reason="length" if number + 1 == sampling.max_tokens else None,
                cumulative_logprob=-0.5 * len(said),
                logprobs=sampling.logprobs and [{7: probability(word)} for word in said],
            )
            yield SimpleNamespace(
                outputs=[one] * sampling.n,
                prompt_token_ids=words,
                finished=number + 1 == sampling.max_tokens,
            )

    async def abort(self, request_id):
        with open(self.journal, "a") as file:
            file.write("aborted\\n")

    def shutdown(self):
        with open(self.journal, "a") as file:
            file.write("shut down\\n")
"""
LORA = """
class LoRARequest:
    def __init__(self, name, number, path):
        self.name, self.number, self.path = name, number, path
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("vllm")
    (directory / "packages" / "vllm").mkdir(parents=True)
    (directory / "packages" / "vllm" / "__init__.py").write_text(ENGINE)
    (directory / "packages" / "vllm" / "lora").mkdir()
    (directory / "packages" / "vllm" / "lora" / "request.py").write_text(LORA)
    server = Server(
        directory / "s",
        options=("--strict-readiness=false", "--exit-on-error=false", "--allow-openai"),
        environment={"PYTHONPATH": str(directory / "packages")},
        frontends=("grpc", "metrics"),
    )
    for name, text in (("talker", ""), ("broken", "{")):
        version = server.repository / name / "1"
        version.mkdir(parents=True)
        arguments = {"model": "none", "journal": str(server.journal)}
        (version / "model.json").write_text(text or json.dumps(arguments))
        (version / "multi_lora.json").write_text('{"doll": "/d", "sheep": "/s"}')
        (version.parent / "config.pbtxt").write_text(
            'backend: "vllm" parameters { key: "openai_lora_adapters" '
            'value { string_value: "doll sheep" } } '
            'parameters { key: "REPORT_CUSTOM_METRICS" value { string_value: "true" } }'
        )
    with server:
        yield server


def streamed(client: Any, responses: list[Any], **inputs: Any) -> None:
    tensors = []
    for name, value in inputs.items():
        kind: Any = np.bool_ if isinstance(value, bool) else np.object_
        array = np.array([value], dtype=kind)
        tensors.append(grpc_client.InferInput(name, [1], np_to_triton_dtype(array.dtype)))
        tensors[-1].set_data_from_numpy(array)
    client.start_stream(lambda result, error: responses.append(error or result))
    client.async_stream_infer("talker", tensors)


def answers(server: Server, **inputs: Any) -> list[Any]:
    responses: list[Any] = []
    with grpc_client.InferenceServerClient(server.grpc_address) as client:
        streamed(client, responses, **inputs)
        client.stop_stream()
    return responses


def texts(responses: list[Any]) -> list[str]:
    return [one.as_numpy("text_output")[0].decode() for one in responses]


def test_a_stream_has_what_is_new(server: Server) -> None:
    responses = answers(
        server, text_input="you are who", stream=True, sampling_parameters='{"max_tokens": 4}'
    )

    assert texts(responses) == ["who", " are", " you", " who"]


def test_one_response_has_the_prompt_and_what_was_asked_for(server: Server) -> None:
    inputs = {"text_input": "b a", "sampling_parameters": '{"max_tokens": 2, "n": 2}'}
    more = {"return_finish_reason": True, "return_num_output_tokens": True}

    [plain] = answers(server, **inputs, **more, return_num_input_tokens=True)
    [short] = answers(server, **inputs, exclude_input_in_output=True)

    assert plain.as_numpy("text_output").tolist() == [b"b aa b", b"b aa b"]
    assert plain.as_numpy("finish_reason").tolist() == [b"length", b"length"]
    assert plain.as_numpy("num_output_tokens").tolist() == [2, 2]
    assert plain.as_numpy("num_input_tokens").tolist() == [2]
    assert short.as_numpy("text_output").tolist() == [b"a b", b"a b"]
    assert short.as_numpy("finish_reason") is None


def test_generate_answers_over_http(server: Server) -> None:
    status, answer = server.request_json(
        "/v2/models/talker/generate",
        {"text_input": "b a", "exclude_input_in_output": True, "parameters": {"max_tokens": 3}},
    )

    assert (status, answer["text_output"]) == (200, "a b a")


@pytest.mark.row("L08")
def test_clients_of_openai_s_api_are_answered(server: Server) -> None:
    wish = {"model": "talker", "max_tokens": 3}

    _, texts = server.request_json("/v1/completions", {**wish, "prompt": "b a", "n": 2})
    _, chat = server.request_json(
        "/v1/chat/completions", {**wish, "messages": [{"role": "user", "content": "b"}]}
    )

    assert [choice["text"] for choice in texts["choices"]] == ["a b a"] * 2
    assert [choice["finish_reason"] for choice in texts["choices"]] == ["length"] * 2
    assert texts["usage"] == {"prompt_tokens": 2, "completion_tokens": 6, "total_tokens": 8}
    assert chat["choices"][0]["message"]["content"] == "assistant: b user:"


@pytest.mark.row("L08")
def test_openai_s_streams_have_what_is_new(server: Server) -> None:
    document = {"model": "talker", "max_tokens": 3, "prompt": "b a", "stream": True}
    request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(document).encode())
    with urllib.request.urlopen(request, timeout=120) as answer:
        *events, done, end = answer.read().decode().split("\n\n")

    assert (done, end) == ("data: [DONE]", "")
    choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    assert [choice["text"] for choice in choices] == ["a", " b", " a", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]


def test_what_cannot_be_meant_is_the_request_s_error(server: Server) -> None:
    for wrong, text in (
        ({"sampling_parameters": '{"heat": 1}'}, "unexpected keyword argument 'heat'"),
        ({"sampling_parameters": "[]"}, "sampling_parameters must be a JSON object"),
        ({"stream": True, "exclude_input_in_output": False}, "= False is not allowed"),
    ):
        [error] = answers(server, text_input="a", **wrong)
        assert isinstance(error, InferenceServerException)
        assert text in str(error)


def test_the_engine_is_told_when_the_client_leaves(server: Server) -> None:
    responses: list[Any] = []
    client = grpc_client.InferenceServerClient(server.grpc_address)
    streamed(
        client,
        responses,
        text_input="a",
        stream=True,
        sampling_parameters='{"max_tokens": 1000000}',
    )
    eventually(lambda: responses, 30, "a first response")

    client.stop_stream(cancel_requests=True)
    client.close()

    eventually(lambda: "aborted" in _read(server.journal), 30, "the request is aborted")


def test_arguments_that_are_no_json_are_the_reason(server: Server) -> None:
    _, index = server.request_json("/v2/repository/index", {})
    (entry,) = [model for model in index if model["name"] == "broken"]

    assert "/broken/1/model.json is not valid JSON, correct it: " in entry["reason"]


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.row("L08")
def test_what_openai_s_clients_wish_reaches_the_engine(server: Server) -> None:
    def text(**fields: Any) -> str:
        document = {"model": "talker", "prompt": "a", "max_tokens": 1, **fields}
        status, answer = server.request_json("/v1/completions", document)
        assert status == 200, answer
        return str(answer["choices"][0]["text"])

    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "string"}}}

    assert text(logit_bias={"7": -100}) == "{7:-100}"
    assert text(response_format=schema) == '{"json":{"type":"string"}}'
    assert text(model="talker_lora_sheep") == "sheep:2:/s"


@pytest.mark.row("L08")
def test_streamed_probabilities_are_those_of_the_new_tokens(server: Server) -> None:
    wish = {"text_input": "b a", "sampling_parameters": '{"max_tokens": 2, "logprobs": 1}'}

    found = answers(server, **wish, stream=True, return_logprobs=True)
    [whole] = answers(server, **wish, return_logprobs=True)

    assert [_tokens(one) for one in found] == [["a"], ["b"]]
    assert _tokens(whole) == ["a", "b"]


def _tokens(answer: Any) -> list[str]:
    steps = json.loads(answer.as_numpy("logprobs")[0])
    return [one["decoded_token"] for step in steps for one in step.values()]


def test_the_engines_own_metrics_are_on_the_page(server: Server) -> None:
    answers(server, text_input="a b", sampling_parameters='{"max_tokens": 3}')
    labels = 'model="talker",model_name="none",version="1"'
    first = "vllm:time_to_first_token_seconds"

    def shown() -> dict[str, float]:
        """Return the page once it has all of them: the model tells its figures now and then."""
        series = read_series(server)
        has_tokens = series.get(f"vllm:generation_tokens_total{{{labels}}}", 0) >= 3
        return series if has_tokens and f"{first}_count{{{labels}}}" in series else {}

    series = eventually(shown, 60)
    count = series[f"{first}_count{{{labels}}}"]
    assert series[f"vllm:num_requests_running{{{labels}}}"] == 7
    assert [0, count, count] == [
        series[f'{first}_bucket{{{labels},le="{bound}"}}'] for bound in ("0.001", "0.5", "+Inf")
    ]
    assert series[f"{first}_sum{{{labels}}}"] == pytest.approx(0.25 * count)
    assert not any(name.startswith("somebody") for name in series)
