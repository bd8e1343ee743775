"""A server that is steered: calls to it, and what its files and its operators ask of it.

What was asked is known here and checked; which calls are made is of `operations.py`.
"""

from __future__ import annotations

import http.client
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.days.judging import Timeline
from tests.faults.days.nemesis import Nemesis
from tests.faults.stamps import add_version
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton.control_client import NoServerError, ServerSelector
from zmqtriton_floor.errors import ZmqTritonError

#: The model whose state answers tell, and one that comes and goes.
STAMPED, GUEST = "journal", "visitor"
#: Models whose instances are forks of a template, and threads of one process.
FORKED, THREADED = "forked", "threaded"
#: The model with many streams in each instance, which has room for some of them.
MANY = "many"
#: No call and no state takes so long, on whatever machine.
BOUND_S = 300.0
#: How often a call is made again, once nothing is being done to the server.
_TIMES = 3
_PATHS = {
    "load": "/v2/repository/models/{model}/load",
    "unload": "/v2/repository/models/{model}/unload",
    "scale": "/v2/models/{model}/scale",
    "restart": "/v2/models/{model}/restart",
    "drain": "/v2/models/{model}/drain",
    "undrain": "/v2/models/{model}/undrain",
    "canary.start": "/v2/models/{model}/canary",
    "canary.promote": "/v2/models/{model}/canary/promote",
    "canary.abort": "/v2/models/{model}/canary/abort",
}


class Answer(NamedTuple):
    #: "", or the reason of a refusal, or of a lost connection.
    reason: str
    result: Any = None


class World:
    def __init__(self, server: Server, nemesis: Nemesis, counts: dict[str, int], mode: str) -> None:
        self.server = server
        self.nemesis = nemesis
        self.mode = mode
        self.stamps = Timeline(1000)
        self.is_present = Timeline(True)
        #: The instances that each model is to have, and those that its files say.
        self.counts = dict(counts)
        self.configured = dict(counts)
        #: The version of STAMPED that serves.
        self.version = 1
        self._last_stamp = 1000
        self.calls: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.broken: list[str] = []
        #: When, and what was done.
        self.events: list[tuple[int, str]] = []
        #: Set while nothing is being done to the server.
        self.calm = threading.Event()
        #: How often the server was started.
        self.starts = 1
        nemesis.on_death = self._on_death
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        self.events.append((time.monotonic_ns(), text))

    def break_promise(self, text: str) -> None:
        self.note(f"BROKEN: {text}")
        with self._lock:
            self.broken.append(f"{time.monotonic():.3f} {text}")

    # ------------------------------------------------------------------- calls

    def ask(self, verb: str, arguments: dict[str, Any], *, by_http: bool) -> Answer:
        """Call once, as a client or as an operator."""
        self.calls[verb] += 1
        self.note(f"{verb} {arguments} over {'HTTP' if by_http else 'the control socket'}")
        begun = time.monotonic()
        try:
            reply = self._ask_http(verb, arguments) if by_http else self._operate(verb, arguments)
        except (NoServerError, TimeoutError) as error:
            reply = Answer(f"{error!r}")
            if time.monotonic() - begun >= BOUND_S:
                self.break_promise(f"{verb} {arguments} has no answer")
        except (OSError, http.client.HTTPException) as error:
            reply = Answer(f"connection: {error!r}")
        except ZmqTritonError as error:
            reply = Answer(error.text or "refused")
        self.note(f"{verb} {arguments.get('model', '')}: {reply.reason or 'done'}")
        if reply.reason:
            self.refusals[f"{verb}: {reply.reason[:160]}"] += 1
        return reply

    def _ask_http(self, verb: str, arguments: dict[str, Any]) -> Answer:
        document = dict(arguments)
        path = _PATHS[verb].format(model=document.pop("model"))
        status, content = self.server.request_json(path, document, within_s=BOUND_S)
        return Answer("", content) if status == 200 else Answer(f"{status} {content['error']}")

    def _operate(self, verb: str, arguments: dict[str, Any]) -> Answer:
        with ServerSelector(str(self.server.directory / "run")).connect() as client:
            return Answer("", client.call(verb, arguments, BOUND_S))

    def look(self, path: str, document: Any = None) -> tuple[int, Any]:
        """Return status and document of an answer; 0 and an empty one if nobody says."""
        try:
            return self.server.request_json(path, document)
        except OSError:
            return 0, {}

    def insist(
        self,
        verb: str,
        chance: random.Random,
        arguments: dict[str, Any] | Callable[[], dict[str, Any]],
        is_done: Callable[[str], bool] = lambda _: False,
    ) -> Any:
        """Call until it succeeds: at first at any time, then while nothing else is done.

        is_done gets the reason of a refusal, and says that it is because the call has succeeded.
        """
        choose = arguments if callable(arguments) else lambda: arguments
        may_be_http = self.mode == "explicit" and verb in _PATHS and "model" in choose()
        answer = self.ask(verb, choose(), by_http=may_be_http and chance.random() < 0.6)
        for turn in range(_TIMES):
            if not answer.reason or is_done(answer.reason):
                return answer.result
            if not self.calm.wait(4 * BOUND_S):
                self.break_promise("the server does not become whole")
                return None
            time.sleep(turn)
            answer = self.ask(verb, choose(), by_http=False)
        if answer.reason and not is_done(answer.reason):
            self.break_promise(f"{verb} {choose()} is refused without a fault: {answer.reason}")
        return answer.result

    # ------------------------------------------------------------------- files

    def next_stamp(self) -> int:
        """Allow and return another stamp; as many digits as before."""
        with self._lock:
            self._last_stamp += 1
            self.stamps.widen(self._last_stamp)
            return self._last_stamp

    def directory(self, model: str) -> Path:
        return self.server.repository / model

    def write(self, path: Path, text: str) -> None:
        """Replace a file in one step, as editors do: no poll reads half of it."""
        new = self.server.directory / f"new-{threading.get_ident()}"
        new.write_text(text, "utf-8")
        new.rename(path)

    def add_version(self, stamp: int) -> int:
        """Copy the version that serves to the next number, with another stamp."""
        return add_version(self.server, model=STAMPED, source=self.version, stamp=stamp)

    def remove_version(self, number: int) -> None:
        gone = self.server.directory / f"gone-{time.monotonic_ns()}"
        (self.directory(STAMPED) / str(number)).rename(gone)
        shutil.rmtree(gone)

    # ------------------------------------------------------------------- state

    def has_count(self, model: str) -> bool:
        return len(self.server.stub_pids(model)) == (1 if model == THREADED else self.counts[model])

    def instance_names(self, model: str) -> list[str]:
        """Return the names of a model's instances, in order; none if nobody says."""
        with suppress(NoServerError, ZmqTritonError, OSError):
            rows = self._operate("status", {}).result["processes"]
            return sorted(
                r["instance"] for r in rows if r["role"] == "stub" and r["model"] == model
            )
        return []

    def await_state(self, predicate: Callable[[], bool], text: str) -> bool:
        """Wait for a state that must come; note it if it does not."""
        try:
            eventually(predicate, BOUND_S, text)
        except AssertionError:
            self.break_promise(f"not so: {text}")
            return False
        return True

    def check(self) -> None:
        """Check that the server is as it was asked to be; nothing is being done to it."""
        self.await_state(self.server.is_ready, "the server is ready")
        for model, count in self.counts.items():
            if not (model == GUEST and self.is_present.newest == {False}):
                text = f"{count} processes of {model} ({self.server.stub_pids(model)})"
                self.await_state(lambda m=model: self.has_count(m), text)  # type: ignore[misc]
                self.await_state(lambda m=model: self._says_count(m), f"so says {model}")  # type: ignore[misc]
        for name, values in (("stamps", self.stamps), ("presence", self.is_present)):
            if len(values.newest) != 1:
                self.break_promise(f"{name} are not settled: {values.newest}")

    def _says_count(self, model: str) -> bool:
        with suppress(NoServerError, ZmqTritonError):
            versions = self._operate("scale", {"model": model}).result["versions"]
            count = self.counts[model]
            return [(v["instances"], v["ready"]) for v in versions.values()] == [(count, count)]
        return False

    def _on_death(self) -> None:
        """Forget what only the supervisor knew that is dead: the next one reads files."""
        self.starts += 1
        self.counts = dict(self.configured)
        self.is_present.widen(True)
