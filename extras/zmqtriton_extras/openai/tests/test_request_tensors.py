from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.frontends.fake_gateway import tensor_config
from tests.frontends.http_api.text_models import text_model
from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.request_tensors import text_body
from zmqtriton_extras.openai.requests import read_chat, read_completion
from zmqtriton_extras.openai.tensor_names import TensorNames
from zmqtriton_floor.tensors import to_numpy
from zmqtriton_floor.wire import VersionInfo
from zmqtriton_frontends.inference.model_version import ModelVersion

VLLM = text_model(
    inputs=(
        ("text_input", "STRING"),
        ("stream", "BOOL"),
        ("sampling_parameters", "STRING"),
        ("exclude_input_in_output", "BOOL"),
        ("return_finish_reason", "BOOL"),
        ("return_num_output_tokens", "BOOL"),
        ("return_logprobs", "BOOL"),
    ),
    outputs=(
        ("text_output", "STRING"),
        ("finish_reason", "STRING"),
        ("num_output_tokens", "UINT32"),
        ("logprobs", "STRING"),
    ),
    model_transaction_policy={"decoupled": True},
)


def inputs(model: VersionInfo, **fields: Any) -> dict[str, Any]:
    """The inputs of a completion of `hello`, as lists; they fit the model."""
    version = ModelVersion(model)
    names = TensorNames(version.config, version.signature)
    request = read_completion({"model": "text", "prompt": "hello", **fields})
    body = text_body("id", request, "hello", names)
    version.signature.check(body)
    return {t.name: to_numpy(t.datatype, t.shape, t.data).tolist() for t in body.inputs}


def test_a_model_like_vllm_gets_all_that_it_has() -> None:
    assert inputs(VLLM) == {
        "text_input": [b"hello"],
        "stream": [False],
        "sampling_parameters": [b"{}"],
        "exclude_input_in_output": [True],
        "return_finish_reason": [True],
        "return_num_output_tokens": [True],
    }


def test_a_stream_is_asked_for_only_where_there_can_be_one() -> None:
    plain = text_model(inputs=(("text_input", "STRING"), ("stream", "BOOL")))

    assert inputs(VLLM, stream=True)["stream"] == [True]
    assert inputs(plain, stream=True)["stream"] == [False]


def test_sampling_parameters_are_json() -> None:
    tensors = inputs(VLLM, temperature=0.5, stop=["a", "b"], n=2, user="me")

    sampling = json.loads(tensors["sampling_parameters"][0])
    assert sampling == {"temperature": 0.5, "stop": ["a", "b"], "n": 2}


def test_tensors_may_have_other_names() -> None:
    model = text_model(
        inputs=(("PROMPT", "STRING"), ("text_input", "STRING")),
        outputs=(("ANSWER", "STRING"),),
        parameters={"openai_text_input": "PROMPT", "openai_text_output": "ANSWER"},
    )

    assert inputs(model) == {"PROMPT": [b"hello"]}


def test_a_model_may_batch() -> None:
    model = text_model(max_batch_size=4)

    assert inputs(model) == {"text_input": [[b"hello"]]}


def test_tensors_of_another_type_are_something_else() -> None:
    model = text_model(inputs=(("text_input", "STRING"), ("stream", "INT32")))

    assert inputs(model, stream=True) == {"text_input": [b"hello"]}


def test_wishes_may_have_an_input_each() -> None:
    model = text_model(
        inputs=(("text_input", "STRING"), ("temperature", "FP32"), ("seed", "UINT64")),
    )
    config = json.loads(model.config)
    config["input"] += [
        tensor_config("max_tokens", "INT32", [1]),
        tensor_config("stop_words", "STRING", [-1], optional=True),
    ]
    model = model._replace(config=json.dumps(config))

    assert inputs(model) == {"text_input": [b"hello"], "max_tokens": [16]}
    assert inputs(model, max_tokens=7, stop=["a", "b"], temperature=0.5, seed=3) == {
        "text_input": [b"hello"],
        "max_tokens": [7],
        "stop_words": [b"a", b"b"],
        "temperature": [0.5],
        "seed": [3],
    }
    with pytest.raises(RefusedField) as refused:
        inputs(model, seed=-1)
    assert refused.value.field == "seed"


@pytest.mark.parametrize(
    ("names", "taken"), [(["stop"], "stop"), (["stop", "stop_words"], "stop_words")]
)
def test_texts_that_end_a_text_have_either_name(names: list[str], taken: str) -> None:
    model = text_model(inputs=(("text_input", "STRING"),))
    config = json.loads(model.config)
    config["input"] += [tensor_config(name, "STRING", [-1], optional=True) for name in names]

    got = inputs(model._replace(config=json.dumps(config)), stop=["a", "b"])

    assert {"text_input": [b"hello"], taken: [b"a", b"b"]} == got


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (text_model(inputs=(("TEXT", "STRING"),)), "has no input 'text_input' of type TYPE_STRING"),
        (text_model(inputs=(("text_input", "INT32"),)), "has no input 'text_input'"),
        (text_model(outputs=(("TEXT", "STRING"),)), "has no output 'text_output'"),
        (
            text_model(parameters={"openai_text_output": "ANSWER"}),
            "has no output 'ANSWER' of type TYPE_STRING; its parameter openai_text_output may name",
        ),
    ],
)
def test_a_model_that_makes_no_text_is_refused(model: VersionInfo, text: str) -> None:
    with pytest.raises(RefusedField, match=text) as refused:
        inputs(model)

    assert refused.value.field == "model"


def test_a_model_that_knows_nothing_of_choices_makes_one() -> None:
    with pytest.raises(RefusedField, match="makes one choice only") as refused:
        inputs(text_model(), n=2)

    assert refused.value.field == "n"


def test_messages_go_where_they_are_taken() -> None:
    version = ModelVersion(
        text_model(
            inputs=(("text_input", "STRING"), ("MESSAGES", "STRING")),
            parameters={"openai_messages_input": "MESSAGES"},
        )
    )
    names = TensorNames(version.config, version.signature)
    chat = read_chat({"model": "text", "messages": [{"role": "user", "content": "hello"}]})
    completion = read_completion({"model": "text", "prompt": "hello"})

    of_chat = text_body("id", chat, "[]", names).inputs
    of_completion = text_body("id", completion, "hello", names).inputs

    assert [tensor.name for tensor in of_chat] == ["MESSAGES"]
    assert [tensor.name for tensor in of_completion] == ["text_input"]


_VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
_FIELDS = (
    "n",
    "stop",
    "seed",
    "temperature",
    "max_tokens",
    "stream",
    "echo",
    "top_k",
    "logit_bias",
)


@pytest.mark.slow
@given(
    st.sampled_from(["messages", "prompt"]),
    _VALUES,
    st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=3),
)
def test_any_document_is_refused_or_becomes_a_request_that_fits(
    field: str, value: Any, fields: dict[str, Any]
) -> None:
    version = ModelVersion(VLLM)
    names = TensorNames(version.config, version.signature)
    read = read_chat if field == "messages" else read_completion
    try:
        request = read({"model": "text", field: value, **fields})
    except RefusedField:
        return

    for prompt in request.prompts or ["a chat"]:
        version.signature.check(text_body("id", request, prompt, names))
