"""The inputs and outputs of models that make text: by default those of Triton's vLLM backend.

Parameters of the model's configuration name others, and adapters such as LoRA's. Adapters are
entries of their own in the list of models, and a request to the model has the adapter's name. Knows
configurations, but no requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zmqtriton.sdk.frontend import ModelVersion, NotLoaded
from zmqtriton.sdk.models import config_parameter
from zmqtriton.sdk.wire import Unavailable, ZmqTritonError, datatypes
from zmqtriton.sdk.wire import signature as signatures
from zmqtriton_extras.openai.template_file import PARAMETER

_BOOL = datatypes.BY_NAME["BOOL"].number

#: Default name and required datatype of each input, by the parameter that names it.
INPUTS = {
    "openai_text_input": ("text_input", datatypes.BYTES),
    "openai_messages_input": ("", datatypes.BYTES),
    "openai_stream_input": ("stream", _BOOL),
    "openai_sampling_parameters_input": ("sampling_parameters", datatypes.BYTES),
    "openai_exclude_input": ("exclude_input_in_output", _BOOL),
    "openai_tools_input": ("tools", datatypes.BYTES),
    "openai_tool_choice_input": ("tool_choice", datatypes.BYTES),
    "openai_response_format_input": ("response_format", datatypes.BYTES),
    "openai_lora_input": ("lora_name", datatypes.BYTES),
    "openai_audio_input": ("audio", datatypes.BYTES),
}
OUTPUTS = {
    "openai_text_output": "text_output",
    "openai_message_output": "",
    "openai_finish_reason_output": "finish_reason",
    "openai_prompt_tokens_output": "num_input_tokens",
    "openai_completion_tokens_output": "num_output_tokens",
    "openai_logprobs_output": "logprobs",
    "openai_tool_calls_output": "tool_calls",
    "openai_embedding_output": "embedding",
    "openai_audio_output": "audio",
}
#: Other parameters.
TOOL_CALL_PARSER = "openai_tool_call_parser"
_STRUCTURED_KEY = "openai_structured_outputs_key"
VALUES = (
    TOOL_CALL_PARSER,
    _STRUCTURED_KEY,
    "openai_lora_adapters",
    "openai_lora_separator",
)
#: Inputs of TensorRT-LLM's models for the form of a text: the kind of form, and its schema.
_GUIDES = ("guided_decoding_guide_type", "guided_decoding_guide")
#: The parameter that describes a function, and the member of its schemas that only JSON has here.
_FUNCTION, _CONTENT = "FUNCTION", "contentMediaType"
#: An output of this name behind it may have to be asked for, by an input of type BOOL.
_WISH = "return_"
_ADAPTERS, _SEPARATOR = "openai_lora_adapters", "openai_lora_separator"
#: Between the names of model and adapter.
DEFAULT_SEPARATOR = "_lora_"


class TensorNames:
    """The tensors of one model; a missing input is None, a missing output ""."""

    def __init__(
        self,
        config: Mapping[str, Any],
        signature: signatures.Signature,
        *,
        has_template: bool = False,
    ) -> None:
        self._config = config
        self._signature = signature
        self.model = signature.model
        self.has_template = has_template
        self.text = self._input("openai_text_input")
        self.messages = self._input("openai_messages_input")
        self.stream = self._input("openai_stream_input")
        self.sampling = self._input("openai_sampling_parameters_input")
        self.exclude_input = self._input("openai_exclude_input")
        self.tools = self._input("openai_tools_input")
        self.tool_choice = self._input("openai_tool_choice_input")
        self.response_format = self._input("openai_response_format_input")
        self.lora = self._input("openai_lora_input")
        self.audio = self._input("openai_audio_input")
        #: The output with whole messages, which have text and calls.
        self.message = self._text_output("openai_message_output")
        self.text_output = self.message or self._output("openai_text_output")
        self.finish_reason = self._output("openai_finish_reason_output")
        self.prompt_tokens = self._output("openai_prompt_tokens_output")
        self.completion_tokens = self._output("openai_completion_tokens_output")
        self.logprobs = self._text_output("openai_logprobs_output")
        self.tool_calls = self.message or self._text_output("openai_tool_calls_output")
        self.embedding = self._output("openai_embedding_output")
        self.audio_output = self._text_output("openai_audio_output")

    @property
    def makes_texts(self) -> bool:
        return bool(self.text and self.text_output)

    @property
    def makes_chats(self) -> bool:
        return bool((self.messages or self.text) and self.text_output)

    @property
    def makes_embeddings(self) -> bool:
        return bool(self.text and self.embedding)

    @property
    def makes_sounds(self) -> bool:
        return bool(self.text and self.audio_output)

    @property
    def is_decoupled(self) -> bool:
        return self._signature.is_decoupled

    @property
    def max_batch_size(self) -> int:
        return self._signature.max_batch_size

    @property
    def tool_call_parser(self) -> str:
        """Name of the form of tool calls in the model's text, or ""."""
        return self.value(TOOL_CALL_PARSER)

    @property
    def guides(self) -> tuple[signatures.Input, signatures.Input] | None:
        """The inputs for the kind of a text's form, and for its schema."""
        kind, guide = (self.input(name) for name in _GUIDES)
        if (
            kind is None
            or guide is None
            or (kind.datatype, guide.datatype) != (datatypes.BYTES, datatypes.BYTES)
        ):
            return None
        return kind, guide

    @property
    def structured_key(self) -> str:
        """The member of the sampling parameters for the form of a text."""
        return self.value(_STRUCTURED_KEY) if self.sampling is not None else ""

    @property
    def keeps_to_formats(self) -> bool:
        is_taken = self.response_format is not None or self.guides is not None
        return is_taken or bool(self.structured_key)

    def takes(self, field: str) -> bool:
        """Return True if a field of the sampling parameters reaches the model."""
        return self.sampling is not None or self.input(field) is not None

    def takes_json(self, name: str) -> bool:
        """Return True for an input that takes JSON, False for one that takes plain text."""
        function = json.loads(self.value(_FUNCTION) or "{}")
        schema = function.get("input", {}).get("properties", {}).get(name)
        return schema is None or _CONTENT in schema

    def wishes(self, outputs: Sequence[str]) -> list[signatures.Input]:
        """Return the inputs that request these outputs."""
        inputs = [self._signature.inputs.get(_WISH + name) for name in outputs if name]
        return [wish for wish in inputs if wish is not None and wish.datatype == _BOOL]

    def input(self, name: str) -> signatures.Input | None:
        """Return an input by its own name."""
        return self._signature.inputs.get(name)

    def wanted_name(self, parameter: str) -> str:
        """Return the name that the model has, or should have, for a parameter's tensor."""
        default = INPUTS[parameter][0] if parameter in INPUTS else OUTPUTS[parameter]
        return self.value(parameter) or default

    def value(self, parameter: str) -> str:
        """Return the value of a parameter of the model; "" if it has none."""
        return config_parameter(self._config, parameter)

    def _input(self, parameter: str) -> signatures.Input | None:
        tensor = self._signature.inputs.get(self.wanted_name(parameter))
        is_right = tensor is not None and tensor.datatype == INPUTS[parameter][1]
        return tensor if is_right else None

    def _output(self, parameter: str) -> str:
        name = self.wanted_name(parameter)
        return name if name in self._signature.outputs else ""

    def _text_output(self, parameter: str) -> str:
        name = self._output(parameter)
        return name if self._signature.outputs.get(name) == datatypes.BYTES else ""


def names_of(model: ModelVersion) -> TensorNames:
    """Return the tensors of a model."""
    return TensorNames(model.config, model.signature, has_template=PARAMETER in model.files)


def adapters_of(names: TensorNames) -> list[str]:
    """Return the adapters that a model names."""
    return [name for name in names.value(_ADAPTERS).replace(",", " ").split() if name]


def ids_of(model: ModelVersion) -> list[str]:
    """Return the names of a model and of its adapters in requests of clients."""
    names = names_of(model)
    separator = _separator(names)
    return [model.name, *(f"{model.name}{separator}{one}" for one in adapters_of(names))]


def split(catalogue: Any, name: str) -> tuple[str, str]:
    """Return the model and the adapter in a client's model name, "" for no adapter.

    A model of that name comes first. The adapter of a model that is not loaded need not exist.
    """
    try:
        return catalogue.find(name).name, ""
    except ZmqTritonError:
        pass
    for model in catalogue.newest():
        if name.startswith(model.name):
            names = names_of(model)
            adapter = name.removeprefix(f"{model.name}{_separator(names)}")
            if adapter != name and adapter in adapters_of(names):
                return model.name, adapter
    base, _, adapter = name.rpartition(DEFAULT_SEPARATOR)
    return (base, adapter) if base in catalogue.versions() else (name, "")


def queue_of(catalogue: Any, name: str) -> str:
    """Return the model that serves this name, loaded or not; "" for an unknown one."""
    model, _ = split(catalogue, name)
    try:
        return str(catalogue.find(model).name)
    except (NotLoaded, Unavailable):  # its jobs wait for it, or load it
        return model
    except ZmqTritonError:
        return ""


def _separator(names: TensorNames) -> str:
    return names.value(_SEPARATOR) or DEFAULT_SEPARATOR
