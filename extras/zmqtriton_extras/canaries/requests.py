"""Chooses the requests that a canary gets, and the requests that are copied to it.

It has steps only while requests to some model are divided.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import suppress
from typing import Any

from zmqtriton.sdk.frontend import (
    Ask,
    CheckedRequest,
    Content,
    Gateway,
    ModelVersion,
    Pending,
    Sink,
    Tasks,
    admission,
)
from zmqtriton.sdk.wire import INLINE_BYTES, ZmqTritonError, datatypes, routing, wire

VERB = "canary.compared"
#: The result of a copy that is not sent, or whose answer is not compared.
SKIPPED = "skipped"
#: Maximum number of copies under way, and maximum bytes of them and their responses.
MAX_COPIES, MAX_BYTES = 32, 64 << 20
_REPORT_AFTER_S = 0.5
_MAX_DIFFERENCES = 5
_BOOL = 1


def find_difference(
    expected: wire.ResponseBody, actual: wire.ResponseBody, tolerance: float
) -> str:
    """Return the difference of two responses to the same request, tensor by tensor.

    Numbers may differ by a tolerance, which is absolute near 0 and relative elsewhere; everything
    else is equal or different.
    """
    by_name = {tensor.name: tensor for tensor in actual.outputs}
    for tensor in expected.outputs:
        other = by_name.get(tensor.name)
        if other is None:
            return f"output '{tensor.name}' is missing"
        difference = _difference_of(tensor, other, tolerance)
        if difference:
            return f"output '{tensor.name}' {difference}"
    return ""


def _difference_of(tensor: wire.Tensor, other: wire.Tensor, tolerance: float) -> str:
    _, datatype, shape, data = tensor
    if other.datatype != datatype:
        return f"is {_name(other.datatype)}, not {_name(datatype)}"
    if list(other.shape) != list(shape):
        return f"has the shape {list(other.shape)}, not {list(shape)}"
    if memoryview(data).cast("B") == memoryview(other.data).cast("B"):
        return ""
    if datatype in (datatypes.BYTES, _BOOL) or not datatypes.BY_NUMBER[datatype].numpy_name:
        return "has other content"
    return _numeric_difference(tensor, other, tolerance)


def _numeric_difference(tensor: wire.Tensor, other: wire.Tensor, tolerance: float) -> str:
    # only now: few processes compare, and each would take a fifth of a second longer to start
    import numpy as np

    from zmqtriton.sdk.wire import tensors

    try:
        numbers, others = (
            tensors.to_numpy(each.datatype, each.shape, each.data).astype(np.float64)
            for each in (tensor, other)
        )
    except ValueError:
        return "has other data than its shape needs"
    with np.errstate(invalid="ignore", over="ignore"):
        is_close = np.isclose(others, numbers, rtol=tolerance, atol=tolerance, equal_nan=True)
        count = int(is_close.size - np.count_nonzero(is_close))
        if not count:
            return ""
        greatest = np.nanmax(np.abs(others - numbers)[~is_close], initial=0.0)
    return f"differs in {count} of {is_close.size} elements, by up to {greatest:g}"


def _name(datatype: int) -> str:
    entry = datatypes.BY_NUMBER.get(datatype)
    return entry.name if entry is not None else str(datatype)


class Shadows:
    """Copies of requests to a canary; its responses are compared with the stable version's.

    A copy is a request of its own, sent after the first; its client does not wait for it, and
    never gets its response. The memory of copies is bounded: beyond the limit they are skipped.
    Their results are sent to the supervisor from time to time.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.copies = self._bytes = 0
        #: Results of copies that are not reported yet, by model and version.
        self._results: dict[tuple[str, int], _Results] = {}
        self._tasks = Tasks()
        self._is_report_due = False
        #: Lock of large comparisons: they run in a thread, one after the other.
        self._comparing = asyncio.Lock()

    def copy(self, request: CheckedRequest) -> admission.Copy:
        """Return a copy of a request, whose original the stable version gets."""
        return _Copy(self, self._gateway, request)

    # ------------------------------------------------------------- for copies

    def reserve(self, size: int) -> bool:
        """Reserve the number of bytes; False if copies hold too much already."""
        if self._bytes + size > MAX_BYTES:
            return False
        self._bytes += size
        return True

    def release(self, size: int) -> None:
        self._bytes -= size

    def run(self, awaited: Any) -> None:
        self._tasks.begin(awaited)

    async def find_difference(
        self, expected: wire.ResponseBody, actual: wire.ResponseBody, tolerance: float
    ) -> str:
        """Compare in a thread, while the loop continues."""
        async with self._comparing:
            return await asyncio.to_thread(find_difference, expected, actual, tolerance)

    def count(self, canary: ModelVersion, result: str, text: str = "") -> None:
        """Count the outcome of a copy."""
        key = canary.name, canary.version
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


class _Copy(Sink):
    """One copy, and what it is compared with."""

    __slots__ = (
        "_answer",
        "_canary",
        "_gateway",
        "_held",
        "_is_over",
        "_label",
        "_pending",
        "_request",
        "_shadows",
        "_stable",
    )

    sending = ""

    def __init__(self, shadows: Shadows, gateway: Gateway, request: CheckedRequest) -> None:
        assert request.model.trial is not None
        self._gateway = gateway
        self._pending = Pending(gateway, self)
        self._shadows = shadows
        self._canary = request.model.trial
        self._request: CheckedRequest | None = request
        self._label = request.body.request_id
        self._held = 0
        self._is_over = False
        self._stable: wire.ResponseBody | None = None
        self._answer: wire.ResponseBody | None = None

    def send(self) -> None:
        """Send the copy, unless there are too many copies, or they hold too much memory."""
        request, self._request = self._request, None
        if request is None or self._is_over:
            return
        self._shadows.copies += 1
        size = sum(len(tensor.data) for tensor in request.body.inputs)
        # its client may change these once it has its answer
        is_lent = self._gateway.payload.is_lent
        has_lent = any(is_lent(tensor.data) for tensor in request.body.inputs)
        if has_lent or self._shadows.copies > MAX_COPIES or not self._hold(size):
            self._end(SKIPPED)
            return
        try:
            model = self._canary.version
            # the copy is ours, and no request of the client's token
            options = request.options._replace(flags=0, token=0)
            checked = CheckedRequest(
                model,
                request.body,
                model.signature.check(request.body, admission.count_none),
                options,
            )
            own_id = self._gateway.begin(checked, self._pending)
        except ZmqTritonError as error:
            self._end("failed", error.text)
            return
        if own_id is None:
            self._end(SKIPPED)
        else:
            self._pending.id = own_id

    def _hold(self, size: int) -> bool:
        is_held = self._shadows.reserve(size)
        self._held += size if is_held else 0
        return is_held

    def take_stable(self, response: wire.ResponseBody) -> None:
        """Take the stable version's response, which the client gets."""
        if self._is_over:
            return
        if self._hold(_size(response)):
            self._stable = response
            self._compare()
        else:
            self.drop()

    def drop(self) -> None:
        """Cancel the copy: there is no response of the stable version to compare with."""
        if self._is_over:
            return
        if self._request is not None:
            self._is_over = True  # it was never sent
            return
        self._pending.cancel()
        self._end(SKIPPED)

    def skip(self) -> None:
        """Drop the copy: a response in several parts is not compared."""
        self._is_over = True
        self._shadows.count(self._canary.version, SKIPPED)

    # ------------------------------------------------------------- comparing

    def respond(self, pending: Pending, response: wire.ResponseBody, /) -> None:
        if self._hold(_size(response)):
            self._answer = response
            self._compare()
        else:
            self._end(SKIPPED)

    def refuse(self, error: Exception, /) -> None:
        self._end("failed", str(error))

    def _compare(self) -> None:
        stable, answer = self._stable, self._answer
        if stable is None or answer is None:
            return
        if _size(stable) > INLINE_BYTES:
            self._shadows.run(self._compare_aside(stable, answer))
        else:
            self._judge(find_difference(stable, answer, self._tolerance))

    async def _compare_aside(self, stable: wire.ResponseBody, answer: wire.ResponseBody) -> None:
        self._judge(await self._shadows.find_difference(stable, answer, self._tolerance))

    @property
    def _tolerance(self) -> float:
        """Return the difference that numbers may have."""
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
        self._shadows.count(self._canary.version, result, label + text)


def _size(response: wire.ResponseBody) -> int:
    return sum(len(memoryview(tensor.data).cast("B")) for tensor in response.outputs)


class Canaries:
    """The step: chooses by id, sequence or chance."""

    def __init__(self, gateway: Gateway) -> None:
        self._shadows = Shadows(gateway)

    def choose(
        self, ask: Ask, model: ModelVersion, content: Content
    ) -> tuple[ModelVersion, Content]:
        """Pass a request on to the canary before its check, which differs between versions."""
        return _tried(model, ask, content) or model, content

    def copy(self, ask: Ask, checked: CheckedRequest) -> CheckedRequest:
        """Let the canary get a copy of a stable version's request."""
        canary = checked.model.trial
        if canary is None or not (canary.split.shadow and routing.is_copied(canary.split)):
            return checked
        return checked._replace(copy=self._shadows.copy(checked))


def _tried(model: ModelVersion, ask: Ask, content: Content) -> ModelVersion | None:
    """Return the version on trial, if a header, a constant key, or chance chooses it."""
    canary = model.trial
    if canary is None:
        return None
    header, split = ask.header, canary.split
    if canary.header and header is not None:
        value = header(canary.header)
        if value is not None and split.header_value in ("", value):
            return canary.version
    key = content.options.correlation
    if canary.sticky and not key:
        if canary.sticky == b"id":
            key = content.body.request_id
        elif header is not None:
            key = header(canary.sticky) or ""
    return canary.version if routing.goes_to_trial(split, key) else None
