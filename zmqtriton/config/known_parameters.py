"""The parameters of a model that the server reads: what each takes, and what it is good for.

All other parameters are the model's own, or its backend's, so that a similar name is only a
warning. The reference is written from this table.

A feature that is an add-on has a module with `problems` and `read`, which take a configuration, and
with the `TYPES` of values.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from zmqtriton import addons
from zmqtriton.config.batching import (
    BATCH_COST,
    BATCH_DELAY,
    BATCH_LIKE,
    BATCH_TARGET,
    MAX_BATCH_COST,
    MAX_COST,
    USUAL,
)
from zmqtriton.config.errors import Problem
from zmqtriton.config.parameters import (
    BLS_MODELS,
    CPU_WEIGHT,
    CUDA_VISIBLE_DEVICES,
    DETACHED_CALLS,
    FORCE_CPU_ONLY,
    INSTANCES,
    MAX_CPU_WEIGHT,
    MAX_EXECUTIONS,
    MAX_EXECUTIONS_PER_SECOND,
    MAX_LOAD_SECONDS,
    MAX_MEMORY_BYTES,
    MAX_SEGMENT_BYTES,
    MAX_STREAMS,
    MODEL_SOURCE,
    SPLIT_BATCHES,
    STUB_USER,
    parameter_problems,
    parameter_text,
    quota_problems,
)
from zmqtriton.findings import Severity
from zmqtriton_floor import lazy_names
from zmqtriton_floor.settings.offers import Hook
from zmqtriton_floor.signature import sees_own_gpu

#: Least similarity of a misspelled name of ours. Two names of a model's own may have 0.8; a name of
#: ours without one letter has more than 0.9.
_SIMILARITY_CUTOFF = 0.87


class ModelSettings(Protocol):
    """A module for the parameters of one add-on."""

    #: Yields problems of these parameters in a configuration.
    problems: Callable[[Any], Iterable[Problem]]
    #: Returns the values in a configuration, or None if it has none of the parameters.
    read: Callable[[Any], Any]
    #: The types of these values.
    TYPES: Iterable[type]


class TrialSettings(ModelSettings, Protocol):
    """A module for the parameters of trials: versions that are tried next to the serving one."""

    #: Name of the folder below the state directory that keeps the results of trials.
    FOLDER: str
    #: Gets a model and a version, and returns the command that repeats its trial.
    again: Callable[[str, int], str]


#: Reads and checks your parameters of a model, at each load and in `check`.
SETTINGS = Hook[ModelSettings]("models.settings")
#: Reads the parameters for trials: a new version is tried next to the one that serves.
TRIAL = Hook[TrialSettings]("models.trial")


def problems(config: Any, kind: str = SETTINGS.name) -> Iterator[Problem]:
    """Yield the faults of the parameters for add-ons, of one kind."""
    for add_on in addons.offering(kind):
        if any(name in config.parameters for name in add_on.declared.parameters):
            yield from _module(add_on, kind).problems(config)


def read(config: Any) -> dict[str, Any]:
    """Return the add-ons' values of parameters, by the add-on's name, if any are set."""
    of_add_ons = (
        (add_on.declared.name, _module(add_on).read(config))
        for add_on in addons.offering(SETTINGS.name)
    )
    return {name: values for name, values in of_add_ons if values is not None}


def _module(add_on: addons.Installed, kind: str = SETTINGS.name) -> Any:
    return lazy_names.load_reference(add_on.reference(str(add_on.declared.offers[kind])))


def trial_parameters() -> list[str]:
    """Return the names of the parameters of trials."""
    return [name for each in addons.offering(TRIAL.name) for name in each.declared.parameters]


def trial() -> TrialSettings | None:
    """Return the module for trials; None without an add-on that has one."""
    return TRIAL.first_of(addons.offers())


def types() -> Iterator[type]:
    """Yield the types of all values that `read` may return."""
    offers = addons.offers()
    for module in (*SETTINGS.all_of(offers), *TRIAL.all_of(offers)):
        yield from module.TYPES


class KnownParameter(NamedTuple):
    name: str
    #: Values that it takes, with their bounds.
    takes: str
    default: str
    about: str
    #: True if its name may be written in capitals, too: the broker reads it in any case.
    has_any_case: bool = False


_YES_OR_NO = "`yes` or `no`"
_SIZE = "bytes, also as `512M` or `2G`"
_SECONDS = "seconds"

_OF_ENVIRONMENTS = (
    KnownParameter(
        "EXECUTION_ENV_PATH",
        "directory or archive (`.tar.gz`, `.tar`, `.tar.bz2`, `.tar.xz`)",
        "",
        "The environment that the model runs in. `$$TRITON_MODEL_DIRECTORY` stands for its own "
        "directory.",
    ),
    KnownParameter(
        "PYTHON_EXECUTABLE",
        "path, or a name such as `python3.12`",
        "the server's Python",
        "The interpreter that the model runs on.",
    ),
    KnownParameter(
        "PYTHON_REQUIREMENTS",
        "file in the model's directory, or `yes` or `no`",
        "`yes` with `--build-environments`",
        "The packages to install for the model: of the file, or of `requirements.txt` or "
        "`pyproject.toml`.",
    ),
    KnownParameter(
        MODEL_SOURCE,
        "`hf://…` or `oci://…`",
        "",
        "Its other files: a repository of a hub, or an artifact of a registry. Those of its own "
        "directory win.",
    ),
    KnownParameter(
        STUB_USER,
        "user that `--stub-user` allows",
        "the first of them",
        "The user that the model's processes run as.",
    ),
)
_OF_EXECUTION = (
    KnownParameter(
        "MAX_INFLIGHT",
        "1 to 1024",
        "1; decoupled: no limit",
        "How many batches an `async def execute` has at the same time.",
    ),
    KnownParameter(
        MAX_STREAMS,
        "1 to 65536",
        "no limit",
        "How many requests of a decoupled model an instance has at the same time, until the final "
        "response of each. Others wait in the queue.",
    ),
    KnownParameter(
        SPLIT_BATCHES,
        "`true` or `false`",
        "false",
        "True: a request above `max_batch_size` is executed in parts, whose outputs are joined.",
    ),
    KnownParameter(
        BATCH_COST,
        "`elements(INPUT)`, `bytes(INPUT)`, `value(INPUT)` or `padded(INPUT)`",
        "",
        "The cost of a request: a batch also ends before its cost exceeds the budget.",
    ),
    KnownParameter(
        MAX_BATCH_COST,
        f"1 to {MAX_COST}",
        "",
        f"The budget: the maximum cost of a batch by `{BATCH_COST}`. A request above it is "
        "executed alone.",
    ),
    KnownParameter(
        BATCH_LIKE,
        "`shape(INPUT)` or `value(INPUT)`",
        "",
        "Requests of one priority whose input is alike share a batch, so that less is padded.",
    ),
    KnownParameter(
        BATCH_DELAY,
        "`auto`",
        "",
        "The server chooses the delay and the size of batches while it runs.",
    ),
    KnownParameter(
        BATCH_TARGET,
        "`latency`, `throughput`, or such as `p99 200 ms`",
        f"`{USUAL}`",
        f"What `{BATCH_DELAY}` chooses for: the lowest mean time, the most rows in a second, or "
        "the least execution time while this share of the responses comes in this time.",
    ),
    KnownParameter(
        FORCE_CPU_ONLY,
        _YES_OR_NO,
        "yes",
        "No: inputs that lie on a GPU stay there.",
    ),
    KnownParameter(
        BLS_MODELS,
        "names, with commas",
        "",
        "The models that it calls; they are loaded before it and together with it.",
    ),
    KnownParameter(
        DETACHED_CALLS,
        _YES_OR_NO,
        "no",
        "Yes: what it asks of other models goes on when its own clients leave.",
    ),
    KnownParameter(
        INSTANCES,
        "`processes`, `forks` or `threads`",
        "processes",
        "Forks: `model.py` is imported once, and instances are forks that share what it and "
        "`preload` have made. Threads: they are threads of one process.",
    ),
    KnownParameter(
        CUDA_VISIBLE_DEVICES,
        "`instance`, or UUIDs of MIG slices with commas",
        "",
        "Each instance sees its own GPU alone, or a slice of the list in turn, which CUDA and "
        "`model_instance_device_id` call 0; one on the CPU sees none. Other values are the "
        "model's own.",
    ),
    KnownParameter(
        MAX_LOAD_SECONDS, _SECONDS, "0", "A load that takes longer fails; 0 is no limit."
    ),
    KnownParameter(
        "max_execution_seconds",
        _SECONDS,
        "0",
        "An instance whose `execute` takes longer is replaced; 0 is no limit.",
        has_any_case=True,
    ),
    KnownParameter(
        "max_requests",
        "whole number",
        "`--max-model-requests`",
        "How many unanswered requests of clients there may be; others get 503. 0 is no limit.",
        has_any_case=True,
    ),
    KnownParameter(
        "unload_idle_after_seconds",
        _SECONDS,
        "`--unload-idle-after`",
        "Idle time before a model that was loaded on demand is unloaded; 0: never.",
    ),
)
_OF_QUOTAS = (
    KnownParameter(
        MAX_SEGMENT_BYTES,
        _SIZE,
        "`--max-model-segment-bytes`",
        "Shared memory for large tensors of all its instances.",
    ),
    KnownParameter(
        MAX_MEMORY_BYTES, _SIZE, "`--max-model-memory-bytes`", "Memory of each instance."
    ),
    KnownParameter(CPU_WEIGHT, f"1 to {MAX_CPU_WEIGHT}", "100", "Its share of busy cores."),
    KnownParameter(
        MAX_EXECUTIONS_PER_SECOND,
        f"0.001 to {MAX_EXECUTIONS}; 0 is no limit",
        "0",
        "How often it is executed, over all instances.",
        has_any_case=True,
    ),
)
#: Parameters by their purpose.
PARAMETERS = {
    "Environments and users": _OF_ENVIRONMENTS,
    "Execution": _OF_EXECUTION,
    "Quotas": _OF_QUOTAS,
    **{
        title: tuple(KnownParameter(name, *about) for name, about in parameters.items())
        for title, parameters in addons.described_parameters().items()
    },
}
_ALL = tuple(parameter for of in PARAMETERS.values() for parameter in of)
_NAMES = frozenset(one.name for one in _ALL if not one.has_any_case)
_NAMES_IN_ANY_CASE = frozenset(one.name for one in _ALL if one.has_any_case)


def own_parameter_problems(config: Any) -> Iterator[Problem]:
    """Return the problems of parameters whose values make no sense."""
    yield from parameter_problems(config)
    yield from quota_problems(config)
    yield from problems(config, SETTINGS.name)
    yield from problems(config, TRIAL.name)
    for name in sorted(config.parameters):
        if lack := addons.lack(name):
            yield Problem(f"{name}: {lack}", ("parameters", name))


def misspelt_parameter_problems(config: Any) -> Iterator[Problem]:
    """Return warnings of unknown parameters with a name similar to a known one."""
    of_add_ons = addons.parameters()
    upper = {name.upper(): name for name in (*(one.name for one in _ALL), *of_add_ons)}
    for name in sorted(config.parameters):
        if name == CUDA_VISIBLE_DEVICES and not sees_own_gpu(parameter_text(config, name)):
            yield Problem(
                f"the server reads the parameter '{name}' only if it is 'instance' or lists "
                "slices (MIG-…)",
                ("parameters", name),
                severity=Severity.WARNING,
            )
        if name in _NAMES or name in of_add_ons or name.lower() in _NAMES_IN_ANY_CASE:
            continue
        matches = difflib.get_close_matches(name.upper(), upper, n=1, cutoff=_SIMILARITY_CUTOFF)
        if matches:
            yield Problem(
                f"the parameter '{name}' of model {config.name} means nothing to the server; "
                "correct its name, or read it in the model",
                ("parameters", name),
                severity=Severity.WARNING,
                suggestion=upper[matches[0]],
            )
