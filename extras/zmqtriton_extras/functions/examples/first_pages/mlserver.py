"""MLServer's first page: answers to questions about a context, as an array."""

import numpy as np
from numpy.typing import NDArray

from zmqtriton import model


@model
class Answers:
    def __init__(self) -> None:
        self._model = lambda questions, context: [float(q in context) for q in questions]

    async def __call__(self, questions: list[str], context: list[str]) -> NDArray[np.float32]:
        return np.array(self._model(questions, context), np.float32)
