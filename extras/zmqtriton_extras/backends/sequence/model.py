"""Answers with the sum of a sequence's values so far."""

from __future__ import annotations

from zmqtriton_extras.backends.accumulation import AccumulatingModel


class TritonPythonModel(AccumulatingModel):
    CONTROLS = ("START", "READY")
