"""Answers with the sum of a sequence's values so far, and adds its id to the last sum."""

from __future__ import annotations

from zmqtriton_extras.backends.accumulation import AccumulatingModel


class TritonPythonModel(AccumulatingModel):
    CONTROLS = ("START", "END", "READY", "CORRID")
    ADDS_NUMBER = True
