"""Which variables of the server's environment the processes of models get.

All but those that hold what the server itself was given to keep: its credentials, and what systemd
has told it. An operator who names variables restricts models to these and to what libraries need.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping

from zmqtriton.storage import places
from zmqtriton.systemd import SERVICE_VARIABLES

#: What libraries need to find their files, devices and settings.
_USUAL = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "TERM", "TMPDIR", "TZ", "LANG"),
    *("LANGUAGE", "LC_*", "XDG_*", "LD_*", "MALLOC_*", "GLIBC_TUNABLES", "PYTHON*", "VIRTUAL_ENV"),
    *("CONDA_*", "CUDA_*", "NVIDIA_*", "NCCL_*", "CUBLAS*", "CUDNN*", "CUPY_*", "HIP_*", "ROCR_*"),
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NUMEXPR_*", "NUMBA_*"),
    *("TORCH*", "PYTORCH_*", "TF_*", "XLA_*", "JAX_*", "ORT_*", "ONNX*", "TENSORRT_*", "TRT_*"),
    *("TRITON*", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_*", "TRANSFORMERS_*"),
    *("TOKENIZERS_*", "SENTENCE_TRANSFORMERS_*", "NLTK_DATA", "SSL_CERT_*", "REQUESTS_CA_BUNDLE"),
    *("CURL_CA_BUNDLE", "NO_PROXY", "no_proxy", "COVERAGE_PROCESS_*"),
)
#: The server's options may hold keys of restricted APIs.
_OWN = (*SERVICE_VARIABLES, "CREDENTIALS_DIRECTORY", "ZMQTRITON_OPTIONS", "ZMQTRITON_OPTION_*")
#: What identifies the server to an object store that has a repository of it.
_CREDENTIALS = {
    places.S3: (
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        *("AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        *("AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    ),
    places.GS: ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT*"),
    places.AZURE: (
        *("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"),
        *("AZURE_STORAGE_TOKEN", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"),
    ),
}
_CREDENTIALS_OF_ALL_STORES = ("TRITON_CLOUD_CREDENTIAL_PATH",)


def withheld(
    environment: Mapping[str, str], named: Iterable[str], repositories: Iterable[str]
) -> dict[str, str]:
    """Return the variables that models do not get, each with the `--model-env` that passes it.

    `named` has names, and beginnings of names with a `*` behind, that the operator lets pass.
    """
    patterns = tuple(named)
    if patterns:
        passing = _pattern((*_USUAL, *patterns))
        return {name: name for name in sorted(environment) if not passing.fullmatch(name)}
    kinds = {places.parse_url(path).kind for path in repositories if places.is_remote(path)}
    of_stores = [name for kind in sorted(kinds) for name in _CREDENTIALS[kind]]
    kept = _pattern((*_OWN, *of_stores, *(_CREDENTIALS_OF_ALL_STORES if kinds else ())))
    return {name: "*" for name in sorted(environment) if kept.fullmatch(name)}


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{fnmatch.translate(name)})" for name in names))
