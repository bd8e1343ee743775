"""A server with one model, called once, to show that the installation works.

As a program, `--workspace` serves the model until Ctrl-C, and `--infer` calls it.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zmqtriton_extras.pytriton.check.utils import ScriptThread
from zmqtriton_extras.pytriton.client.client import ModelClient
from zmqtriton_extras.pytriton.decorators import batch
from zmqtriton_extras.pytriton.exceptions import PyTritonRuntimeError
from zmqtriton_extras.pytriton.model_config import ModelConfig, Tensor
from zmqtriton_extras.pytriton.server_options import endpoint
from zmqtriton_extras.pytriton.triton import Triton, TritonConfig

_FLOATS = Tensor(shape=(-1,), dtype=np.float32)
_MODEL = "AddSub"
_READY_S = 60.0


@batch
def _add_sub(**inputs: np.ndarray) -> list[np.ndarray]:
    first, second = inputs.values()
    return [first + second, first - second]


def _bound(workspace: Path, config: TritonConfig | None = None) -> Triton:
    triton = Triton(config=config, workspace=workspace)
    triton.bind(
        _MODEL,
        _add_sub,
        inputs=[_FLOATS, _FLOATS],
        outputs=[_FLOATS, _FLOATS],
        config=ModelConfig(max_batch_size=8),
    )
    return triton


def _ask(url: str, logger: logging.Logger) -> None:
    """Call the model at this address. Raises PyTritonRuntimeError for a wrong response."""
    first, second = np.full(4, 3, np.float32), np.arange(4, dtype=np.float32)
    with ModelClient(url, _MODEL, lazy_init=False, init_timeout_s=_READY_S) as client:
        outputs = client.infer_sample(first, second)
    logger.info("%s answers %s", _MODEL, outputs)
    expected = {"OUTPUT_1": first + second, "OUTPUT_2": first - second}
    if any(not np.array_equal(outputs[name], array) for name, array in expected.items()):
        raise PyTritonRuntimeError(f"{_MODEL} answers {outputs}, not {expected}")


def _default_url() -> str:
    return endpoint(TritonConfig().over_environment(), "http")


def add_sub_example(
    workspace: Path, logger: logging.Logger, config: TritonConfig | None = None
) -> None:
    """Serve sums and differences from this workspace, request some, and stop.

    Raises PyTritonRuntimeError if they are wrong, and the errors of Triton and ModelClient.
    """
    with _bound(workspace, config) as triton:
        _ask(triton.url, logger)


def add_sub_example_thread(workspace: Path, logger: logging.Logger) -> None:
    """Start a server in a script of its own, and send a request to its model.

    Raises PyTritonRuntimeError if the script fails, too.
    """
    command = [sys.executable, "-m", __name__, "--workspace", str(workspace.resolve())]
    with ScriptThread(command, name="server") as server:
        _ask(_default_url(), logger)
        if server.process is not None:
            server.process.send_signal(signal.SIGINT)
        server.join(_READY_S)
    if server.returncode != 0:
        raise PyTritonRuntimeError(f"the script ended with {server.returncode}: {server.output}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve or call the model, as a program."""
    parser = argparse.ArgumentParser(description="Serve or ask a first model.")
    parser.add_argument("--workspace", type=Path, help="directory to make for the server")
    parser.add_argument("--infer", action="store_true", help="ask the model that is served")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    if options.infer:
        _ask(_default_url(), logging.getLogger("add_sub"))
        return
    _bound(options.workspace).serve()


if __name__ == "__main__":
    main()
