"""Tests of models without a server: the stub's own code runs a model in the test's process.

    with zmqtriton.testing.load_model("models/add_sub") as model:
        outputs = model.infer(INPUT0=left, INPUT1=right)

Nothing here starts a process or opens a socket. Models use the stub's own classes, and their
responses are checked by the stub's own rules; only the broker is simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zmqtriton.sdk.process import InferenceRequest, InferenceResponse, addons
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_extras.authoring.testing.batch import OutputError
from zmqtriton_extras.authoring.testing.model import LoadedModel, load_model

__all__ = [
    "InferenceRequest",
    "InferenceResponse",
    "LoadedModel",
    "OutputError",
    "ZmqTritonError",
    "load_model",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return addons.load_public(f"testing.{name}")
