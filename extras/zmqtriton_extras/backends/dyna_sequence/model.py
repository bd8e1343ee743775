"""Answers with the sum of what a sequence has brought so far, and adds its number at its end."""

from __future__ import annotations

from zmqtriton_extras.backends.accumulation import AccumulatingModel


class TritonPythonModel(AccumulatingModel):
    CONTROLS = ("START", "END", "READY", "CORRID")
    ADDS_NUMBER = True
