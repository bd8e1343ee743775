"""A model's configuration as backends of frameworks read and complete it, with Triton's rules.

Knows no framework. What is wrong raises TritonModelException, whose text is the load's reason.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Iterable, NamedTuple

import triton_python_backend_utils as pb_utils


class Io(NamedTuple):
    """An input or output as the model's file describes it; -1 is a dimension of any size."""

    name: str
    #: TYPE_FP32 and the like
    data_type: str
    #: with that of the batch; None if the file does not say
    dims: list[int] | None
    #: The model has a default for it.
    is_optional: bool = False


def require(backend: str, module: str, packages: str, error: ImportError) -> Any:
    """Return the error for a module that this interpreter lacks."""
    if error.name is not None and error.name.partition(".")[0] != module:
        raise error
    return pb_utils.TritonModelException(
        f"backend '{backend}' needs the module '{module}', which {sys.executable} lacks ({error}); "
        f"install it with: {sys.executable} -m pip install {packages}"
    )


def parameter(config: dict[str, Any], name: str, default: str = "") -> str:
    """Return a parameter of the configuration, or else what the command line has for all models."""
    found = (config.get("parameters") or {}).get(name)
    if found is not None:
        return str(found.get("string_value", ""))
    settings = pb_utils.get_backend_settings()
    return str(settings.get(name, settings.get(name.replace("_", "-"), default)))


def number(config: dict[str, Any], name: str, default: int, least: int = 0) -> int:
    """Return a parameter that is an integer."""
    text = parameter(config, name)
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise pb_utils.TritonModelException(
            f"parameter '{name}' of model '{config['name']}' must be an integer of at least "
            f"{least}, got '{text}'"
        )
    return value


def flag(config: dict[str, Any], name: str, default: bool) -> bool:
    """Return a parameter that is true or false."""
    text = parameter(config, name).lower()
    if not text:
        return default
    if text not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise pb_utils.TritonModelException(
            f"parameter '{name}' of model '{config['name']}' must be true or false, got '{text}'"
        )
    return text in ("true", "1", "yes", "on")


def threads(config: dict[str, Any], name: str = "intra_op_thread_count") -> int:
    """Return the threads of one instance: the configured number, or its share of the cores.

    The instances of a model on the CPU share the cores, so that they do not fight for them. 0
    leaves the number to the framework.
    """
    cores = len(os.sched_getaffinity(0))
    return number(config, name, max(1, cores // cpu_instances(config)))


def limit_spinning() -> None:
    """Have threads of GNU's OpenMP that wait give their core away soon, unless the user says how.

    They spin for milliseconds, and here somebody else has use for the core. To be called before
    the framework is imported.
    """
    if not any(name in os.environ for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")):
        # what it takes itself where there are more threads than cores
        os.environ["GOMP_SPINCOUNT"] = "1000"


def cpu_instances(config: dict[str, Any]) -> int:
    groups = config.get("instance_group") or []
    on_cpu = [group for group in groups if group.get("kind") != "KIND_GPU"]
    return max(1, sum(max(1, int(group.get("count", 1))) for group in on_cpu))


def find_file(config: dict[str, Any], *defaults: str) -> str:
    """Return the path of the model's file: the configured one, or the first default that exists."""
    directory = pb_utils.get_model_dir()
    named = config.get("default_model_filename")
    names = [named, *defaults] if named else list(defaults)
    for name in names:
        path = os.path.join(directory, name)
        if os.path.exists(path):
            return path
    listed = "' or '".join(os.path.join(directory, name) for name in dict.fromkeys(names))
    raise pb_utils.TritonModelException(f"unable to find '{listed}' for model '{config['name']}'")


def is_complete(config: dict[str, Any]) -> bool:
    """Return whether inputs and outputs are configured, and so nothing is completed."""
    return bool(config.get("input") or config.get("batch_input")) and bool(config.get("output"))


def complete(config: Any, inputs: list[Io], outputs: list[Io]) -> None:
    """Complete a ModelConfig that lacks its inputs or outputs, and its batching."""
    document = config.as_dict()
    has_input = bool(document.get("input") or document.get("batch_input"))
    _complete_batching(document, [*inputs, *outputs])
    if not has_input:
        _complete_tensors(document, "input", inputs)
    if not document.get("output"):
        _complete_tensors(document, "output", outputs)


def _complete_batching(document: dict[str, Any], tensors: Iterable[Io]) -> None:
    most = int(document.get("max_batch_size", 0))
    if not all(io.dims and io.dims[0] == -1 for io in tensors):
        if most:
            raise pb_utils.TritonModelException(
                f"autofill failed for model '{document['name']}': model does not support batching "
                "while non-zero max_batch_size is specified"
            )
        return
    if not most:
        settings = pb_utils.get_backend_settings()
        most = document["max_batch_size"] = max(0, int(settings.get("default-max-batch-size", 0)))
    if most > 1 and "sequence_batching" not in document:
        document.setdefault("dynamic_batching", {})


def _complete_tensors(document: dict[str, Any], kind: str, tensors: list[Io]) -> None:
    first = 1 if int(document.get("max_batch_size", 0)) > 0 else 0
    entries = []
    for io in tensors:
        if io.dims is None:
            raise pb_utils.TritonModelException(
                f"the file of model '{document['name']}' does not say the shape of {kind} "
                f"'{io.name}'; add it to config.pbtxt"
            )
        entry: dict[str, Any] = {
            "name": io.name,
            "data_type": io.data_type,
            "dims": io.dims[first:],
        }
        if not entry["dims"]:  # the configuration has no tensor without dimensions
            entry["dims"] = [1]
            entry["reshape"] = {"shape": []}
        if kind == "input" and io.is_optional:
            entry["optional"] = True
        entries.append(entry)
    document[kind] = entries


def check(config: dict[str, Any], inputs: list[Io], outputs: list[Io]) -> None:
    """Check the configured tensors against the model's own; the texts are Triton's."""
    name = config["name"]
    required = {io.name for io in inputs if not io.is_optional}
    configured = {entry["name"] for entry in config.get("input", ())}
    if not config.get("batch_input") and len(required) > len(configured):
        raise pb_utils.TritonModelException(
            f"unable to load model '{name}', configuration expects {len(configured)} inputs, model "
            f"provides {len(inputs)}"
        )
    for kind, tensors in (("input", inputs), ("output", outputs)):
        known = {io.name: io for io in tensors}
        for entry in config.get(kind, ()):
            io = known.get(entry["name"])
            if io is None:
                allowed = ", ".join(sorted(known))
                raise pb_utils.TritonModelException(
                    f"unexpected inference {kind} '{entry['name']}', allowed {kind}s are: {allowed}"
                )
            _check_tensor(config, kind, entry, io)


def _check_tensor(config: dict[str, Any], kind: str, entry: dict[str, Any], io: Io) -> None:
    name = config["name"]
    if io.data_type and entry["data_type"] != io.data_type:
        raise pb_utils.TritonModelException(
            f"unable to load model '{name}', configuration expects datatype {entry['data_type']} "
            f"for {kind} '{io.name}', model provides {io.data_type}"
        )
    if io.dims is None:
        return
    reshape = entry.get("reshape")
    dims = list(map(int, reshape.get("shape", ()) if reshape is not None else entry["dims"]))
    if int(config.get("max_batch_size", 0)) > 0:
        dims = [-1, *dims]
    fits = len(dims) == len(io.dims) and all(
        here == there or -1 in (here, there) for here, there in zip(dims, io.dims)
    )
    if not fits:
        raise pb_utils.TritonModelException(
            f"model '{name}', tensor '{io.name}': the model expects {len(io.dims)} dimensions "
            f"(shape {_shape(io.dims)}) but the model configuration specifies {len(dims)} "
            f"dimensions (shape {_shape(dims)})"
        )


def _shape(dims: Iterable[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"
