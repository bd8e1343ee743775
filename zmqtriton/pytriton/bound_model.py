"""An inference callable in the shape of a TritonPythonModel, for an instance in this process."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import numpy as np

from zmqtriton.pytriton.exceptions import PyTritonUnrecoverableError
from zmqtriton.pytriton.model_config.signature import datatype
from zmqtriton.pytriton.model_config.triton_model_config import TritonModelConfig
from zmqtriton.pytriton.proxy.telemetry import (
    end_span,
    get_telemetry_tracer,
    start_span_from_remote,
)
from zmqtriton.pytriton.proxy.types import Request
from zmqtriton.pytriton.validation import ResponseValidator
from zmqtriton_floor.datatypes import BY_CONFIG_NAME
from zmqtriton_stub.api import InferenceResponse, Tensor, TritonError, TritonModelException

logger = logging.getLogger(__name__)

#: Whatever the user's code raises, the client gets.
_FAILURES = (Exception, SystemExit)
#: The flag of a stream's last response.
_FINAL = 1
_SEVERAL = (
    "The inference callable has yielded several responses, and its model is not decoupled: "
    "use ModelConfig(decoupled=True)."
)


class BoundModel:
    """Calls the callable and checks what it returns. Calling the class makes an instance."""

    def __init__(
        self,
        infer_func: Callable[..., Any],
        config: TritonModelConfig,
        *,
        strict: bool,
        on_unrecoverable: Callable[[str], object],
    ) -> None:
        self._infer_func = infer_func
        self._validator = ResponseValidator(config, strict=strict)
        self._name = config.model_name
        self._inputs = [spec.name for spec in config.inputs or ()]
        self._types = {spec.name: _served_type(spec.dtype) for spec in config.outputs or ()}
        self._is_decoupled = config.decoupled
        self._on_unrecoverable = on_unrecoverable

    def execute(self, requests: Sequence[Any]) -> Any:
        """Return the responses, or a coroutine that does, or that sends them."""
        if self._is_decoupled:
            return self._send_all(requests)
        inputs = [self._request(request) for request in requests]
        try:
            returned = self._infer_func(inputs)
            if isinstance(returned, list):
                self._validator.validate_responses(inputs, returned)
                return [*map(self._response, requests, returned)]
        except _FAILURES as error:
            raise TritonModelException(self._failure(error)) from None
        finally:
            _end_spans(inputs)
        return self._wait_for_one(requests, inputs, returned)

    async def _wait_for_one(
        self, requests: Sequence[Any], inputs: list[Request], returned: Any
    ) -> list[InferenceResponse]:
        """Return the responses of a coroutine or a generator, which must yield but once."""
        answers: list[Any] = []
        try:
            async with aclosing(_results(returned)) as results:
                async for responses in results:
                    self._validator.validate_responses(inputs, responses)
                    if answers:
                        raise ValueError(_SEVERAL)
                    answers.append(responses)
            (responses,) = answers or [[]]
            self._validator.validate_responses(inputs, responses)
            return [*map(self._response, requests, responses)]
        except _FAILURES as error:
            raise TritonModelException(self._failure(error)) from None

    async def _send_all(self, requests: Sequence[Any]) -> None:
        """Send what the callable yields until it ends, or nobody waits for it any more."""
        inputs = [self._request(request) for request in requests]
        senders = [request.get_response_sender() for request in requests]
        last: InferenceResponse | None = None
        try:
            async with aclosing(_results(self._infer_func(inputs))) as results:
                async for responses in results:
                    self._validator.validate_responses(inputs, responses)
                    for request, sender, response in zip(requests, senders, responses, strict=True):
                        sender.send(self._response(request, response))
                    if all(sender.is_cancelled() for sender in senders):
                        break
        except _FAILURES as error:
            last = InferenceResponse(error=TritonError(self._failure(error)))
        finally:
            _end_spans(inputs)
        for sender in senders:
            if last is None:
                sender.send(flags=_FINAL)
            else:
                sender.send(last, flags=_FINAL)

    # ------------------------------------------------------- in and out

    def _request(self, request: Any) -> Request:
        tensors = {tensor.name(): tensor for tensor in request.inputs()}
        return Request(
            data={name: tensors[name].as_numpy() for name in self._inputs if name in tensors},
            parameters=json.loads(request.parameters()),
            span=_span(request, self._name),
            requested_output_names=[*request.requested_output_names()],
        )

    def _response(self, request: Any, response: Mapping[str, Any]) -> InferenceResponse:
        """Return a response of the outputs that were asked for, in their declared types."""
        names = request.requested_output_names()
        outputs = []
        for name, value in response.items():
            if name in names:
                outputs.append(Tensor(name, _served(value, self._types[name])))
        return InferenceResponse(outputs)

    def _failure(self, error: BaseException) -> str:
        """Return what the client gets; the server ends if the callable says so."""
        text = traceback.format_exc()
        if isinstance(error, PyTritonUnrecoverableError):
            logger.error("model '%s' cannot go on, the server is stopped: %s", self._name, text)
            self._on_unrecoverable(text)
        else:
            logger.warning("model '%s' has failed: %s", self._name, text)
        return text


def model_class(infer_func: Callable[..., Any], config: TritonModelConfig, **how: Any) -> Any:
    """Return a maker of a BoundModel for this callable."""
    return partial(BoundModel, infer_func, config, **how)


async def _results(returned: Any) -> AsyncGenerator[Any, None]:
    """Iterate over what a callable of any kind gives; others run between two results."""
    if inspect.isasyncgen(returned):
        async with aclosing(returned):
            async for result in returned:
                yield result
    elif inspect.isawaitable(returned):
        yield await returned
    elif inspect.isgenerator(returned):
        try:
            for result in returned:
                yield result
                await asyncio.sleep(0)
        finally:
            returned.close()
    else:
        yield returned
        await asyncio.sleep(0)


def _served_type(dtype: Any) -> Any:
    return BY_CONFIG_NAME[datatype(dtype)].numpy


def _served(value: np.ndarray, dtype: Any) -> np.ndarray:
    """Return an output in its declared type; texts are read where that is a number."""
    if value.dtype.kind == "U" and dtype is np.object_:
        return np.char.encode(value, "utf-8").astype(np.object_)
    return value.astype(dtype, copy=False)


# ------------------------------------------------------------------ tracing


def _span(request: Any, model: str) -> Any:
    """Return a span of the request's trace, if it has one and there is a tracer."""
    if get_telemetry_tracer() is None:
        return None
    context = request.trace().get_context()
    return start_span_from_remote(json.loads(context), model) if context else None


def _end_spans(requests: Sequence[Request]) -> None:
    for request in requests:
        end_span(request.span)
