"""Runs SavedModels and GraphDefs with TensorFlow, as Triton's backend of this name does."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import numpy as np
import triton_python_backend_utils as pb_utils

from zmqtriton_extras.backends import configuration, execution, signature
from zmqtriton_extras.backends.signature import Io

try:
    import tensorflow
except ImportError as error:
    raise configuration.require("tensorflow", "tensorflow", "tensorflow", error) from error

_DATA_TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "string": "TYPE_STRING",
}


def load_graph(config: dict[str, Any]) -> Graph:
    """Return the graph of the version. Raises TritonModelException with TensorFlow's reason."""
    path = configuration.find_file(config, "model.graphdef")
    definition = tensorflow.compat.v1.GraphDef()
    try:
        with open(path, "rb") as file:
            definition.ParseFromString(file.read())
        return Graph(definition)
    except Exception as error:
        raise pb_utils.TritonModelException(
            f"tensorflow: cannot load {path}; save it again: {error}"
        ) from error


class Graph:
    """A frozen graph of TensorFlow 1, called like the signatures of SavedModels.

    An input is a placeholder, an output any operation, by its name.
    """

    def __init__(self, definition: Any) -> None:
        self._wrapped = tensorflow.compat.v1.wrap_function(
            lambda: tensorflow.import_graph_def(definition, name=""), []
        )
        operations = self._wrapped.graph.get_operations()
        if not operations:
            raise ValueError("it has no operations; save the graph again")
        #: The first output of each operation that has one, by its name.
        self._tensors = {one.name: one.outputs[0] for one in operations if one.outputs}
        self._inputs = {one.name: one.outputs[0] for one in operations if one.type == "Placeholder"}

    def call(self, outputs: List[str]) -> Call:
        """Return the function with these outputs, or else with all outputs that nothing reads."""
        tensors = {name: self._tensors[name] for name in outputs if name in self._tensors}
        return Call(self._wrapped, self._inputs, tensors or self._ends())

    def _ends(self) -> Dict[str, Any]:
        return {
            name: tensor
            for name, tensor in self._tensors.items()
            if name not in self._inputs
            and not tensor.consumers()
            and tensor.dtype.is_numpy_compatible
        }


class Call:
    """A function of a graph, described as TensorFlow describes a signature."""

    def __init__(self, wrapped: Any, inputs: Dict[str, Any], outputs: Dict[str, Any]) -> None:
        self.structured_input_signature = ((), inputs)
        self.structured_outputs = outputs
        self._names = list(inputs)
        self._function = wrapped.prune(list(inputs.values()), outputs)

    def __call__(self, **inputs: Any) -> Dict[str, Any]:
        outputs: Dict[str, Any] = self._function(*(inputs[name] for name in self._names))
        return outputs


class TritonPythonModel:
    #: Model that auto_complete_config has loaded, for the instance in the same process.
    _loaded: Any = None

    @classmethod
    def auto_complete_config(cls, config: Any) -> Any:
        document = config.as_dict()
        if not signature.is_complete(document):
            _set_threads(document)
            loaded = _load(document)
            signature.complete(config, *_tensors(_signature(document, loaded)))
            cls._loaded = loaded
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        loaded, type(self)._loaded = self._loaded, None
        kind, device = args["model_instance_kind"], args["model_instance_device_id"]
        self._device = f"/GPU:{device}" if kind == "GPU" else "/CPU:0"
        if loaded is None:
            _set_threads(config)
            with tensorflow.device(self._device):
                loaded = _load(config)
        #: kept, since its functions refer to its variables weakly
        self._model = loaded
        self._call = _signature(config, loaded)
        signature.check(config, *_tensors(self._call))
        self._signature = signature.read(config)

    def execute(self, requests: list[Any]) -> list[Any]:
        return execution.execute(requests, self._run, self._signature)

    def _run(self, inputs: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
        with tensorflow.device(self._device):
            tensors = {name: tensorflow.constant(array) for name, array in inputs.items()}
            arrays = self._call(**tensors)
        return {name: np.asarray(arrays[name].numpy()) for name in outputs}


def _set_threads(config: dict[str, Any]) -> None:
    """Set the thread counts of TensorFlow in this process, before it starts any threads."""
    threads = configuration.threads(config, "TF_NUM_INTRA_THREADS")
    between = configuration.number(config, "TF_NUM_INTER_THREADS", 0)
    try:
        tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(between)
    except RuntimeError as error:
        pb_utils.Logger.log_warn(f"TensorFlow keeps its threads: {error}")


def _load(config: dict[str, Any]) -> Any:
    if config.get("platform") == "tensorflow_graphdef":
        return load_graph(config)
    path = configuration.find_file(config, "model.savedmodel")
    tag = configuration.parameter(config, "TF_GRAPH_TAG", "serve")
    try:
        return tensorflow.saved_model.load(path, tags=[tag])
    except Exception as error:
        raise pb_utils.TritonModelException(
            f"tensorflow: cannot load {path}; save it again: {error}"
        ) from error


def _signature(config: dict[str, Any], loaded: Any) -> Any:
    if isinstance(loaded, Graph):
        # without a configured output it is to tell all
        return loaded.call(signature.read(config).outputs if config.get("output") else [])
    name = configuration.parameter(config, "TF_SIGNATURE_DEF", "serving_default")
    if name not in loaded.signatures:
        names = ", ".join(sorted(loaded.signatures)) or "none"
        raise pb_utils.TritonModelException(
            f"the SavedModel of '{config['name']}' has no signature '{name}'; it has {names}"
        )
    return loaded.signatures[name]


def _tensors(call: Any) -> tuple[List[Io], List[Io]]:
    """Return the inputs and outputs of a signature, by name."""
    return (
        _described(call.structured_input_signature[1]),
        _described(call.structured_outputs),
    )


def _described(specs: Dict[str, Any]) -> List[Io]:
    rows = []
    for name, spec in sorted(specs.items()):
        if spec.dtype.name not in _DATA_TYPES:
            raise pb_utils.TritonModelException(
                f"unsupported datatype {spec.dtype.name} for I/O '{name}'"
            )
        dims = None
        if spec.shape.rank is not None:
            dims = [-1 if dim is None else int(dim) for dim in spec.shape]
        rows.append(Io(name, _DATA_TYPES[spec.dtype.name], dims))
    return rows
