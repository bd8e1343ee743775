"""A model of sequences for each framework: TOTAL and its state AFTER are BEFORE + VALUE.

Its file is the framework's; the configuration and what is asked are the same for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zmqtriton_extras.backends.tests.served import Served

CONFIG = """max_batch_size: 4
input [ { name: "VALUE" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "TOTAL" data_type: TYPE_INT32 dims: [ 1 ] } ]
sequence_batching {
  control_input [
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] } ]
  state [ { input_name: "BEFORE" output_name: "AFTER" data_type: TYPE_INT32 dims: [ 1 ] } ] }
"""
#: The same for a framework that tells tensors by their places.
BY_PLACE = CONFIG
for _name in ("VALUE__0", "BEFORE__1", "READY__2", "TOTAL__0", "AFTER__1"):
    BY_PLACE = BY_PLACE.replace(f'"{_name[:-3]}"', f'"{_name}"')
EXPECTED = [{"TOTAL": [[101]], "AFTER": [[101]]}, {"TOTAL": [[202]], "AFTER": [[202]]}]


def answers(served: Served) -> list[dict[str, Any]]:
    """Return the answers of a batch of two sequences, as the server gets them."""

    def request(value: int, before: int) -> dict[str, Any]:
        # a model with names by places is asked by those, in the order above
        cells = {"VALUE": value, "BEFORE": before, "READY": 1}
        is_by_place = served.config["input"][0]["name"] == "VALUE__0"
        return {
            f"{name}__{place}" if is_by_place else name: np.array([[cell]], np.int32)
            for place, (name, cell) in enumerate(cells.items())
        }

    found = served.ask_all(request(1, 100), request(2, 200))
    return [{name.partition("__")[0]: value for name, value in one.items()} for one in found]
