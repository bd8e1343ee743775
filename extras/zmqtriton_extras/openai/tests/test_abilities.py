from __future__ import annotations

import json
from typing import Any

import pytest

from tests.frontends.http_api.text_models import text_model
from zmqtriton_extras.openai.call_text import CallText, ForcedCall
from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.request_tensors import call_reader, check, text_body
from zmqtriton_extras.openai.requests import TextRequest, read_chat
from zmqtriton_extras.openai.tensor_names import TensorNames
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.tensors import to_numpy
from zmqtriton_frontends.inference.model_version import ModelVersion

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "g"}}
TOOLS = {"tools": [TOOL, OTHER]}
FORCED = {**TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}
REQUIRED = {**TOOLS, "tool_choice": "required"}
OBJECT = {"response_format": {"type": "json_object"}}
SAMPLING, TEXT = ("sampling_parameters", "STRING"), ("text_input", "STRING")
PARSER: Any = {"openai_tool_call_parser": "hermes"}


def names(
    *inputs: str, outputs: Any = (), has_template: bool = True, **parameters: str
) -> TensorNames:
    kinds = {"n": "INT32", "logprobs": "INT32"}
    model = ModelVersion(
        text_model(
            inputs=(TEXT, *((name, kinds.get(name, "STRING")) for name in inputs)),
            outputs=(("text_output", "STRING"), *outputs),
            parameters=parameters,
        )
    )
    return TensorNames(model.config, model.signature, has_template=has_template)


def chat(**fields: Any) -> TextRequest:
    return read_chat({"model": "m", "messages": [{"role": "user", "content": "a"}], **fields})


@pytest.mark.parametrize(
    ("fields", "model", "named"),
    [
        ({"n": 2}, names(), "n"),
        ({"logprobs": True}, names("sampling_parameters"), "logprobs"),
        ({"logprobs": True}, names(outputs=[("logprobs", "STRING")]), "logprobs"),
        ({"logprobs": True}, names("logprobs", outputs=[("logprobs", "FP32")]), "logprobs"),
        ({"logit_bias": {"1": 2}}, names(), "logit_bias"),
        (OBJECT, names("sampling_parameters"), "response_format"),
        (OBJECT, names("guided_decoding_guide"), "response_format"),
        (OBJECT, names(openai_structured_outputs_key="guided_decoding"), "response_format"),
        (TOOLS, names(), "tools"),
        (TOOLS, names(has_template=False, **PARSER), "tools"),
        (FORCED, names(**PARSER), "tool_choice"),
        (REQUIRED, names("tool_choice"), "tool_choice"),
    ],
)
def test_a_model_without_an_ability_is_refused_by_the_name_of_the_field(
    fields: dict[str, Any], model: TensorNames, named: str
) -> None:
    with pytest.raises(RefusedField, match="model 'text' ") as refused:
        check(chat(**fields), model)

    assert named == refused.value.field


@pytest.mark.parametrize(
    ("fields", "model"),
    [
        ({"n": 2}, names("sampling_parameters")),
        ({"n": 2}, names("n")),
        ({"logprobs": True}, names("sampling_parameters", outputs=[("logprobs", "STRING")])),
        ({"logprobs": True}, names("logprobs", outputs=[("logprobs", "STRING")])),
        ({"logit_bias": {"1": 2}}, names("logit_bias")),
        (OBJECT, names("response_format")),
        (OBJECT, names("guided_decoding_guide", "guided_decoding_guide_type")),
        (OBJECT, names("sampling_parameters", openai_structured_outputs_key="guided_decoding")),
        (TOOLS, names(**PARSER)),
        (TOOLS, names("tools", has_template=False, outputs=[("tool_calls", "STRING")])),
        (FORCED, names("response_format")),
        (REQUIRED, names("tool_choice", **PARSER)),
        ({**TOOLS, "tool_choice": "none"}, names()),
    ],
)
def test_what_a_model_declares_it_can_do(fields: dict[str, Any], model: TensorNames) -> None:
    check(chat(**fields), model)


def test_an_adapter_needs_a_way_to_the_model() -> None:
    request = chat()._replace(adapter="doll")

    with pytest.raises(RefusedField, match="'lora_name'") as refused:
        check(request, names())
    assert refused.value.field == "model"
    assert inputs(request, names("lora_name"))["lora_name"] == b"doll"
    sampling = inputs(request, names("sampling_parameters"))["sampling_parameters"]
    assert json.loads(sampling) == {"lora_name": "doll"}


def inputs(request: TextRequest, model: TensorNames) -> dict[str, Any]:
    return {
        one.name: to_numpy(one.datatype, one.shape, one.data)[0]
        for one in text_body("id", request, "a", model).inputs
    }


def test_tools_and_forms_reach_the_model() -> None:
    whole = names("tools", "tool_choice", "response_format", **PARSER)

    tensors = inputs(chat(**REQUIRED, **OBJECT), whole)

    assert json.loads(tensors["tools"]) == [TOOL, OTHER]
    assert json.loads(tensors["tool_choice"]) == "required"
    assert json.loads(tensors["response_format"]) == {"type": "json_object"}
    assert {"text_input"} == inputs(chat(), whole).keys()


def test_an_engine_that_keeps_to_forms_is_told_that_of_a_forced_call() -> None:
    form = json.loads(inputs(chat(**FORCED), names("response_format"))["response_format"])
    guided = inputs(chat(**FORCED), names("guided_decoding_guide", "guided_decoding_guide_type"))
    named = names("sampling_parameters", openai_structured_outputs_key="guided_decoding")
    sampling = json.loads(inputs(chat(**FORCED), named)["sampling_parameters"])

    assert form["json_schema"]["schema"] == {"type": "object"}
    assert guided["guided_decoding_guide_type"] == b"json_schema"
    assert json.loads(guided["guided_decoding_guide"]) == {"type": "object"}
    assert json.loads(sampling["guided_decoding"]) == {"json": {"type": "object"}}


def test_a_bias_may_have_an_input_of_its_own() -> None:
    tensors = inputs(chat(logit_bias={"7": -100}), names("logit_bias"))

    assert json.loads(tensors["logit_bias"]) == {"7": -100}


def test_marks_of_calls_are_kept_in_texts() -> None:
    """Engines leave out special tokens, and marks of calls are such tokens in many models."""

    def sampling(parser: str, **fields: Any) -> Any:
        model = names("sampling_parameters", openai_tool_call_parser=parser)
        return json.loads(inputs(chat(**fields), model)["sampling_parameters"])

    assert sampling("hermes", **TOOLS) == {"skip_special_tokens": False}
    assert sampling("mistral", **TOOLS, skip_special_tokens=True) == {"skip_special_tokens": True}
    assert sampling("llama3_json", **TOOLS) == {}
    assert sampling("hermes") == {}


def reader(fields: dict[str, Any], model: TensorNames) -> Any:
    new = call_reader(chat(**fields), model)
    return None if new is None else new()


def test_calls_are_read_as_the_model_writes_them() -> None:
    assert reader({}, names(**PARSER)) is None
    assert isinstance(reader(TOOLS, names(**PARSER)), CallText)
    assert isinstance(reader(FORCED, names("response_format")), ForcedCall)
    assert isinstance(reader(REQUIRED, names("response_format")), CallText)
    # it tells them by an output
    assert reader(TOOLS, names(outputs=[("tool_calls", "STRING")])) is None


def test_a_form_that_nobody_knows_is_the_model_s_error() -> None:
    with pytest.raises(InternalError, match="openai_tool_call_parser of model 'text' must be one"):
        reader(TOOLS, names(openai_tool_call_parser="none"))
