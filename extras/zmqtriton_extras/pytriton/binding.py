"""A model of one or several callables, and its way to the server.

A callable takes the shape of a TritonPythonModel, for an instance in this process. Its results are
checked before they are sent; a failed check raises ValueError, whose text the client gets.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Sized
from contextlib import aclosing
from functools import partial
from typing import Any, NoReturn

import numpy as np

from zmqtriton.sdk.models import api
from zmqtriton.sdk.process import connection as connections
from zmqtriton.sdk.process import report
from zmqtriton.sdk.wire import datatypes
from zmqtriton_extras.pytriton.decorators import TritonContext, set_triton_context
from zmqtriton_extras.pytriton.exceptions import PyTritonUnrecoverableError, PyTritonValidationError
from zmqtriton_extras.pytriton.model_config.generator import (
    ModelConfigGenerator,
    generate_warmup_requests,
)
from zmqtriton_extras.pytriton.model_config.model_config import ModelConfig
from zmqtriton_extras.pytriton.model_config.signature import datatype, describe_model
from zmqtriton_extras.pytriton.model_config.tensor import Tensor
from zmqtriton_extras.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from zmqtriton_extras.pytriton.proxy.telemetry import (
    end_span,
    get_telemetry_tracer,
    start_span_from_remote,
)
from zmqtriton_extras.pytriton.proxy.types import Request, Response

logger = logging.getLogger("zmqtriton.pytriton.binding")

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
#: Whatever the user's code raises, the client gets.
_FAILURES = (Exception, SystemExit)
#: The flag of a stream's last response.
_FINAL = 1
_SEVERAL = (
    "The inference callable has yielded several responses, and its model is not decoupled: "
    "use ModelConfig(decoupled=True)."
)
_KINDS = "biufOSU"


class ResponseValidator:
    """The rules for the responses of one model."""

    def __init__(self, model_config: TritonModelConfig, *, strict: bool) -> None:
        self._model = model_config.model_name
        self._batch_dimensions = 1 if model_config.batching else 0
        self._outputs = {output.name: output for output in model_config.outputs or ()}
        self._strict = strict

    def validate_responses(self, requests: Sized, responses: Any) -> None:
        """Check the responses to these requests."""
        if not isinstance(responses, list):
            raise ValueError(
                f"Outputs returned by `{self._model}` model callable must be list of response "
                f"dicts with numpy arrays. Got outputs={responses} instead."
            )
        if len(responses) != len(requests):
            raise ValueError(
                f"Number of outputs returned by `{self._model}` inference callable "
                f"({len(responses)}) does not match number of requests ({len(requests)}) "
                "received from Triton."
            )
        for response in responses:
            self._check_response(response)

    def _check_response(self, response: Any) -> None:
        if not isinstance(response, dict | Response):
            raise ValueError(
                f"Outputs returned by `{self._model}` model callable must be list of response "
                f"dicts with numpy arrays. Got response={response} instead."
            )
        for name, value in response.items():
            self._check_output(name, value)
            if self._strict:
                self._compare(name, value)

    def _check_output(self, name: Any, value: Any) -> None:
        if not isinstance(name, str):
            raise ValueError(f"Not all keys returned by `{self._model}` model callable are string")
        if not isinstance(value, np.ndarray):
            raise ValueError(
                f"Not all values returned by `{self._model}` model callable are numpy arrays"
            )
        if value.dtype.kind not in _KINDS:
            raise ValueError(
                "Only bool, numeric, string, unicode and object arrays are supported by Triton "
                f"(dtype.kind: {_KINDS}). Returned `{name}` for model `{self._model}` "
                f"has `{value.dtype.kind}` dtype.kind."
            )
        if value.dtype.kind == "O" and value.size and not isinstance(value.item(0), bytes):
            self._refuse_object(name, value.item(0))

    def _refuse_object(self, name: str, element: Any) -> NoReturn:
        if isinstance(element, str):
            raise ValueError(
                "Use string/byte-string instead of object for passing string in NumPy array "
                f"from model `{self._model}`."
            )
        raise ValueError(
            f"Only bytes as objects dtype are supported by PyTriton. Returned `{name}` from "
            f"`{self._model}` has `{type(element)}` type."
        )

    def _compare(self, name: str, value: np.ndarray) -> None:
        """Check an output against its declaration."""
        declared = self._outputs.get(name)
        if declared is None:
            raise ValueError(
                f"Returned output `{name}` is not defined in model config for model "
                f"`{self._model}`."
            )
        where = f"Returned output `{name}` for model `{self._model}`"
        if not _is_of_type(value, declared):
            raise ValueError(
                f"{where} has invalid type. Returned: {value.dtype} ({value.dtype.kind}). "
                f"Expected: {declared.dtype}."
            )
        shape = value.shape[self._batch_dimensions :]
        shapes = f"Returned: {shape}. Expected: {declared.shape}."
        if len(shape) != len(declared.shape):
            raise ValueError(f"{where} has invalid shapes. {shapes}")
        if not _fits(shape, declared.shape):
            raise ValueError(f"{where} has invalid shapes at one or more positions. {shapes}")


def _is_of_type(value: np.ndarray, declared: TensorSpec) -> bool:
    if value.dtype.kind in "OSU":
        return np.dtype(declared.dtype).kind in "OS"
    return bool(np.issubdtype(value.dtype, declared.dtype))


def _fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return all(dim in (-1, length) for length, dim in zip(shape, declared, strict=True))


class BoundModel:
    """Calls the callable, and checks its results. Creating an object makes an instance."""

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
        """Return the responses; for a decoupled model, a coroutine that sends them."""
        if self._is_decoupled:
            return self._send_all(requests)
        inputs = [self._request(request) for request in requests]
        try:
            returned = self._infer_func(inputs)
            if isinstance(returned, list):
                self._validator.validate_responses(inputs, returned)
                return [*map(self._response, requests, returned)]
        except _FAILURES as error:
            raise api.TritonModelException(self._failure(error)) from None
        finally:
            _end_spans(inputs)
        return self._wait_for_one(requests, inputs, returned)

    async def _wait_for_one(
        self, requests: Sequence[Any], inputs: list[Request], returned: Any
    ) -> list[api.InferenceResponse]:
        """Return the responses of a coroutine, or of a generator that must yield exactly once."""
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
            raise api.TritonModelException(self._failure(error)) from None

    async def _send_all(self, requests: Sequence[Any]) -> None:
        """Send the callable's results until it ends, or until all requests are cancelled."""
        inputs = [self._request(request) for request in requests]
        senders = [request.get_response_sender() for request in requests]
        last: api.InferenceResponse | None = None
        try:
            async with aclosing(_results(self._infer_func(inputs))) as results:
                async for responses in results:
                    self._validator.validate_responses(inputs, responses)
                    for request, sender, response in zip(requests, senders, responses, strict=True):
                        sender.send(self._response(request, response))
                    if all(sender.is_cancelled() for sender in senders):
                        break
        except _FAILURES as error:
            last = api.InferenceResponse(error=api.TritonError(self._failure(error)))
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

    def _response(self, request: Any, response: Mapping[str, Any]) -> api.InferenceResponse:
        """Return a response with the requested outputs, in their declared types."""
        names = request.requested_output_names()
        outputs = []
        for name, value in response.items():
            if name in names:
                outputs.append(api.Tensor(name, _served(value, self._types[name])))
        return api.InferenceResponse(outputs)

    def _failure(self, error: BaseException) -> str:
        """Return the error for the client; stop the server if the callable demands it."""
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
    """Yield the results of a callable of any kind; other tasks run between two results."""
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
    return datatypes.BY_CONFIG_NAME[datatype(dtype)].numpy


def _served(value: np.ndarray, dtype: Any) -> np.ndarray:
    """Return an output in its declared type; texts are parsed if that is a number."""
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


def check_model_name(model_name: str) -> None:
    """Raise PyTritonValidationError for a name that no model can have."""
    if not model_name:
        raise PyTritonValidationError("Model name cannot be empty")
    if not _NAME.fullmatch(model_name):
        raise PyTritonValidationError(
            "Model name can only contain alphanumeric characters, dots, underscores and dashes"
        )


class Binding:
    """A model whose code is in this process. Raises PyTritonValidationError if it cannot be one."""

    def __init__(
        self,
        model_name: str,
        infer_func: Callable[..., Any] | Sequence[Callable[..., Any]],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        config: ModelConfig,
        *,
        model_version: int,
        strict: bool,
        processes: bool,
    ) -> None:
        if callable(infer_func):
            self.infer_functions: Sequence[Callable[..., Any]] = [infer_func]
        elif isinstance(infer_func, Sequence):
            self.infer_functions = infer_func
        else:
            raise PyTritonValidationError(
                "inference_fn has to be either callable or sequence of callables"
            )
        if any(output.optional for output in outputs):
            raise PyTritonValidationError("Output tensors cannot be optional.")
        self.model_name = model_name
        self.model_version = model_version
        self._strict = strict
        self._has_processes = processes
        self._warmup = config.model_warmup
        self._config = describe_model(
            model_name,
            inputs,
            outputs,
            config,
            model_version=model_version,
            instances=len(self.infer_functions),
        )

    @property
    def key(self) -> tuple[str, int]:
        """The name and version that no other model of the script has."""
        return self.model_name.lower(), self.model_version

    def load(
        self,
        connection: connections.Connection,
        context: TritonContext,
        on_unrecoverable: Callable[[str], object],
    ) -> None:
        """Warm up each callable, then bind the model. Raises the reason if that fails."""
        for infer_func in self.infer_functions:
            set_triton_context(context, infer_func, self._config)
        self._warm_up()
        how = {"strict": self._strict, "on_unrecoverable": on_unrecoverable}
        if self._has_processes:
            how["on_unrecoverable"] = report
        connection.bind(
            self.model_name,
            [model_class(infer_func, self._config, **how) for infer_func in self.infer_functions],
            config=ModelConfigGenerator(self._config).get_config(),
            version=self.model_version,
            processes=self._has_processes,
            on_report=on_unrecoverable,
        )

    def _warm_up(self) -> None:
        """Call each callable with the requests of the warm-up, and log failures."""
        try:
            samples = generate_warmup_requests(self._warmup)
        except Exception as error:  # noqa: BLE001 - a warm-up that fails stops nobody
            logger.error("model '%s' cannot be warmed up: %s", self.model_name, error)
            return
        for infer_func in self.infer_functions:
            for sample in samples:
                try:
                    infer_func([Request(data=sample)])
                except Exception as error:  # noqa: BLE001 - the user's code
                    logger.warning("warm-up of model '%s' has failed: %s", self.model_name, error)
