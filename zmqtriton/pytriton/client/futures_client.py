"""A client whose calls return futures, served by threads that share a ModelClient."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore, Thread
from typing import Any, TypeVar

from zmqtriton.pytriton.client.base import Outputs, Parameters
from zmqtriton.pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientQueueFullError,
)
from zmqtriton.pytriton.client.sync_clients import ModelClient
from zmqtriton.pytriton.client.wire.calls import Array
from zmqtriton.pytriton.model_config.triton_model_config import TritonModelConfig

T = TypeVar("T")


class FuturesModelClient:
    """A client for many requests at a time."""

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        max_workers: int | None = 128,
        max_queue_size: int | None = 128,
        non_blocking: bool = False,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
    ) -> None:
        """Set up a client with up to max_workers threads; None is no limit.

        max_queue_size requests may wait for a thread. One more waits in its call, up to
        inference_timeout_s if that is given, or is refused at once if non_blocking.
        """
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if max_queue_size is not None and max_queue_size <= 0:
            raise ValueError("max_queue_size must be greater than 0")
        self._client = ModelClient(
            url,
            model_name,
            model_version,
            init_timeout_s=init_timeout_s,
            inference_timeout_s=inference_timeout_s,
        )
        # Threads are made as requests need them.
        self._threads = ThreadPoolExecutor(sys.maxsize if max_workers is None else max_workers)
        self._places = None if max_queue_size is None else BoundedSemaphore(max_queue_size)
        self._place_timeout_s = 0.0 if non_blocking else inference_timeout_s
        self._is_closed = False

    def __enter__(self) -> FuturesModelClient:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self.close()

    def close(self, wait: bool = True) -> None:
        """Take no more calls; answer those that have come, and unless wait is false wait for it."""
        if self._is_closed:
            return
        self._is_closed = True
        if wait:
            self._finish()
        else:
            Thread(target=self._finish).start()

    def _finish(self) -> None:
        self._threads.shutdown()
        self._client.close()

    def wait_for_model(self, timeout_s: float) -> Future[None]:
        """Return a future that has None for a result when the model is ready."""
        return self._submit(lambda: self._client.wait_for_model(timeout_s))

    def model_config(self) -> Future[TritonModelConfig]:
        """Return a future of the model's configuration."""
        return self._submit(lambda: self._client.model_config)

    def infer_sample(
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> Future[Outputs]:
        """Return a future of the outputs for one sample, see `ModelClient.infer_sample`.

        Raises PyTritonClientClosedError and PyTritonClientQueueFullError.
        """
        return self._submit(
            lambda: self._client.infer_sample(
                *inputs, parameters=parameters, headers=headers, **named_inputs
            )
        )

    def infer_batch(
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> Future[Outputs]:
        """Return a future of the outputs for a batch, see `ModelClient.infer_batch`.

        Raises PyTritonClientClosedError and PyTritonClientQueueFullError.
        """
        return self._submit(
            lambda: self._client.infer_batch(
                *inputs, parameters=parameters, headers=headers, **named_inputs
            )
        )

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        places = self._places
        if self._is_closed:
            raise PyTritonClientClosedError("FutureModelClient is already closed")
        if places is None:
            return self._start(call)
        if not places.acquire(timeout=self._place_timeout_s):
            raise PyTritonClientQueueFullError("Queue is full")

        def run() -> T:
            places.release()
            return call()

        def leave(future: Future[T]) -> None:
            if future.cancelled():  # it never ran
                places.release()

        future = self._start(run)
        future.add_done_callback(leave)
        return future

    def _start(self, call: Callable[[], T]) -> Future[T]:
        try:
            return self._threads.submit(call)
        except RuntimeError as error:  # closed meanwhile
            raise PyTritonClientClosedError("FutureModelClient is already closed") from error
