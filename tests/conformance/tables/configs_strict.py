"""Configurations where nothing is completed, and where another file than config.pbtxt is asked for.

The models are never asked for their configuration: what is missing must stand in the file.
"""

from __future__ import annotations

from tests.conformance.cases import Case, Loaded
from tests.conformance.repositories import Written
from tests.conformance.tables.loading import GOOD, IO, PYTHON, A, B, completing

REPOSITORY = "configs_strict"
OPTIONS = (
    "--model-control-mode=explicit",
    "--disable-auto-complete-config",
    "--model-config-name=custom",
)

_COMPLETING = completing(A + B + "return config")
_FILES = {"1/model.py": GOOD}

_ROWS = (
    (Written("strict_plain", PYTHON + IO, _FILES), "E01", "all that is needed"),
    (Written("strict_no_file", "", _FILES), "E01", "the file is needed"),
    (Written("strict_no_backend", IO, _FILES), "E01", "the backend is found all the same"),
    (Written("strict_no_io", PYTHON, _FILES), "E01", "no inputs and outputs"),
    (Written("strict_not_asked", PYTHON, {"1/model.py": _COMPLETING}), "E01", "never asked"),
    (
        Written("strict_asked_for_more", PYTHON + IO, {"1/model.py": _COMPLETING}),
        "E01",
        "what it would say is not heard",
    ),
    (
        Written("strict_no_dims", PYTHON + 'input { name: "A" data_type: TYPE_INT8 }', _FILES),
        "E22",
        "refused at once",
    ),
    (
        Written("strict_gpu", PYTHON + IO + "instance_group { kind: KIND_GPU }\n", _FILES),
        "E24",
        "refused at once",
    ),
    (
        Written(
            "strict_other_file",
            PYTHON + IO,
            {**_FILES, "configs/custom.pbtxt": PYTHON + IO + "max_batch_size: 5\n"},
        ),
        "E08",
        "the other file",
    ),
    (
        Written("strict_other_only", "", {**_FILES, "configs/custom.pbtxt": PYTHON + IO}),
        "E08",
        "the other file alone",
    ),
    (
        Written(
            "strict_other_wrong", PYTHON + IO, {**_FILES, "configs/custom.pbtxt": "backend: {"}
        ),
        "E08",
        "the other file is wrong",
    ),
    (
        Written("strict_other_name", PYTHON + IO, {**_FILES, "configs/else.pbtxt": "backend: {"}),
        "E08",
        "a file of another name is not read",
    ),
)

MODELS = tuple(written for written, _, _ in _ROWS)
CASES = tuple(Case(written.name, Loaded(written.name), row, why) for written, row, why in _ROWS)
