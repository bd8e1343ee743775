"""A model in the test's own process: loaded, called and finalized as a stub does it.

One thread calls at a time. Knows the order of steps; the stub knows the responses that are due.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import logging
import os
import queue
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, ModuleType, TracebackType
from typing import Any, ClassVar, NamedTuple

from zmqtriton.sdk.broker import SequenceControls
from zmqtriton.sdk.models import (
    ModelHost,
    PlayedStub,
    find_model_file,
    instance_specs,
    load_config,
    merge_completion,
    pbtxt,
    scan,
    with_group_defaults,
)
from zmqtriton.sdk.process import Gpu, InferenceRequest, InferenceResponse, addons
from zmqtriton.sdk.wire import InvalidArgument, NotFound, arrays, errors, logs, wire
from zmqtriton_extras.authoring.testing.batch import (
    Answer,
    Batch,
    CalledModels,
    OutcomeWithBody,
    PlayedBroker,
    check_names,
    check_tensors,
)


class ModelFiles(NamedTuple):
    """One version of a model, before its code has run."""

    load: wire.LoadModel
    #: The configuration as the files say it.
    config: Any
    config_path: Path | None
    host: ModelHost

    def completed(self, reply: str) -> str:
        """Return the final configuration, given what `auto_complete_config` has returned."""
        return pbtxt.to_json(
            merge_completion(self.config, reply, host=self.host, path=self.config_path)
        )


def read_model(directory: Path, version: int | None) -> ModelFiles:
    """Read a model's directory; without a version, the highest that would be served.

    Raises a ZmqTritonError with the reason that a load would give.
    """
    directory = directory.absolute()
    if not directory.is_dir():
        raise NotFound(f"there is no model directory {directory}; pass another")
    scanned = scan.scan_model(directory, directory.parent)
    if not scanned.versions:
        raise NotFound(_no_version_text(directory))
    host = ModelHost(Gpu.visible())
    config = load_config(scanned.name, directory, scanned.config_path, host=host)
    if config.HasField("ensemble_scheduling"):
        raise InvalidArgument(
            f"model '{scanned.name}' is an ensemble: it has no code; test the models of its "
            "steps, or use zmqtriton.Server"
        )
    if version is None:
        version = max(scan.choose_versions(config, scanned.versions).versions)
    elif version not in scanned.versions:
        raise NotFound(
            f"model '{scanned.name}' has no version {version}; make the directory {version}"
        )
    runtime = find_model_file(config, directory, version)
    first = instance_specs(with_group_defaults(config, host.gpus))[0]
    load = wire.LoadModel(
        first.name,
        scanned.name,
        version,
        first.kind,
        first.device_id,
        directory=str(directory),
        path=str(runtime.file),
        config=pbtxt.to_json(config),
        auto_complete=1,
        backend_settings=json.dumps({}),
        package=runtime.package,
    )
    return ModelFiles(load, config, scanned.config_path, host)


def _no_version_text(directory: Path) -> str:
    text = f"{directory} has no version directory, such as {directory / '1'}"
    models = [each.name for each in scan.scan_repositories([directory]).values() if each.versions]
    if models:
        text += f"; it is a repository of models, name one of them: {', '.join(models)}"
    return text


class ModelImports:
    """The entries of `sys.path` and `sys.modules` that belong to one model."""

    #: The directories of all models that are loaded now.
    _loaded: ClassVar[set[str]] = set()

    def __init__(self, file: str) -> None:
        """Set up for the model in a file `model.py`."""
        directory = os.path.dirname(file)
        self._directories = {directory, os.path.dirname(directory)}
        self._path: list[str] = []
        self._hidden: dict[str, ModuleType] = {}

    def begin(self) -> None:
        """Hide the modules and directories of other models."""
        self._path = sys.path.copy()
        sys.path[:] = [entry for entry in sys.path if entry not in self._loaded]
        self._hidden = {name: sys.modules.pop(name) for name in self._own_names()}
        self._loaded.update(self._directories)
        importlib.invalidate_caches()  # a test may have written the file just now

    def end(self) -> None:
        """Forget the model's modules, and restore the hidden ones."""
        for name in self._own_names():
            del sys.modules[name]
        sys.modules.update(self._hidden)
        sys.path[:] = self._path
        self._loaded.difference_update(self._directories)

    def _own_names(self) -> list[str]:
        """Return the imported modules whose names the model's directories have files for."""
        names = {
            entry.name.removesuffix(".py")
            for directory in self._directories
            for entry in os.scandir(directory)
            if entry.name.endswith(".py") or entry.is_dir()
        }
        return [name for name in sys.modules if name.partition(".")[0] in names]


#: Seconds that a model may take for the next response after execute() has returned.
PATIENCE_S = 60.0
#: Threads of the model are looked after so often while nothing comes.
_LOOK_EVERY_S = 0.02
_log = logging.getLogger("zmqtriton.testing")

Request = InferenceRequest | Mapping[str, Any]
Outputs = Generator[dict[str, Any], None, None]


@contextmanager
def load_model(
    directory: str | os.PathLike[str],
    *,
    version: int | None = None,
    bls: Mapping[str, Answer | LoadedModel] | None = None,
) -> Iterator[LoadedModel]:
    """Load the model of a directory, for a `with` statement; `finalize` is called at its end.

    Without a version, it is the highest that a server would load. `bls` has the models that this
    one calls: functions that take a dict of arrays and return one, or an iterable of dicts for a
    decoupled model, or loaded models.

    Raises a ZmqTritonError for faults of the files, and the errors of the model's own code.
    """
    answers = {
        name: answer._answer_call if isinstance(answer, LoadedModel) else answer
        for name, answer in (bls or {}).items()
    }
    files = read_model(Path(directory), version)
    imports = ModelImports(files.load.path)
    imports.begin()
    called, broker = CalledModels(files.load.model, answers), PlayedBroker()
    stub = PlayedStub(files.load, _tell, broker.take, called.take)
    try:
        with stub.current():
            config = stub.begin(files.completed)
            try:
                yield LoadedModel(stub, json.loads(config), called, broker, files.load.path)
            finally:
                stub.end()
    finally:
        imports.end()


class LoadedModel:
    """An initialized model; `load_model` makes it."""

    def __init__(
        self,
        stub: PlayedStub,
        config: dict[str, Any],
        called: CalledModels,
        broker: PlayedBroker,
        model_file: str,
    ) -> None:
        self.name = stub.instance.model
        self.version = stub.instance.version
        #: The final configuration.
        self.config = config
        self._stub = stub
        self._instance = stub.instance
        self._called = called
        self._broker = broker
        self._model_file = model_file
        self._controls = SequenceControls(
            config.get("sequence_batching") or {}, is_batching=bool(config.get("max_batch_size"))
        )
        self._numbers = itertools.count(1)
        self._next_id = 1

    # ---------------------------------------------------------------- asking

    def infer(self, request: Request | None = None, /, **inputs: Any) -> dict[str, Any]:
        """Return the outputs for one request, as arrays by name.

        Raises the model's error, with its text and the status that a client would get.
        """
        __tracebackhide__ = True  # of pytest: the reader's line is the one that has called this
        [response] = self.execute([inputs if request is None else request])
        if response.error is not None:
            raise response.error
        return dict(response.outputs)

    def stream(self, request: Request | None = None, /, **inputs: Any) -> Outputs:
        """Iterate over the outputs of a model's responses to one request, as they come.

        Closing the iterator cancels the request.
        """
        __tracebackhide__ = True
        for _, response in self._responses([inputs if request is None else request]):
            if response.error is not None:
                raise response.error
            yield dict(response.outputs)

    def call_route(
        self,
        route: str,
        *,
        json: Any = None,
        body: bytes = b"",
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Any:
        """Return the answer of a route of the model's routes.py, such as "POST /ask".

        The route may have a query, and calls this model. Raises NotFound without a routes.py.
        """
        directory = Path(self._model_file).parent
        call: Callable[..., Any] = addons.load_public("testing.call_route")
        return call(
            directory,
            self.config,
            self.infer,
            route,
            json_document=json,
            body=body,
            headers=headers,
        )

    def execute(self, requests: Sequence[Request]) -> list[InferenceResponse]:
        """Return the responses to requests that the model gets as one batch, in their order.

        The error of a request is in its response's `error`.
        """
        if self._instance.is_decoupled:
            raise InvalidArgument(
                f"model '{self.name}' is decoupled: use stream() or execute_streams()"
            )
        return [response for [response] in self.execute_streams(requests)]

    def execute_streams(self, requests: Sequence[Request]) -> list[list[InferenceResponse]]:
        """Return all responses to each request of a batch, once all of them have come."""
        responses: list[list[InferenceResponse]] = [[] for _ in requests]
        for index, response in self._responses(requests):
            responses[index].append(response)
        return responses

    def _answer_call(self, inputs: Mapping[str, Any]) -> Any:
        """Answer a call from another model."""
        return self.stream(inputs) if self._instance.is_decoupled else self.infer(inputs)

    # ------------------------------------------------------------- executing

    def _responses(self, requests: Sequence[Request]) -> Iterator[tuple[int, InferenceResponse]]:
        """Execute a batch; return its responses with the indexes of their requests."""
        rows = [
            request if isinstance(request, InferenceRequest) else InferenceRequest(request)
            for request in requests
        ]
        bodies = [self._body(request) for request in rows]
        sizes = [body.inputs[0].shape[0] if body.inputs else 1 for body in bodies]
        self._check_size(sizes)
        batch = Batch(self._next_id, self._controls, is_iterative=self._instance.is_iterative)
        self._next_id += len(rows)
        for request, body in zip(rows, bodies, strict=True):
            batch.add(request, body)
        self._broker.batches.append(batch)
        try:
            while (answer := self._next(batch)) is not None:
                outcome, data = answer
                index = outcome.id - batch.first_id
                response = self._response(rows[index], answer)
                check_names(self._instance.output_names, self.config)
                if data:
                    outputs = wire.decode_response(data).outputs
                    size = None if self._instance.is_decoupled else sizes[index]
                    check_names([tensor.name for tensor in outputs], self.config)
                    check_tensors(outputs, self.config, size)
                if data or response.error is not None:
                    yield index, response
        finally:
            self._broker.batches.remove(batch)
            for message in batch.end():
                self._stub.take(*message)

    def _next(self, batch: Batch) -> OutcomeWithBody | None:
        """Return the next answer; None after the last one."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            if execution := batch.next_execution(next(self._numbers)):
                self._called.raised = self._instance.raised = None
                self._instance.output_names = frozenset()
                self._stub.take(*execution)
                self._check_test()
            try:
                return batch.answers.get_nowait()
            except queue.Empty:
                if batch.is_answered:
                    return None
            self._wait(batch)
            self._check_test()
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"model '{self.name}' has unanswered requests and has sent nothing "
                    f"for {PATIENCE_S:g} s; each request needs a last response"
                )

    def _wait(self, batch: Batch) -> None:
        """Let threads and coroutines of the model continue."""
        if not self._stub.run_background(_LOOK_EVERY_S) and batch.answers.empty():
            time.sleep(_LOOK_EVERY_S)
            gc.collect()  # a sender that is garbage ends its request

    def _check_test(self) -> None:
        """Raise the test's own error, which is not the model's."""
        if self._called.raised is not None:
            raise self._called.raised
        if isinstance(self._instance.raised, KeyboardInterrupt):
            raise _shown(self._instance.raised)

    # -------------------------------------------------- requests and responses

    def _body(self, request: InferenceRequest) -> wire.RequestBody:
        """Return the body of the request for the stub. Raises InvalidArgument if it is wrong."""
        is_of_sequence = "sequence_batching" in self.config and not self._instance.is_iterative
        if is_of_sequence and not request.correlation_id:
            raise InvalidArgument(
                f"inference request to model '{self.name}' must specify a non-zero or non-empty "
                "correlation ID"
            )
        body = wire.RequestBody(
            request.request_id,
            dict(request.parameters),
            list(request.outputs),
            arrays.to_tensors(request.inputs, self.config),
        )
        signature = self._instance.signature
        assert signature is not None
        signature.check(body)
        return body

    def _check_size(self, sizes: Sequence[int]) -> None:
        max_batch_size, size = int(self.config.get("max_batch_size", 0)), sum(sizes)
        signature = self._instance.signature
        if signature is not None and signature.splits_batches and len(sizes) == 1:
            return
        if max_batch_size and size > max_batch_size:
            raise InvalidArgument(
                f"send fewer than {size} elements at once: max_batch_size of model "
                f"'{self.name}' is {max_batch_size}"
            )

    def _response(self, request: InferenceRequest, answer: OutcomeWithBody) -> InferenceResponse:
        outcome, data = answer
        error = None
        if outcome.code:
            error = errors.from_number(outcome.code, outcome.text)
            raised = self._instance.raised
            error.__cause__ = None if raised is None else _shown(raised)
            # an attribute that tracebacks print from Python 3.11 on
            notes = [f"its code {text}" for text in self._instance.mismatches]
            vars(error)["__notes__"] = notes
        body = wire.decode_response(data) if data else wire.ResponseBody({}, [])
        return InferenceResponse(
            self.name,
            self.version,
            request.request_id,
            arrays.to_arrays(body.outputs),
            body.parameters,
            error,
            final=bool(outcome.flags & wire.FINAL),
        )


def _shown(error: BaseException) -> BaseException:
    """Return the model's exception with a traceback that begins at the model's first frame."""
    return error.with_traceback(_model_frames(error.__traceback__))


def _model_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the model's first frame on."""
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(PlayedStub.CODE):
        frames = frames.tb_next
    return frames


def _tell(message: Any) -> None:
    """Process a message of the instance to its supervisor: log lines go to Python's log."""
    if type(message) is wire.LogLine:
        place = message.file, message.line
        _log.log(logs.LEVEL_NUMBERS[message.level], "%s:%d %s", *place, message.text)
