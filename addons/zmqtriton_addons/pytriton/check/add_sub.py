"""A server with one model, asked once: it shows that all works here."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from zmqtriton_addons.pytriton.client.sync_clients import ModelClient
from zmqtriton_addons.pytriton.decorators import batch
from zmqtriton_addons.pytriton.exceptions import PyTritonRuntimeError
from zmqtriton_addons.pytriton.model_config import ModelConfig, Tensor
from zmqtriton_addons.pytriton.triton import Triton, TritonConfig

_FLOATS = Tensor(shape=(-1,), dtype=np.float32)
_MODEL = "AddSub"


@batch
def _add_sub(**inputs: np.ndarray) -> list[np.ndarray]:
    first, second = inputs.values()
    return [first + second, first - second]


def add_sub_example(
    workspace: Path, logger: logging.Logger, config: TritonConfig | None = None
) -> None:
    """Serve sums and differences from this workspace, ask for some, and stop.

    Raises PyTritonRuntimeError if they are wrong, and the errors of Triton and ModelClient.
    """
    first, second = np.full(4, 3, np.float32), np.arange(4, dtype=np.float32)
    with Triton(config=config, workspace=workspace) as triton:
        triton.bind(
            _MODEL,
            _add_sub,
            inputs=[_FLOATS, _FLOATS],
            outputs=[_FLOATS, _FLOATS],
            config=ModelConfig(max_batch_size=8),
        )
        with ModelClient(triton.url, _MODEL) as client:
            outputs = client.infer_sample(first, second)
    logger.info("%s answers %s", _MODEL, outputs)
    expected = {"OUTPUT_1": first + second, "OUTPUT_2": first - second}
    if any(not np.array_equal(outputs[name], array) for name, array in expected.items()):
        raise PyTritonRuntimeError(f"{_MODEL} answers {outputs}, not {expected}")
