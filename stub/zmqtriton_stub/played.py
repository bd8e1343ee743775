"""A stub in its caller's process; the caller acts as its supervisor and its broker.

The model is imported, and the core is the one of a server's stub. Instead of using sockets, each
message that it sends calls a function, which returns the next messages.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Any, Callable, FrozenSet, Iterator

from zmqtriton_floor import wire
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_stub import instance as this_process
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.broker.line import Answer, BrokerLine, PlayedDealer
from zmqtriton_stub.core import StubCore
from zmqtriton_stub.execution.warmup import Warmup
from zmqtriton_stub.model import PythonModel, import_class
from zmqtriton_stub.watch import Watch


class PlayedStub:
    """One instance, from the import of its model to its end."""

    #: The directory of the stub's code, with a slash.
    CODE = os.path.join(os.path.dirname(__file__), "")

    def __init__(
        self,
        load: wire.LoadModel,
        tell: Callable[[Any], None],
        answer_work: Answer,
        answer_call: Answer,
    ) -> None:
        """Set up; `tell` gets messages for the supervisor, and `answer_work` those for the broker.

        `answer_call` gets calls of other models.
        """
        self._load = load
        self.instance = _PlayedInstance(load, tell)
        self._watch = watch = Watch()
        self._work = work = PlayedDealer(answer_work)
        calls = PlayedDealer(answer_call)
        self._lines = (
            BrokerLine(watch.loop, lambda _: work),
            BrokerLine(watch.replies, lambda _: calls),
        )

    @contextmanager
    def current(self) -> Iterator[None]:
        """Let functions of `pb_utils` use this instance; several models may be loaded."""
        outer, this_process.current = this_process.current, self.instance
        try:
            yield
        finally:
            this_process.current = outer

    def begin(self, completed: Callable[[str], str]) -> str:
        """Import, complete and initialize the model. Raises the exceptions of its code.

        Call this within current(). `completed` gets the configuration from `auto_complete_config`,
        and returns the final one, which this also returns.
        """
        self._model = model = PythonModel(self._load, import_class(self._load), self._watch)
        config = completed(model.complete())
        self.instance.configure(config)
        model.initialize(config, self.instance)
        self._core = core = StubCore(
            self.instance,
            model,
            self._lines,
            self._watch,
            wire.Bootstrap(0, bytes(16), "", "", 1, encode(StubSettings())),
            progress=ProgressView(-1),
            warmup=Warmup({}, ""),
        )
        core.connect()
        self.instance.allow(core.asker)
        return config

    def take(self, message: Any, *bodies: bytes) -> None:
        """Take a message of the broker, and execute a batch in it."""
        self._work.say(message, *bodies)
        with self.current():
            link = self._core.link
            link.turn()
            while link.batches:
                self._core.executions.begin(link.batches.popleft())
                self._core.advance()

    def run_background(self, max_s: float) -> bool:
        """Run coroutines of the model for `max_s` seconds; False if it has no work for them."""
        model = self._model
        if model.event_loop is None or not model.has_background():
            return False
        with self.current():
            model.run_background(max_s)
            self._core.advance()
        return True

    def end(self) -> None:
        """Finalize the model, within current()."""
        self._core.asker.close()
        self.instance.allow()
        self._model.finalize()
        self._watch.close()


class _PlayedInstance(this_process.StubInstance):
    """An instance that keeps the names of all outputs, and raised exceptions."""

    #: The exception of the model's last execution that has failed.
    raised: BaseException | None = None
    #: Names of outputs that the model has made, if some of them are not declared.
    output_names: FrozenSet[str] = frozenset()

    def check_outputs(self, response: InferenceResponse) -> None:
        self.output_names |= {tensor._name for tensor in response._output_tensors}
        super().check_outputs(response)

    def report_failure(self, text: str, error: BaseException | None = None) -> str:
        self.raised = error
        return super().report_failure(text, error)
