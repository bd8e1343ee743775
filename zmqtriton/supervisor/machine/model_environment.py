"""Which variables of the server's environment the processes of models get.

It often holds what is not for models: credentials of object stores, tokens of a deployment. What
libraries need to find their files, devices and settings passes; anything else only if it is named.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping

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


def withheld(environment: Mapping[str, str], named: Iterable[str]) -> list[str]:
    """Return the names of the variables that models do not get.

    `named` has names, and beginnings of names with a `*` behind, that the operator lets pass.
    """
    patterns = map(fnmatch.translate, (*_USUAL, *named))
    passing = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    return sorted(name for name in environment if not passing.fullmatch(name))
