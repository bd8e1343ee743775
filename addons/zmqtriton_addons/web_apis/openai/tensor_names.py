"""The inputs and outputs by which a model makes text: by default those of Triton's vLLM backend.

Parameters of the model's configuration name others. Knows configurations only, and no request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zmqtriton_floor.datatypes import BY_NAME, BYTES
from zmqtriton_floor.signature import Input, Signature

_BOOL = BY_NAME["BOOL"].number

#: By the parameter that names it: the default name, and the datatype that it must have to be used.
INPUTS = {
    "openai_text_input": ("text_input", BYTES),
    "openai_messages_input": ("", BYTES),
    "openai_stream_input": ("stream", _BOOL),
    "openai_sampling_parameters_input": ("sampling_parameters", BYTES),
    "openai_exclude_input": ("exclude_input_in_output", _BOOL),
}
OUTPUTS = {
    "openai_text_output": "text_output",
    "openai_finish_reason_output": "finish_reason",
    "openai_prompt_tokens_output": "num_input_tokens",
    "openai_completion_tokens_output": "num_output_tokens",
    "openai_embedding_output": "embedding",
}
#: An output of this name behind it may have to be asked for, by an input of type BOOL.
_WISH = "return_"


class TensorNames:
    """The tensors of one model; an input is None and an output "" if it has none such."""

    def __init__(self, config: Mapping[str, Any], signature: Signature) -> None:
        self._parameters = config.get("parameters") or {}
        self._signature = signature
        self.model = signature.model
        self.text = self._input("openai_text_input")
        self.messages = self._input("openai_messages_input")
        self.stream = self._input("openai_stream_input")
        self.sampling = self._input("openai_sampling_parameters_input")
        self.exclude_input = self._input("openai_exclude_input")
        self.text_output = self._output("openai_text_output")
        self.finish_reason = self._output("openai_finish_reason_output")
        self.prompt_tokens = self._output("openai_prompt_tokens_output")
        self.completion_tokens = self._output("openai_completion_tokens_output")
        self.embedding = self._output("openai_embedding_output")

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
    def is_decoupled(self) -> bool:
        return self._signature.is_decoupled

    @property
    def max_batch_size(self) -> int:
        return self._signature.max_batch_size

    def wishes(self, outputs: Sequence[str]) -> list[Input]:
        """Return the inputs that ask for these outputs."""
        found = [self._signature.inputs.get(_WISH + name) for name in outputs if name]
        return [wish for wish in found if wish is not None and wish.datatype == _BOOL]

    def input(self, name: str) -> Input | None:
        """Return an input by its own name."""
        return self._signature.inputs.get(name)

    def wanted_name(self, parameter: str) -> str:
        """Return the name that the model has, or should have, for the tensor of a parameter."""
        default = INPUTS[parameter][0] if parameter in INPUTS else OUTPUTS[parameter]
        return self.value(parameter) or default

    def value(self, parameter: str) -> str:
        """Return the value of a parameter of the model; "" if it has none."""
        return str((self._parameters.get(parameter) or {}).get("string_value", ""))

    def _input(self, parameter: str) -> Input | None:
        found = self._signature.inputs.get(self.wanted_name(parameter))
        is_right = found is not None and found.datatype == INPUTS[parameter][1]
        return found if is_right else None

    def _output(self, parameter: str) -> str:
        name = self.wanted_name(parameter)
        return name if name in self._signature.outputs else ""
