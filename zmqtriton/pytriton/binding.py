"""A model of one or several callables, and its way to the server."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from zmqtriton.embedded import Connection, report
from zmqtriton.pytriton.bound_model import model_class
from zmqtriton.pytriton.decorators.context import TritonContext, set_triton_context
from zmqtriton.pytriton.exceptions import PyTritonValidationError
from zmqtriton.pytriton.model_config.generator import ModelConfigGenerator
from zmqtriton.pytriton.model_config.model_config import ModelConfig
from zmqtriton.pytriton.model_config.signature import describe_model
from zmqtriton.pytriton.model_config.tensor import Tensor
from zmqtriton.pytriton.model_config.warmup import generate_warmup_requests
from zmqtriton.pytriton.proxy.types import Request

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_model_name(model_name: str) -> None:
    """Raise PyTritonValidationError for a name that no model can have."""
    if not model_name:
        raise PyTritonValidationError("Model name cannot be empty")
    if not _NAME.fullmatch(model_name):
        raise PyTritonValidationError(
            "Model name can only contain alphanumeric characters, dots, underscores and dashes"
        )


class Binding:
    """A model whose code is in this process. Raises PyTritonValidationError if it cannot be one."""

    def __init__(
        self,
        model_name: str,
        infer_func: Callable[..., Any] | Sequence[Callable[..., Any]],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        config: ModelConfig,
        *,
        model_version: int,
        strict: bool,
        processes: bool,
    ) -> None:
        if callable(infer_func):
            self.infer_functions: Sequence[Callable[..., Any]] = [infer_func]
        elif isinstance(infer_func, Sequence):
            self.infer_functions = infer_func
        else:
            raise PyTritonValidationError(
                "inference_fn has to be either callable or sequence of callables"
            )
        if any(output.optional for output in outputs):
            raise PyTritonValidationError("Output tensors cannot be optional.")
        self.model_name = model_name
        self.model_version = model_version
        self._strict = strict
        self._has_processes = processes
        self._warmup = config.model_warmup
        self._config = describe_model(
            model_name,
            inputs,
            outputs,
            config,
            model_version=model_version,
            instances=len(self.infer_functions),
        )

    @property
    def key(self) -> tuple[str, int]:
        """The name and version that no other model of the script has."""
        return self.model_name.lower(), self.model_version

    def load(
        self,
        connection: Connection,
        context: TritonContext,
        on_unrecoverable: Callable[[str], object],
    ) -> None:
        """Serve it, once each callable is warm. Raises why it cannot be served."""
        for infer_func in self.infer_functions:
            set_triton_context(context, infer_func, self._config)
        self._warm_up()
        how = {"strict": self._strict, "on_unrecoverable": on_unrecoverable}
        if self._has_processes:
            how["on_unrecoverable"] = report
        connection.bind(
            self.model_name,
            [model_class(infer_func, self._config, **how) for infer_func in self.infer_functions],
            config=ModelConfigGenerator(self._config).get_config(),
            version=self.model_version,
            processes=self._has_processes,
            on_report=on_unrecoverable,
        )

    def _warm_up(self) -> None:
        """Call each callable with the requests of the warm-up, and log failures."""
        try:
            samples = generate_warmup_requests(self._warmup)
        except Exception as error:  # noqa: BLE001 - a warm-up that fails stops nobody
            logger.error("model '%s' cannot be warmed up: %s", self.model_name, error)
            return
        for infer_func in self.infer_functions:
            for sample in samples:
                try:
                    infer_func([Request(data=sample)])
                except Exception as error:  # noqa: BLE001 - the user's code
                    logger.warning("warm-up of model '%s' has failed: %s", self.model_name, error)
