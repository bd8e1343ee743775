"""The answers that programs must give, by numpy alone."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.programs.drawing import Program

#: The modules that models have as well, under the same names.
SERVED = Path(__file__).with_name("served")
sys.path.append(str(SERVED))
arrays: Any = importlib.import_module("arrays")
_interpreter: Any = importlib.import_module("interpreter")

Arrays = list[Any]


def bound_class(program: dict[str, Any]) -> Any:
    """Return the class of a program that runs in this process."""
    model = importlib.import_module("model")
    return type("Bound", (model.TritonPythonModel,), {"program": program})


def forget_kept() -> None:
    """Drop what models of this process keep in a global, as the end of their process would."""
    # where these models themselves keep it
    importlib.import_module("model")._KEPT.clear()


class Oracle:
    """The answers of a set of programs."""

    def __init__(self, programs: Iterable[Program]) -> None:
        self._programs = {program.name: program for program in programs}

    def answers(self, name: str, inputs: Arrays) -> list[Arrays]:
        """Return the outputs of each response. A model may change its inputs: they are copied."""
        return self.step(name, inputs, None)[0]

    def step(self, name: str, inputs: Arrays, state: Any) -> tuple[list[Arrays], Any]:
        """Return the same of a request of a sequence, and the sequence's state after it."""
        program = self._programs[name]
        if program.kind == "ensemble":
            return self._of_ensemble(program, inputs), None
        responses: list[Arrays] = []
        steps = _interpreter.steps_of(program.steps, [array.copy() for array in inputs], state)
        answer: Any = None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration:
                return responses, state
            answer = None
            if isinstance(effect, _interpreter.State):
                state = effect.array.copy()
            if isinstance(effect, _interpreter.Send):
                responses.append([array.copy() for array in effect.arrays])
            elif isinstance(effect, _interpreter.Pass):
                # a Tensor has a copy of what is not contiguous
                answer = np.ascontiguousarray(effect.array)
            elif isinstance(effect, _interpreter.Fill):
                answer = effect.array.copy()
            elif isinstance(effect, _interpreter.Call):
                calls = zip(effect.models, effect.inputs, strict=True)
                answer = [
                    self.answers(model.partition(":")[0], arguments) for model, arguments in calls
                ]

    def _of_ensemble(self, program: Program, inputs: Arrays) -> list[Arrays]:
        """Return the responses. Only the first step may have several: later ones follow each."""
        sources = {f"IN{number}": array for number, array in enumerate(inputs)}
        waves = [sources]
        for model, reads, outputs in program.members:
            following = []
            for wave in waves:
                for response in self.answers(model, [wave[name] for name in reads]):
                    made = {
                        name: array for name, array in zip(outputs, response, strict=True) if name
                    }
                    following.append({**wave, **made})
            waves = following
        return [[wave[f"OUT{number}"] for number in range(program.outputs)] for wave in waves]
