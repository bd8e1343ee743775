"""GraphDefs of TensorFlow 1: frozen graphs, called like the signatures of SavedModels.

An input is a placeholder, an output any operation, by its name.
"""

from __future__ import annotations

from typing import Any, Dict, List

import tensorflow
import triton_python_backend_utils as pb_utils

from zmqtriton_addons.backends import configuration


def load(config: dict[str, Any]) -> Graph:
    """Return the graph of the version. Raises TritonModelException with TensorFlow's reason."""
    path = configuration.find_file(config, "model.graphdef")
    definition = tensorflow.compat.v1.GraphDef()
    try:
        with open(path, "rb") as file:
            definition.ParseFromString(file.read())
        return Graph(definition)
    except Exception as error:
        raise pb_utils.TritonModelException(f"tensorflow: cannot load {path}: {error}") from error


class Graph:
    def __init__(self, definition: Any) -> None:
        self._wrapped = tensorflow.compat.v1.wrap_function(
            lambda: tensorflow.import_graph_def(definition, name=""), []
        )
        operations = self._wrapped.graph.get_operations()
        if not operations:
            raise ValueError("it has no operations")
        #: The first output of each operation that has one, by its name.
        self._tensors = {one.name: one.outputs[0] for one in operations if one.outputs}
        self._inputs = {one.name: one.outputs[0] for one in operations if one.type == "Placeholder"}

    def call(self, outputs: List[str]) -> Call:
        """Return the function with these outputs, or without any with those that nothing reads."""
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
