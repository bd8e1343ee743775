"""A request for text: its options, and the tensors of its responses, named as in Triton.

Knows vLLM's objects by their attributes, and imports nothing of it.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import numpy as np
import triton_python_backend_utils as pb_utils

#: name, type, dims and whether it may be left out
_INPUTS = (
    ("text_input", "TYPE_STRING", [1], False),
    ("stream", "TYPE_BOOL", [1], True),
    ("sampling_parameters", "TYPE_STRING", [1], True),
    ("exclude_input_in_output", "TYPE_BOOL", [1], True),
    ("return_finish_reason", "TYPE_BOOL", [1], True),
    ("return_cumulative_logprob", "TYPE_BOOL", [1], True),
    ("return_logprobs", "TYPE_BOOL", [1], True),
    ("return_num_input_tokens", "TYPE_BOOL", [1], True),
    ("return_num_output_tokens", "TYPE_BOOL", [1], True),
    # ours: what OpenAI's clients ask for, and Triton's backend has no input for
    ("response_format", "TYPE_STRING", [1], True),
)
_OUTPUTS = (
    ("text_output", "TYPE_STRING", [-1]),
    ("finish_reason", "TYPE_STRING", [-1]),
    ("cumulative_logprob", "TYPE_FP32", [-1]),
    ("logprobs", "TYPE_STRING", [-1]),
    ("num_input_tokens", "TYPE_UINT32", [1]),
    ("num_output_tokens", "TYPE_UINT32", [-1]),
)


def complete(config: Any) -> Any:
    """Return the ModelConfig with the tensors that it lacks, decoupled and without batches."""
    document = config.as_dict()
    names = {entry["name"] for kind in ("input", "output") for entry in document.get(kind, ())}
    for name, kind, dims, is_optional in _INPUTS:
        if name not in names:
            tensor = {"name": name, "data_type": kind, "dims": dims}
            config.add_input({**tensor, "optional": True} if is_optional else tensor)
    for name, kind, dims in _OUTPUTS:
        if name not in names:
            config.add_output({"name": name, "data_type": kind, "dims": dims})
    config.set_model_transaction_policy({"decoupled": True})
    config.set_max_batch_size(0)
    return config


class Question(NamedTuple):
    prompt: str
    is_streamed: bool
    has_prompt_in_output: bool
    #: Arguments of SamplingParams.
    sampling: Dict[str, Any]
    #: Name of the LoRA adapter; "" for the model without one.
    adapter: str
    #: The form of the text, by OpenAI's document; None for any.
    form: Optional[Dict[str, Any]]
    #: The other outputs that the request asks for.
    more: List[str]

    @classmethod
    def of(cls, request: Any) -> Question:
        """Return the question of a request. Raises ValueError."""
        inputs = {tensor.name(): tensor.as_numpy().reshape(-1) for tensor in request.inputs()}
        is_streamed = bool(inputs["stream"][0]) if "stream" in inputs else False
        has_prompt = not is_streamed
        if "exclude_input_in_output" in inputs:
            has_prompt = not inputs["exclude_input_in_output"][0]
        if has_prompt and is_streamed:
            raise ValueError("When streaming, `exclude_input_in_output` = False is not allowed.")
        text = request.parameters()
        if "sampling_parameters" in inputs:
            text = inputs["sampling_parameters"][0].decode()
        sampling = json.loads(text or "{}")
        if not isinstance(sampling, dict):
            raise ValueError(f"sampling_parameters must be a JSON object, got '{text}'")
        if "logit_bias" in sampling:  # the keys of JSON are texts
            biases = sampling["logit_bias"] or {}
            sampling["logit_bias"] = {int(token): bias for token, bias in biases.items()}
        adapter = str(sampling.pop("lora_name", None) or "")
        form = json.loads(inputs["response_format"][0]) if "response_format" in inputs else None
        more = [
            name[len("return_") :]
            for name, array in inputs.items()
            if name.startswith("return_") and array[0]
        ]
        prompt = inputs["text_input"][0].decode()
        return cls(prompt, is_streamed, has_prompt, sampling, adapter, form, more)


class Answer:
    """The responses to a question, made from the engine's growing outputs."""

    def __init__(self, question: Question) -> None:
        self._question = question
        #: Length of each text that was sent, and its number of tokens.
        self._sent: Dict[int, int] = {}
        self._tokens: Dict[int, int] = {}

    def response(self, output: Any) -> Any:
        """Return the response for an output of the engine: for a stream, only its new part."""
        question = self._question
        texts = [self._new_text(place, one) for place, one in enumerate(output.outputs)]
        tensors = [_strings("text_output", texts)]
        counts = [self._new_tokens(place, one) for place, one in enumerate(output.outputs)]
        for name in question.more:
            tensors.extend(_additional(name, output, counts))
        return pb_utils.InferenceResponse(tensors)

    def _new_text(self, place: int, one: Any) -> str:
        question = self._question
        if not question.is_streamed:
            return (question.prompt if question.has_prompt_in_output else "") + str(one.text)
        sent = self._sent.get(place, 0)
        self._sent[place] = len(one.text)
        return str(one.text[sent:])

    def _new_tokens(self, place: int, one: Any) -> int:
        count = len(one.token_ids)
        if not self._question.is_streamed:
            return count
        before = self._tokens.get(place, 0)
        self._tokens[place] = count
        return count - before


def _additional(name: str, output: Any, counts: list[int]) -> Iterator[Any]:
    outputs = output.outputs
    if name == "finish_reason":
        yield _strings(name, [str(one.finish_reason) for one in outputs])
    elif name == "cumulative_logprob":
        values = [one.cumulative_logprob or 0.0 for one in outputs]
        yield pb_utils.Tensor(name, np.array(values, dtype=np.float32))
    elif name == "logprobs":
        texts = [
            _log_probabilities(one.logprobs, counts[place]) for place, one in enumerate(outputs)
        ]
        yield _strings(name, texts)
    elif name == "num_input_tokens":
        count = len(output.prompt_token_ids or ())
        yield pb_utils.Tensor(name, np.array([count], dtype=np.uint32))
    elif name == "num_output_tokens":
        yield pb_utils.Tensor(name, np.array(counts, dtype=np.uint32))


def _strings(name: str, texts: list[str]) -> Any:
    return pb_utils.Tensor(name, np.array([t.encode() for t in texts], dtype=np.object_))


def _log_probabilities(steps: Any, count: int) -> str:
    """Return the alternatives of the last tokens as JSON, "null" if the request has none."""
    if steps is None:
        return "null"
    return json.dumps(
        [
            {
                token: {
                    "logprob": one.logprob,
                    "rank": one.rank,
                    "decoded_token": one.decoded_token,
                }
                for token, one in step.items()
            }
            for step in steps[max(0, len(steps) - count) :]
        ]
    )


def structured_output(sampling_params: Any, form: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the arguments of SamplingParams for structured outputs, by vLLM's name for them.

    Gets the module of SamplingParams. Raises ValueError if the document is not a valid form.
    """
    kind = form.get("type") if isinstance(form, dict) else None
    if form is None or kind == "text":
        return {}
    if kind == "json_object":
        wish: Dict[str, Any] = {"json_object": True}
    elif kind == "json_schema":
        wish = {"json": form["json_schema"]["schema"]}
    else:
        raise ValueError(f"response_format must be a form of text, got {json.dumps(form)}")
    newer = getattr(sampling_params, "StructuredOutputsParams", None)
    if newer is not None:
        return {"structured_outputs": newer(**wish)}
    return {"guided_decoding": sampling_params.GuidedDecodingParams(**wish)}
