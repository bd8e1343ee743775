"""Loading on demand: requests wait in the frontend while the server loads their model.

The catalogue raises NotLoaded; the code that serves a client, such as the entrance, catches the
error and tries again. All requests that wait for a model share one call to the supervisor, which
continues if some of their clients leave.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from zmqtriton_floor.errors import DeadlineExceeded, Unavailable, ZmqTritonError, from_number

#: Calls the supervisor: Gateway.call().
Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


class NotLoaded(ZmqTritonError):
    """Raised for a model that can be loaded on demand.

    Code that cannot load may treat it as the plain error: code and text are the same.
    """

    def __init__(self, error: ZmqTritonError, model: str, demand: OnDemandLoader) -> None:
        super().__init__(error.text)
        self.code, self.number = error.code, error.number
        self.http_status, self.grpc_status = error.http_status, error.grpc_status
        self._model = model
        self._demand = demand

    def load(self, deadline_ns: int = 0) -> Coroutine[Any, Any, None]:
        """Return a coroutine that ends when another try is worthwhile, or the model is unknown.

        The coroutine does not keep this error, whose frames hold its callers' data, such as views
        of received bytes.
        """
        return self._demand.load(self._model, deadline_ns)


class OnDemandLoader:
    def __init__(self, call: Call, within_s: float) -> None:
        self._call = call
        self._within_s = within_s
        self._loads: dict[str, asyncio.Future[Any]] = {}

    async def load(self, model: str, deadline_ns: int = 0) -> None:
        """Load a model. Raises the error of a failed load, and Unavailable if it takes too long."""
        loading = self._loads.get(model)
        if loading is None:
            loading = asyncio.ensure_future(self._call("demand", {"model": model}))
            self._loads[model] = loading
            loading.add_done_callback(partial(self._ended, model))
        within_s = self._within_s
        if deadline_ns:
            within_s = min(within_s, max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9))
        done, _ = await asyncio.wait((loading,), timeout=within_s)
        if not done and within_s < self._within_s:
            raise DeadlineExceeded(
                f"Deadline Exceeded: model '{model}' was being loaded (the load continues)"
            )
        if not done:
            raise Unavailable(f"timed out waiting for model '{model}' to load (the load continues)")
        if loading.cancelled():
            raise Unavailable(f"model '{model}' is not loaded; send the request again")
        error = loading.exception()
        if isinstance(error, ZmqTritonError):
            # each gets one of its own: those that wait are many, and each adds to its traceback
            raise from_number(error.number, error.text)
        if error is not None:
            raise error

    def _ended(self, model: str, loading: asyncio.Future[Any]) -> None:
        del self._loads[model]
        if not loading.cancelled():
            loading.exception()  # else asyncio complains if all waiters have left
