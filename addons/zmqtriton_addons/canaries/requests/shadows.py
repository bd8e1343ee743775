"""Copies of requests to a canary, whose answers are compared with the stable version's.

A copy is a request of its own, sent after the first; nobody waits for it, and its client never
hears of it. What copies hold is bounded: beyond that they are skipped. What came of them is told to
the supervisor from time to time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Protocol

from zmqtriton_addons.canaries.requests.comparing import find_difference
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.gateway import PendingRequest, Sender
from zmqtriton_frontends.inference import Canary, CheckedRequest, Copy, RegionContents

VERB = "canary.compared"
#: The result of a copy that is not sent, or whose answer is not compared.
SKIPPED = "skipped"
#: How many copies are under way at most, and what they and their answers hold.
MAX_COPIES, MAX_BYTES = 32, 64 << 20
_REPORT_AFTER_S = 0.5
_MAX_DIFFERENCES = 5


class CopySender(Sender, Protocol):
    """The gateway, as far as copies need it."""

    def call(self, verb: str, arguments: dict[str, Any], /) -> Awaitable[Any]:
        """Make a control call."""


class Shadows:
    def __init__(self, gateway: CopySender) -> None:
        self._gateway = gateway
        self.copies = self._bytes = 0
        #: What came of copies and was not told, by model and version.
        self._results: dict[tuple[str, int], _Results] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_report_due = False
        #: One after the other: of those that would hold up the loop.
        self._comparing = asyncio.Lock()

    def copy(self, request: CheckedRequest, canary: Canary) -> Copy:
        """Return a copy of a request to the stable version."""
        return _Copy(self, self._gateway, request, canary)

    # ------------------------------------------------------------- for copies

    def reserve(self, size: int) -> bool:
        """Reserve so many bytes; False if copies hold too much already."""
        if self._bytes + size > MAX_BYTES:
            return False
        self._bytes += size
        return True

    def release(self, size: int) -> None:
        self._bytes -= size

    def run(self, awaited: Any) -> None:
        task = asyncio.get_running_loop().create_task(awaited)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def find_difference(
        self, expected: ResponseBody, actual: ResponseBody, tolerance: float
    ) -> str:
        """Compare in a thread, while the loop goes on."""
        async with self._comparing:
            return await asyncio.to_thread(find_difference, expected, actual, tolerance)

    def count(self, canary: Canary, result: str, text: str = "") -> None:
        """Count the outcome of a copy."""
        key = canary.version.name, canary.version.version
        results = self._results.setdefault(key, _Results())
        results.counts[result] += 1
        if text:
            results.differences.append(text)
        if not self._is_report_due:
            self._is_report_due = True
            asyncio.get_running_loop().call_later(_REPORT_AFTER_S, lambda: self.run(self._report()))

    async def _report(self) -> None:
        results, self._results, self._is_report_due = self._results, {}, False
        for (model, version), result in results.items():
            document = {**result.counts, "differences": list(result.differences)}
            with suppress(ZmqTritonError):  # the server ends
                await self._gateway.call(VERB, {"model": model, "version": version, **document})


class _Results:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.differences: deque[str] = deque(maxlen=_MAX_DIFFERENCES)


class _Copy(PendingRequest):
    """One copy, and what it is compared with."""

    __slots__ = (
        "_answer",
        "_canary",
        "_held",
        "_is_over",
        "_label",
        "_request",
        "_shadows",
        "_stable",
    )

    def __init__(
        self, shadows: Shadows, gateway: CopySender, request: CheckedRequest, canary: Canary
    ) -> None:
        super().__init__(gateway)
        self._shadows = shadows
        self._canary = canary
        self._request: CheckedRequest | None = request
        self._label = request.body.request_id
        self._held = 0
        self._is_over = False
        self._stable: ResponseBody | None = None
        self._answer: ResponseBody | None = None

    def send(self) -> None:
        """Send it, unless too much is under way."""
        request, self._request = self._request, None
        if request is None or self._is_over:
            return
        self._shadows.copies += 1
        size = sum(len(tensor.data) for tensor in request.body.inputs)
        # its client may change these once it has its answer
        is_lent = any(type(tensor.data) is RegionContents for tensor in request.body.inputs)
        if is_lent or self._shadows.copies > MAX_COPIES or not self._hold(size):
            self._end(SKIPPED)
            return
        try:
            model = self._canary.version
            # the copy is ours, and no request of the client's token
            options = request.options._replace(flags=0, token=0)
            checked = CheckedRequest(
                model, request.body, model.signature.check(request.body), options
            )
            own_id = self._gateway.begin(checked, self)
        except ZmqTritonError as error:
            self._end("failed", error.text)
            return
        if own_id is None:
            self._end(SKIPPED)
        else:
            self._id = own_id

    def _hold(self, size: int) -> bool:
        is_held = self._shadows.reserve(size)
        self._held += size if is_held else 0
        return is_held

    def take_stable(self, response: ResponseBody) -> None:
        """Take the answer that the client gets."""
        if self._is_over:
            return
        if self._hold(_size(response)):
            self._stable = response
            self._compare()
        else:
            self.drop()

    def drop(self) -> None:
        """Cancel it: there is nothing to compare with."""
        if self._is_over:
            return
        if self._request is not None:
            self._is_over = True  # it was never sent
            return
        self.cancel()
        self._end(SKIPPED)

    def skip(self) -> None:
        """Take no copy: a response in parts is not compared."""
        self._is_over = True
        self._shadows.count(self._canary, SKIPPED)

    # ------------------------------------------------------------- comparing

    def _respond(self, response: ResponseBody) -> None:
        if self._is_over:
            return
        if self._hold(_size(response)):
            self._answer = response
            self._compare()
        else:
            self._end(SKIPPED)

    def _refuse(self, error: Exception) -> None:
        self._end("failed", str(error))

    def _compare(self) -> None:
        stable, answer = self._stable, self._answer
        if stable is None or answer is None:
            return
        if _size(stable) > INLINE_BYTES:
            self._shadows.run(self._compare_aside(stable, answer))
        else:
            self._judge(find_difference(stable, answer, self._tolerance))

    async def _compare_aside(self, stable: ResponseBody, answer: ResponseBody) -> None:
        self._judge(await self._shadows.find_difference(stable, answer, self._tolerance))

    @property
    def _tolerance(self) -> float:
        """Return by what numbers may differ."""
        return float(self._canary.split.tolerance)

    def _judge(self, difference: str) -> None:
        self._end("different" if difference else "equal", difference)

    def _end(self, result: str, text: str = "") -> None:
        if self._is_over:
            return
        self._is_over = True
        self._stable = self._answer = None
        self._shadows.copies -= 1
        self._shadows.release(self._held)
        label = f"request '{self._label}': " if self._label and text else ""
        self._shadows.count(self._canary, result, label + text)


def _size(response: ResponseBody) -> int:
    return sum(len(memoryview(tensor.data).cast("B")) for tensor in response.outputs)
