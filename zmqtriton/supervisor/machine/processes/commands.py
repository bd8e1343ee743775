"""The command lines of the children, which `ps` shows, and the variables that models get.

Models get all variables but those that the server keeps.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from zmqtriton import addons
from zmqtriton.environments.demand import Environment, EnvironmentSpec
from zmqtriton.options import Options
from zmqtriton.options.declared import DECLARED
from zmqtriton.reading.model_reading import STUB_DIRECTORY
from zmqtriton.roles import ADD_ON, LOCAL_SOCKETS
from zmqtriton.store_places import STORES, is_remote
from zmqtriton.supervisor.machine.processes.fork_server import StubSpec
from zmqtriton.systemd import SERVICE_VARIABLES
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.withheld import VARIABLE as WITHHELD

#: The core's. Add-ons have theirs in a table.
_MODULES = {
    "broker": "zmqtriton.broker",
    "http-arbiter": "zmqtriton_frontends.http_api",
    "grpc": "zmqtriton_frontends.grpc_api",
}
#: The roles that listen on an inherited socket; gRPC unless grpcio serves it.
_ROLES_WITH_SOCKET = LOCAL_SOCKETS | {"http-arbiter", "grpc", "metrics"}
_log = logging.getLogger(__name__)

#: Variables that tell libraries where their files, devices and settings are.
_USUAL = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "HOSTNAME",
    "TERM",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "XDG_*",
    "LD_*",
    "MALLOC_*",
    "GLIBC_TUNABLES",
    "PYTHON*",
    "VIRTUAL_ENV",
    "CONDA_*",
    "CUDA_*",
    "NVIDIA_*",
    "NCCL_*",
    "CUBLAS*",
    "CUDNN*",
    "CUPY_*",
    "HIP_*",
    "ROCR_*",
    "OMP_*",
    "GOMP_*",
    "KMP_*",
    "MKL_*",
    "OPENBLAS_*",
    "BLIS_*",
    "NUMEXPR_*",
    "NUMBA_*",
    "TORCH*",
    "PYTORCH_*",
    "TF_*",
    "XLA_*",
    "JAX_*",
    "ORT_*",
    "ONNX*",
    "TENSORRT_*",
    "TRT_*",
    "TRITON*",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_DATASETS_*",
    "TRANSFORMERS_*",
    "TOKENIZERS_*",
    "SENTENCE_TRANSFORMERS_*",
    "NLTK_DATA",
    "SSL_CERT_*",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NO_PROXY",
    "no_proxy",
    "COVERAGE_PROCESS_*",
)
#: The server's options may hold keys of restricted APIs.
_OWN = (*SERVICE_VARIABLES, "CREDENTIALS_DIRECTORY", "ZMQTRITON_OPTIONS", "ZMQTRITON_OPTION_*")


def role_command(
    role: str, lifeline: int, sockets: Mapping[str, int], begun: int | None = None
) -> list[str]:
    """Return the command of a process; sockets besides its own have names.

    `begun` is memory that outlives a broker, for the next broker.
    """
    command = _command_of(role, lifeline)
    if begun is not None:
        command += ["--begun", str(begun)]
    if role in _ROLES_WITH_SOCKET:
        for name, socket in sockets.items():
            command += ["--also", f"{name}={socket}"] if name else ["--socket", str(socket)]
    return command


def _command_of(role: str, lifeline: int) -> list[str]:
    """Return the command of a process. Raises InternalError for a missing add-on."""
    module = _MODULES.get(role) or addons.processes().get(role.removeprefix(ADD_ON), ("",))[0]
    if not module:
        raise InternalError(f"the process '{role}' is an add-on that is not installed")
    return [sys.executable, "-m", module, "--lifeline", str(lifeline)]


#: Environment of the server's processes. They must not find modules in the current directory, and
#: numpy, which maps tensors in frontends, must not start an unused thread for each core.
ROLE_ENVIRONMENT = {"PYTHONSAFEPATH": "1", "OPENBLAS_NUM_THREADS": "1"}


_STUB = str(STUB_DIRECTORY / "__main__.py")
#: A forked stub writes its own arguments over these, so they need room for it.
_ROOM = " " * 2048


def fork_server_command(lifeline: int) -> list[str]:
    return [
        sys.executable,
        _STUB,
        "--fork-server",
        str(lifeline),
        _ROOM,
    ]


def spare_command(environment: Environment, lifeline: int) -> list[str]:
    return [environment.python, _STUB, "--spare", str(lifeline), *_support(environment), _ROOM]


def _support(environment: Environment) -> list[str]:
    support = environment.support_directory
    return ["--support", support] if support else []


#: Runs a program that may be slow to load: who starts this process waits until it has loaded
#: Python's own, and not until it has become that program.
_AT_LEISURE = (sys.executable, "-I", "-S", str(STUB_DIRECTORY / "becoming.py"))


def stub_arguments(spec: StubSpec) -> tuple[list[str], list[str]]:
    """Return the options for the descriptors of a stub or a template, and the words after them."""
    if spec.template is None or not spec.is_template:
        return ["--lifeline", "--progress", "--listener"], [spec.stub.model, spec.stub.instance]
    model = spec.stub.model
    return (
        (["--threads"], [model]) if spec.template.has_threads else (["--template"], [model, _ROOM])
    )


def stub_command(spec: StubSpec, descriptors: Iterable[int]) -> list[str]:
    """Return the command, by path, since the model's interpreter sees no other file of ours."""
    options, words = stub_arguments(spec)
    environment, pairs = spec.environment, zip(options, map(str, descriptors), strict=True)
    return [environment.python, _STUB, *chain(*pairs), *_support(environment), *words]


def at_leisure(words: list[str]) -> list[str]:
    """Prefix the command with our Python, if it has another one: a model's may be slow to load."""
    return words if words[0] == sys.executable else [*_AT_LEISURE, *words]


def environment_command(
    lifeline: int, model: str, cache: str, demand: EnvironmentSpec
) -> list[str]:
    return [*_command_of("environments", lifeline), model, cache, json.dumps(demand)]


def withheld(
    environment: Mapping[str, str], named: Iterable[str], repositories: Iterable[str]
) -> dict[str, str]:
    """Return the variables that models do not get, each with the `--model-env` that passes it.

    `named` has the names that the operator lets pass; a `*` at the end means any ending.

    Without names, models get all variables but those that were given to the server itself: its
    credentials, and systemd's messages to it. An operator who names variables restricts models to
    these and to the variables that libraries need.
    """
    patterns = tuple(named)
    if patterns:
        passing = _pattern((*_USUAL, *patterns))
        return {name: name for name in sorted(environment) if not passing.fullmatch(name)}
    urls = list(filter(is_remote, repositories))
    stores = STORES.first_of(addons.offers()) if urls else None
    kept = _pattern((*_OWN, *(stores.credentials(urls) if stores else ())))
    return {name: "*" for name in sorted(environment) if kept.fullmatch(name)}


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{fnmatch.translate(name)})" for name in names))


def _places(options: Options) -> Iterator[str]:
    """Return the values of options of add-ons that may name stores."""
    places = (option.field for option in DECLARED if option.declared.is_place)
    return filter(None, map(options.value, places))


def model_variables(options: Options) -> dict[str, str | None]:
    """Return the differences of models' variables from the server's own; None removes one."""
    names = withheld(os.environ, options.model_env, (*options.model_repository, *_places(options)))
    if not names:
        return {}
    if options.model_env:
        _log.info(
            "models do not get %d variables of the environment; --log-verbose=1 names them",
            len(names),
        )
        _log.debug("variables that models get only if --model-env names them: %s", ", ".join(names))
    else:
        _log.info(
            "models do not get the server's own variables (--model-env=* passes them): %s",
            ", ".join(names),
        )
    return {**dict.fromkeys(names), WITHHELD: json.dumps(names)}
