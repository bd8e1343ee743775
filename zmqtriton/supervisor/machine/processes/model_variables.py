"""The variables of the environment that models get: all but those that the server is to keep."""

from __future__ import annotations

import fnmatch
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping

from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton.store_places import is_remote
from zmqtriton.systemd import SERVICE_VARIABLES
from zmqtriton_floor import lazy_names
from zmqtriton_floor.variables.withheld import VARIABLE as WITHHELD

_log = logging.getLogger(__name__)

#: What libraries need to find their files, devices and settings.
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


def withheld(
    environment: Mapping[str, str], named: Iterable[str], repositories: Iterable[str]
) -> dict[str, str]:
    """Return the variables that models do not get, each with the `--model-env` that passes it.

    `named` has names, and beginnings of names with a `*` behind, that the operator lets pass.

    All but those that hold what the server itself was given to keep: its credentials, and what
    systemd has told it. An operator who names variables restricts models to these and to what
    libraries need.
    """
    patterns = tuple(named)
    if patterns:
        passing = _pattern((*_USUAL, *patterns))
        return {name: name for name in sorted(environment) if not passing.fullmatch(name)}
    urls = list(filter(is_remote, repositories))
    of_stores = lazy_names.load_reference(addons.part("stores")).credentials(urls) if urls else ()
    kept = _pattern((*_OWN, *of_stores))
    return {name: "*" for name in sorted(environment) if kept.fullmatch(name)}


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{fnmatch.translate(name)})" for name in names))


def model_variables(options: Options) -> dict[str, str | None]:
    """Return the differences of models' variables from the server's own; None removes one."""
    names = withheld(os.environ, options.model_env, (*options.model_repository, options.capture_to))
    if not names:
        return {}
    if options.model_env:
        text = "models do not get %d variables of the environment; --log-verbose=1 names them"
        _log.info(text, len(names))
        text = "variables that models get only if --model-env names them: %s"
        _log.debug(text, ", ".join(names))
    else:
        text = "models do not get the server's own variables (--model-env=* passes them): %s"
        _log.info(text, ", ".join(names))
    return {**dict.fromkeys(names), WITHHELD: json.dumps(names)}
