"""Sends the responses of decoupled models from threads, so that execute() can return first."""

from __future__ import annotations

import threading
from typing import Any, Callable, Iterable, List

import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import execution


class Senders:
    """A thread for each request that is being answered."""

    def __init__(self) -> None:
        self._threads: List[threading.Thread] = []

    def begin(self, request: Any, responses: Callable[[], Iterable[dict[str, Any]]]) -> None:
        """Send the outputs that `responses` yields, one response each, then end the request."""
        thread = threading.Thread(target=_send, args=(request.get_response_sender(), responses))
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def _send(sender: Any, responses: Callable[[], Iterable[dict[str, Any]]]) -> None:
    try:
        for outputs in responses():
            if sender.is_cancelled():
                break
            sender.send(execution.response(outputs))
    except Exception as error:  # noqa: BLE001 - the client is told
        sender.send(execution.failure(error), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def complete(config: Any, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> Any:
    """Return the ModelConfig of a decoupled model with exactly these tensors."""
    for tensor in inputs:
        config.add_input(tensor)
    for tensor in outputs:
        config.add_output(tensor)
    config.set_model_transaction_policy({"decoupled": True})
    return config
