"""Answers IN with as many responses as IN says; each has the value of IN."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from zmqtriton_extras.backends import streams


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        tensor = {"data_type": "TYPE_INT32", "dims": [1]}
        return streams.complete(config, [{"name": "IN", **tensor}], [{"name": "OUT", **tensor}])

    def initialize(self, args: dict[str, str]) -> None:
        self._senders = streams.Senders()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            [tensor] = request.inputs()
            number = int(tensor.as_numpy().reshape(-1)[0])

            def responses(number: int = number) -> Iterator[dict[str, Any]]:
                for _ in range(number):
                    yield {"OUT": np.array([number], dtype=np.int32)}

            self._senders.begin(request, responses)

    def finalize(self) -> None:
        self._senders.join()
