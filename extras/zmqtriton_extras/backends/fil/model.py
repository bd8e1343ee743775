"""Runs forests of XGBoost, LightGBM and Treelite on the CPU, as Triton's `fil` does."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, NamedTuple, Tuple

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration, execution, signature
from zmqtriton_extras.backends.signature import Io

configuration.limit_spinning()
try:
    import treelite
except ImportError as error:
    raise configuration.require("fil", "treelite", "treelite", error) from error

_INPUT, _OUTPUT = "input__0", "output__0"
#: Treelite's numbers for what a forest is for.
_BINARY, _MULTICLASS = 0, 2
#: model_type -> the default file
_FILES = {
    "xgboost_json": "xgboost.json",
    "xgboost_ubj": "xgboost.ubj",
    "xgboost": "xgboost.model",
    "lightgbm": "model.txt",
    "treelite_checkpoint": "checkpoint.tl",
}


class Forest(NamedTuple):
    model: Any
    features: int
    #: The columns of a prediction: one for a binary classifier.
    columns: int
    is_classifier: bool

    def predict(self, rows: Any, threads: int) -> Any:
        """Return a row of probabilities or values for each row of features."""
        columns = treelite.gtil.predict(self.model, rows, nthread=threads)
        return columns.reshape(len(rows), -1)


class Output(NamedTuple):
    """The form of a prediction."""

    gives_class: bool
    gives_probabilities: bool
    threshold: float
    #: The configured dimensions without those of size 1, as in Triton's backend.
    dims: Tuple[int, ...]

    def of(self, predicted: Any) -> Any:
        """Return the output for a matrix of predictions."""
        is_binary = predicted.shape[1] == 1
        if self.gives_probabilities:
            if is_binary and self.dims == (2,):
                predicted = np.hstack([1 - predicted, predicted])
        elif self.gives_class:
            if is_binary:
                predicted = predicted > self.threshold
            else:
                predicted = np.argmax(predicted, axis=1)
        shape = (len(predicted), *self.dims)
        try:
            return predicted.reshape(shape).astype(np.float32)
        except ValueError:
            raise ValueError(
                f"the model predicts {predicted.shape[1]} values for each row, so "
                f"'output__0' cannot have dims {list(self.dims)}: correct config.pbtxt"
            ) from None


def read_forest(config: dict[str, Any]) -> Forest:
    """Return the forest of the version. Raises TritonModelException."""
    path, kind = _find(config)
    try:
        model = _READERS[kind](path, config)
    except Exception as error:
        raise pb_utils.TritonModelException(
            f"treelite: cannot read {path}; set model_type if it has another format: {error}"
        ) from error
    header = model.get_header_accessor()
    task = int(np.ravel(header.get_field("task_type"))[0])
    columns = int(np.max(header.get_field("num_class"))) * int(
        np.ravel(header.get_field("num_target"))[0]
    )
    return Forest(model, int(model.num_feature), columns, task in (_BINARY, _MULTICLASS))


def _find(config: dict[str, Any]) -> tuple[str, str]:
    """Return the file and its type; if no type is configured, the file's name decides."""
    kind = configuration.parameter(config, "model_type")
    if kind:
        if kind not in _FILES:
            raise pb_utils.TritonModelException(
                f"parameter 'model_type' of model '{config['name']}' must be one of "
                f"{', '.join(_FILES)}, got '{kind}'"
            )
        return configuration.find_file(config, _FILES[kind]), kind
    path = configuration.find_file(config, *_FILES.values())
    kinds = [kind for kind, file in _FILES.items() if file == os.path.basename(path)]
    if not kinds:
        raise pb_utils.TritonModelException(
            f"model '{config['name']}' must say by parameter 'model_type' what {path} is: one of "
            f"{', '.join(_FILES)}"
        )
    return path, kinds[0]


def _xgboost(path: str, config: dict[str, Any], form: str) -> Any:
    is_lenient = configuration.flag(config, "xgboost_allow_unknown_field", default=False)
    return treelite.frontend.load_xgboost_model(
        path, format_choice=form, allow_unknown_field=is_lenient
    )


_READERS: Dict[str, Callable[[str, Dict[str, Any]], Any]] = {
    "xgboost_json": lambda path, config: _xgboost(path, config, "json"),
    "xgboost_ubj": lambda path, config: _xgboost(path, config, "ubjson"),
    "xgboost": lambda path, config: treelite.frontend.load_xgboost_model_legacy_binary(path),
    "lightgbm": lambda path, config: treelite.frontend.load_lightgbm_model(path),
    "treelite_checkpoint": lambda path, config: treelite.Model.deserialize(path),
}


def output_of(config: dict[str, Any], forest: Forest) -> Output:
    """Return the configured form of the output. Raises TritonModelException."""
    text = configuration.parameter(config, "threshold", "0.5")
    try:
        threshold = float(text)
    except ValueError:
        raise pb_utils.TritonModelException(
            f"parameter 'threshold' of model '{config['name']}' must be a number, got '{text}'"
        ) from None
    dims = [int(dim) for entry in config["output"][:1] for dim in entry["dims"]]
    return Output(
        gives_class=configuration.flag(config, "output_class", default=forest.is_classifier),
        gives_probabilities=gives_probabilities(config),
        threshold=threshold,
        dims=tuple(dim for dim in dims if dim != 1),
    )


def gives_probabilities(config: dict[str, Any]) -> bool:
    return configuration.flag(config, "predict_proba", default=False)


class TritonPythonModel:
    #: Model that auto_complete_config has read, for the instance in the same process.
    _read: Any = None

    @classmethod
    def auto_complete_config(cls, config: Any) -> Any:
        document = config.as_dict()
        if not signature.is_complete(document):
            cls._read = forest = read_forest(document)
            signature.complete(config, *_tensors(document, forest))
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        forest, type(self)._read = self._read, None
        self._forest = read_forest(config) if forest is None else forest
        inputs, _ = _tensors(config, self._forest)
        # how many columns the output has is for the configuration to say
        signature.check(config, inputs, [Io(_OUTPUT, "TYPE_FP32", None)])
        self._output = output_of(config, self._forest)
        self._signature = signature.read(config)
        self._threads = configuration.threads(config)
        if args["model_instance_kind"] == "GPU":
            pb_utils.Logger.log_warn(
                f"{args['model_instance_name']} runs on the CPU: treelite has no kernels for GPUs"
            )

    def execute(self, requests: list[Any]) -> list[Any]:
        return execution.execute(requests, self._run, self._signature)

    def _run(self, inputs: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
        rows = np.ascontiguousarray(inputs[_INPUT].reshape(-1, self._forest.features))
        predicted = self._forest.predict(rows, self._threads or -1)
        return {name: self._output.of(predicted) for name in outputs}


def _tensors(config: dict[str, Any], forest: Forest) -> tuple[list[Io], list[Io]]:
    columns = 1
    if gives_probabilities(config) or not forest.is_classifier:
        columns = forest.columns
    return (
        [Io(_INPUT, "TYPE_FP32", [-1, forest.features])],
        [Io(_OUTPUT, "TYPE_FP32", [-1, columns])],
    )
