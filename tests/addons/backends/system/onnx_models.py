"""ONNX files for tests, made node by node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

_OPSET, _IR_VERSION = 20, 10

Shape = Sequence[int | str]


def write(
    path: Path,
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Sequence[Any] = (),
    opset: int = _OPSET,
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(constants))
    operators = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=operators, ir_version=_IR_VERSION), path)
    return path


def tensor(name: str, shape: Shape, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def scaling(path: Path, factor: float = 2.0, shape: Shape = ("N", 3), opset: int = _OPSET) -> Path:
    """Y = X * factor, and Z = -X."""
    return write(
        path,
        [helper.make_node("Mul", ["X", "factor"], ["Y"]), helper.make_node("Neg", ["X"], ["Z"])],
        [tensor("X", shape)],
        [tensor("Y", shape), tensor("Z", shape)],
        [helper.make_tensor("factor", TensorProto.FLOAT, [], [factor])],
        opset,
    )


def joining_words(path: Path) -> Path:
    """BOTH is LEFT and RIGHT together, which are strings."""
    shape = ("N", "M")
    return write(
        path,
        [helper.make_node("StringConcat", ["LEFT", "RIGHT"], ["BOTH"])],
        [tensor(name, shape, TensorProto.STRING) for name in ("LEFT", "RIGHT")],
        [tensor("BOTH", shape, TensorProto.STRING)],
    )


def adding_default(path: Path) -> Path:
    """OUT = IN + BIAS; BIAS is 10 unless somebody gives it."""
    return write(
        path,
        [helper.make_node("Add", ["IN", "BIAS"], ["OUT"])],
        [tensor("IN", ["N"], TensorProto.INT64), tensor("BIAS", [1], TensorProto.INT64)],
        [tensor("OUT", ["N"], TensorProto.INT64)],
        [helper.make_tensor("BIAS", TensorProto.INT64, [1], [10])],
    )


def with_a_sequence(path: Path) -> Path:
    """An output that is no tensor."""
    return write(
        path,
        [helper.make_node("SequenceConstruct", ["X"], ["S"])],
        [tensor("X", [1])],
        [helper.make_tensor_sequence_value_info("S", TensorProto.FLOAT, None)],
    )
