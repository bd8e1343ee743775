"""The instance that this process runs, for functions of pb_utils without an object.

`current` is set once, by the loop, before the model is imported. It is None where a test imports
pb_utils without a server. If several instances share a process, each has its own threads.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from typing import Any, Callable, Mapping, Sequence

from zmqtriton_floor import logs, prctl, stub_mark, wire
from zmqtriton_floor.datatypes import BY_NUMBER
from zmqtriton_floor.reshaping import Reshaping
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_floor.signature import Signature, config_parameter, takes_gpu
from zmqtriton_stub.api import callers
from zmqtriton_stub.api.errors import TritonModelException, clip
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.broker.bls_client import BlsClient
from zmqtriton_stub.broker.model_metrics import ModelMetrics
from zmqtriton_stub.execution.implicit_state import States
from zmqtriton_stub.forks.fork_client import ForkClient
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.tracing import StubTracing

#: The limit for the batches of one instance, and the model parameter that sets their number.
_INFLIGHT_LIMIT = 1024
_MAX_INFLIGHT = "MAX_INFLIGHT"
#: Name of the model parameter that lets calls of other models go on when the requests that they are
#: made for have ended.
_DETACHED_CALLS = "DETACHED_CALLS"


def _max_inflight(parameters: dict[str, Any]) -> int:
    if _MAX_INFLIGHT not in parameters:
        return 0
    text = str((parameters[_MAX_INFLIGHT] or {}).get("string_value", ""))
    if not text.isdecimal() or not 1 <= int(text) <= _INFLIGHT_LIMIT:
        raise ValueError(
            f"parameter {_MAX_INFLIGHT} must be a number from 1 to {_INFLIGHT_LIMIT}, got '{text}'"
        )
    return int(text)


class StubInstance:
    """One model instance and the way to its supervisor."""

    is_decoupled = False
    #: Requests may be executed several times, one step each.
    is_iterative = False
    #: Maximum number of batches that an async execute() gets at once; 0 if the model does not
    #: set it.
    max_inflight = 0
    #: Calls of other models go on when the requests that they are made for have ended, as in
    #: Triton.
    has_detached_calls = False
    #: Inputs of the model may be in memory of a GPU.
    takes_gpu = False

    def __init__(
        self,
        load: wire.LoadModel,
        tell: Callable[[Any], None],
        memory: TensorMemory | None = None,
        measures: ModelMetrics | None = None,
        other_threads: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        """Set up; `tell` sends the supervisor a message, from any thread.

        Without memory all tensors travel in messages. `measures` may have metrics that the model
        made before. `other_threads` returns the numbers of other instances' threads in this
        process.
        """
        self.name = load.instance
        self.model = load.model
        self.version = load.version
        #: Directory with the files of this version; the code may be elsewhere.
        self.version_directory = os.path.join(load.directory, str(load.version))
        #: Calls other models; None while that is not allowed, that is outside of execute().
        self.asker: BlsClient | None = None
        self.memory = memory
        self.other_threads = other_threads
        #: The signature of requests; None until the configuration is final.
        self.signature: Signature | None = None
        #: Number of control tensors that the broker adds to each request, after its own inputs.
        self.controls = 0
        #: The names of its outputs; empty until the configuration is final.
        self.outputs: Mapping[str, int] = {}
        #: The datatypes of all that a response may have: outputs, and states of its sequence.
        self.sendable: Mapping[str, int] = {}
        #: The shapes of outputs, until the first response was compared with them; -1 is any size.
        self.declared_shapes: Mapping[str, Sequence[int]] = {}
        #: The differences between its code and its configuration that were seen.
        self.mismatches: set[str] = set()
        #: Makes a control call with JSON arguments and waits; None while that is not allowed.
        self.call: Callable[[str, str], Any] | None = None
        #: Every request that has no final outcome yet, by peer and id.
        self.pending: dict[tuple[int, int], Any] = {}
        #: The way to the instance if this process is a fork of it; else None.
        self.line: ForkClient | None = None
        #: The server's runtime directory, where the instance stages files for loads, and the serial
        #: number that their directories' names begin with.
        self.runtime = ""
        self.serial = 0
        #: Metrics of the model, and their families.
        self.measures = measures or ModelMetrics()
        self.measures.report_to(lambda text: self.log("E", text))
        #: None if the model sees all tensors as clients do.
        self.reshaping: Reshaping | None = None
        #: The states of sequences; None if the model keeps them itself.
        self.states: States | None = None
        #: Reports traced requests; none until there is a server.
        self.tracing = StubTracing("", has_contexts=False)
        #: The command line's settings for its backend.
        self.backend_settings: dict[str, str] = json.loads(load.backend_settings)
        self.directories = load.directory, os.path.dirname(load.path)
        #: Sends the supervisor a message; from any thread.
        self.tell = tell

    def begin(self, bootstrap: wire.Bootstrap, settings: StubSettings) -> None:
        """Take runtime directory, serial number and mode of traces from the server's Bootstrap."""
        self.runtime = bootstrap.directory
        self.serial = bootstrap.serial
        self.tracing = StubTracing(
            bootstrap.directory, has_contexts=settings.trace_mode == "opentelemetry"
        )

    def configure(self, config: str) -> None:
        """Apply the final configuration."""
        document = json.loads(config)
        self.signature = Signature(document)
        self.outputs = self.signature.outputs
        sequences = document.get("sequence_batching") or {}
        self.controls = sum(
            len(entry.get("control", [])) for entry in sequences.get("control_input", [])
        )
        self.reshaping = Reshaping(document) or None
        self.states = States(document, self.directories[0]) or None
        self.sendable = {**self.outputs, **(self.states.outputs if self.states else {})}
        self.declared_shapes = _declared_shapes(document)
        self.is_decoupled = self.signature.is_decoupled
        self.is_iterative = bool(sequences.get("iterative_sequence"))
        self.max_inflight = _max_inflight(document.get("parameters") or {})
        self.has_detached_calls = config_parameter(document, _DETACHED_CALLS) == "yes"
        self.takes_gpu = takes_gpu(document)

    def request_ids(self) -> list[str]:
        """Return the clients' ids of requests without a final outcome."""
        return [one.request_id for one in [*self.pending.values()]]

    def become_fork(self, line: ForkClient, asker: BlsClient) -> None:
        """Make this the instance of a fork: all messages and calls go over its line."""
        self.line, self.asker = line, asker
        # memory that others read is the instance's: here tensors travel in messages
        self.memory = None
        self.call = line.call
        self.tell = line.tell

    def allow(
        self, asker: BlsClient | None = None, call: Callable[[str, str], Any] | None = None
    ) -> None:
        """Let the model call and control other models from now on; or no longer."""
        self.asker, self.call = asker, call

    def failure(self, text: str) -> str:
        """Return Triton's text for a batch that failed."""
        return f"Failed to process the request(s) for model '{self.name}', message: {text}"

    def report_failure(self, text: str, error: BaseException | None = None) -> str:
        """Log the failure of a batch, with or without an exception; return Triton's text for it."""
        words = self.failure(text)
        self.log("E", words, depth=2)
        return words

    def tell_unknown_input(self, name: str) -> None:
        """Report once that the model has asked for an input that it can never get."""
        if self.signature is not None and name not in self.signature.inputs:
            names = ", ".join(self.signature.inputs) or "none"
            self._tell_mismatch(
                f"asked for '{name}', which its configuration does not name; it names {names}"
            )

    def check_outputs(self, response: InferenceResponse) -> None:
        """Report once an output of a wrong type, or one with a name in the place of a missing one.

        The first response is also compared with the declared shapes.
        """
        if self.declared_shapes:
            self._check_shapes(response)
        types = {tensor._name: tensor._datatype for tensor in response._output_tensors}
        for name, number in types.items():
            if name in self.sendable and number != self.sendable[name]:
                sent, declared = BY_NUMBER[number].name, BY_NUMBER[self.sendable[name]].name
                self._tell_mismatch(
                    f"sent {sent} for '{name}', which its configuration declares as {declared}"
                )
            elif name not in self.sendable and not self.outputs.keys() <= types.keys():
                self._tell_mismatch(
                    f"sent '{name}', which its configuration does not name; it names "
                    f"{', '.join(self.outputs)}"
                )

    def _check_shapes(self, response: InferenceResponse) -> None:
        """Report outputs in the first response whose shapes differ from the configuration."""
        declared_shapes, self.declared_shapes = self.declared_shapes, {}
        for tensor in response._output_tensors:
            declared, shape = declared_shapes.get(tensor._name), tensor._shape
            if declared is not None and (
                len(declared) != len(shape)
                or any(size not in (-1, sent) for size, sent in zip(declared, shape))
            ):
                self._tell_mismatch(
                    f"sent shape {[*shape]} for '{tensor._name}', which its configuration declares "
                    f"as {[*declared]}"
                )

    def _tell_mismatch(self, text: str) -> None:
        if text not in self.mismatches and len(self.mismatches) < wire.MAX_MISMATCHES:
            self.mismatches.add(text)
            self.log("W", f"model '{self.model}' {text}", depth=3)
            self.tell(wire.Mismatch(text))

    def log(self, level: str, text: str, depth: int = 1) -> None:
        """Log a line, if its level is on, with the place of the caller `depth` frames up."""
        if not log_options.has(level):
            return
        frame = sys._getframe(depth)
        file = os.path.basename(frame.f_code.co_filename)
        about = logs.name_requests(callers.request_ids())
        place = clip(file)[:1024], frame.f_lineno
        self.tell(wire.LogLine(level, *place, clip(about + text), callers.traceparents()))


current: StubInstance | None = None


class _OfThread(threading.local):
    instance: StubInstance | None = None


_of_thread = _OfThread()
#: True in a process that the model has forked: it is not the instance, and has only its `line`.
is_forked = False
#: Functions that close a fork's copies of the instance's connections.
on_fork: list[Callable[[], None]] = []
#: Functions that read the supervisor's messages for the instances of this process; from any thread.
receivers: list[Callable[[], None]] = []
#: The lines that the server logs at the moment.
log_options = logs.LogOptions()


def here() -> StubInstance | None:
    """Return the instance that this thread belongs to; None without a server."""
    return _of_thread.instance or current


def runs_in_parallel() -> bool:
    """Return whether threads run in parallel: in a free-threaded Python without a global lock."""
    return not getattr(sys, "_is_gil_enabled", lambda: True)()


def take_thread(instance: StubInstance | None) -> None:
    """Bind the calling thread to one of several instances of this process."""
    _of_thread.instance = instance


def become_forked() -> None:
    """Mark this process as a fork of the model, and close its copies of the connections."""
    global is_forked
    is_forked = True
    for abandon in on_fork:
        abandon()


def receive() -> None:
    """Read the supervisor's messages, even while the instances are busy."""
    for receive_own in list(receivers):
        receive_own()


def end_forked() -> None:
    """End the process of a fork that returns from the model's code.

    Otherwise there would be two stubs on one connection. An error is printed like the model's own.
    """
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error, SystemExit):
        traceback.print_exc()
    prctl.flush_output()
    os._exit(0 if error is None else 1)


def check_is_no_program() -> None:
    """Raise in a program that a model has started, which is neither the instance nor its fork."""
    if here() is None and stub_mark.VARIABLE in os.environ:
        raise TritonModelException(
            "this process was started by a model, by multiprocessing's spawn or forkserver "
            "perhaps (since Python 3.14 the default), and has no connection to the server: use "
            "multiprocessing's fork, or do this in the model's own process"
        )


def refusal(doing: str, text: str) -> TritonModelException:
    """Return Triton's error for a call that the server refuses a model."""
    of = here()
    name = "" if of is None else of.name
    return TritonModelException(
        f"{doing}: Failed to process the request for model '{name}', message: {text}"
    )


def _declared_shapes(document: dict[str, Any]) -> dict[str, list[int]]:
    """Return the declared shapes of a model's own outputs, with the batch dimension."""
    batch = [-1] if int(document.get("max_batch_size", 0)) else []
    if document.get("backend") not in (None, "", "python"):
        return {}  # a framework may do as it does in Triton: forests declare [1] and send none
    return {
        output["name"]: [*batch, *map(int, output.get("dims") or ())]
        for output in document.get("output") or ()
        if output.get("dims") and not output.get("reshape")
    }
