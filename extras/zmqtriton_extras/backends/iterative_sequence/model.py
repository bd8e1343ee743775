"""Counts down from INPUT to 0, with one response for each execution of the same request.

Between two executions it waits for half a second, or as long as `execute_delay_ms` says.
"""

from __future__ import annotations

import json
import time
from typing import Any, Dict

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration, execution


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        batching = config.get("sequence_batching") or {}
        is_decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        if not (batching.get("iterative_sequence") and is_decoupled):
            raise pb_utils.TritonModelException(
                f"model '{config['name']}' must have sequence_batching with iterative_sequence, "
                "and be decoupled"
            )
        self._delay_s = configuration.number(config, "execute_delay_ms", 500) / 1000
        self._has_batches = config["max_batch_size"] > 0
        #: The responses that are left, by the sequence's number.
        self._left: Dict[Any, int] = {}

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            number = request.correlation_id()
            [value] = (t.as_numpy() for t in request.inputs() if t.name() == "INPUT")
            left = self._left.pop(number, int(value.reshape(-1)[0])) - 1
            shape = (1, 1) if self._has_batches else (1,)
            sender = request.get_response_sender()
            response = execution.response({"OUTPUT": np.full(shape, left, dtype=np.int32)})
            time.sleep(self._delay_s)
            if left <= 0:
                sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                continue
            self._left[number] = left
            sender.send(response)
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
