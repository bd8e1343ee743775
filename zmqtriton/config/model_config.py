"""From a model's directory to its finished configuration, step by step.

A load calls `load_config` and, once the first stub has answered, `merge_completion`. Both return a
new message; every other module of this package does one step of their work. Raises ConfigError with
the reason that the model's status will show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmqtriton_protos
from zmqtriton.config.backends import (
    PYTHON,
    complete_backend,
    complete_for_file,
    complete_implied,
)
from zmqtriton.config.errors import ConfigError, Problem, raise_first
from zmqtriton.config.instances import apply_group_defaults, group_problems
from zmqtriton.config.parameters import MODEL_SOURCE, parameter_text
from zmqtriton.config.pbtxt import parse_json, parse_override, read_config, to_text
from zmqtriton.config.positions import locate_error
from zmqtriton.config.validation import config_problems, tensor_problems
from zmqtriton_floor.reasons import Kind

SEQUENCE_IDLE_US = 1_000_000


@dataclass(frozen=True)
class ModelHost:
    """The machine, as far as models depend on it."""

    gpus: Sequence[int] = ()
    min_compute_capability: float = 6.0


_NO_GPUS = ModelHost()


def load_config(
    name: str,
    model_dir: Path,
    config_path: Path | None,
    *,
    override: str | None = None,
    auto_complete: bool = True,
    host: ModelHost = _NO_GPUS,
    code_file: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Any:
    """Return the configuration of a model that is about to be loaded.

    With `auto_complete` its inputs, outputs and instance groups stay as they are until the model
    has been asked (`merge_completion`); ensembles are finished at once. `override` is the JSON of a
    load request, used in place of the file. `code_file` is the model if it is one Python file in a
    directory that is not its own. `tell` gets the text when the backend is known and
    defaults are not filled in yet, as Triton logs it. Checks of the machine and of further files
    are left to `check_runnable` and `files.check_paths`.
    """
    path = None if override is not None else config_path
    try:
        config = _read_source(name, model_dir, config_path, override, auto_complete)
        if code_file is not None:
            complete_for_file(config, code_file)
        complete_backend(config, name, model_dir)
        complete_implied(config, model_dir, code_file)
        if auto_complete:
            tell(to_text(config))
        apply_defaults(config)
        raise_first(config_problems(config))
        if not auto_complete or config.HasField("ensemble_scheduling"):
            apply_group_defaults(config, host.gpus)
            raise_first(tensor_problems(config))
    except ConfigError as error:
        raise locate_error(error, path) from error.__cause__
    return config


def check_runnable(config: Any, host: ModelHost, path: Path | None = None) -> None:
    """Check the groups as Triton does when it creates a model: then its versions fail."""
    try:
        raise_first(group_problems(config, host.gpus, host.min_compute_capability))
    except ConfigError as error:
        raise locate_error(error, path) from None


def merge_completion(
    config: Any, reply: str, *, host: ModelHost = _NO_GPUS, path: Path | None = None
) -> Any:
    """Return the finished configuration, given the JSON answer of `auto_complete_config`.

    A model without that function answers with what it was sent, or with "". `path` is the file that
    the configuration was read from, for error texts.
    """
    merged = zmqtriton_protos.ModelConfig()
    merged.CopyFrom(config)
    if reply:
        _apply_completion(merged, parse_json(reply))
    try:
        apply_defaults(merged)
        raise_first(config_problems(merged))
        apply_group_defaults(merged, host.gpus)
        raise_first(tensor_problems(merged))
    except ConfigError as error:
        raise locate_error(error, path) from None
    check_runnable(merged, host, path)
    return merged


def source_of(config_path: Path | None, override: str | None = None) -> str:
    """Return the address of a store with more files of the model, or "". Raises ConfigError."""
    path = None if override is not None else config_path
    text = path.read_text("utf-8", "replace") if path else override or ""
    if MODEL_SOURCE not in text:
        return ""  # nearly all files: they need not be parsed twice
    url = parameter_text(read_config(path) if path else parse_override(text), MODEL_SOURCE)
    if url and not url.startswith(("hf://", "oci://")):
        problem = Problem(
            f"{MODEL_SOURCE} is '{url}', but must begin with hf:// or oci://",
            ("parameters", MODEL_SOURCE),
        )
        raise locate_error(ConfigError(problem), path)
    return url


def _read_source(
    name: str, model_dir: Path, config_path: Path | None, override: str | None, auto_complete: bool
) -> Any:
    if override is not None:
        config = parse_override(override)
        # the request names the model; the directory is not compared with an override
        config.name = name
        return config
    if config_path is None:
        if auto_complete:
            return zmqtriton_protos.ModelConfig()
        config_path = model_dir / "config.pbtxt"
    config = read_config(config_path)
    if config.name == model_dir.name:
        # the repository may have the model under another name
        config.name = name
    if config.name not in ("", name):
        text = (
            f"unexpected directory name '{name}' for model '{config.name}', directory name must "
            "equal model name"
        )
        values = {"directory": name, "configured": config.name}
        raise ConfigError(Problem(text, ("name",), kind=Kind.DIRECTORY_NAME, values=values))
    return config


def _apply_completion(config: Any, completed: Any) -> None:
    """Apply what a model may decide; as in Triton, the rest of its answer is ignored.

    Another backend than Python's may also add instance groups and parameters that were not given:
    Triton lets backends change all of a configuration.
    """
    config.max_batch_size = completed.max_batch_size
    for section in ("input", "output"):
        config.ClearField(section)
        getattr(config, section).extend(getattr(completed, section))
    if completed.HasField("dynamic_batching") and not config.WhichOneof("scheduling_choice"):
        config.dynamic_batching.CopyFrom(completed.dynamic_batching)
    if completed.HasField("model_transaction_policy"):
        config.model_transaction_policy.CopyFrom(completed.model_transaction_policy)
    if config.backend != PYTHON:
        if not config.instance_group:
            config.instance_group.extend(completed.instance_group)
        for name in completed.parameters.keys() - config.parameters.keys():
            config.parameters[name].CopyFrom(completed.parameters[name])


def apply_defaults(config: Any) -> None:
    """Set version policy, preferred batch sizes, sequence idle time and pinned memory.

    Runs after the backend is known, and again after a model's own auto-completion. Never overwrites
    what the file or the model has set.
    """
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    if config.HasField("dynamic_batching"):
        _prefer_full_batches(config.dynamic_batching, config.max_batch_size)
    if config.HasField("sequence_batching"):
        batching = config.sequence_batching
        batching.max_sequence_idle_microseconds = (
            batching.max_sequence_idle_microseconds or SEQUENCE_IDLE_US
        )
        if batching.HasField("oldest"):
            _prefer_full_batches(batching.oldest, config.max_batch_size)
    # An ensemble must not have the section at all, so it gets no default of it either.
    if not config.HasField("ensemble_scheduling"):
        for memory in ("input_pinned_memory", "output_pinned_memory"):
            if not config.optimization.HasField(memory):
                getattr(config.optimization, memory).enable = True


def _prefer_full_batches(batching: Any, max_batch_size: int) -> None:
    if not batching.preferred_batch_size and max_batch_size > 0:
        batching.preferred_batch_size.append(max_batch_size)
