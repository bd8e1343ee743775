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
    domains: Sequence[Any] = (),
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(constants))
    operators = [helper.make_opsetid("", opset), *domains]
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


def with_maps(path: Path) -> Path:
    """The probabilities of a classifier as scikit-learn's converter makes them: by class."""
    by_class = helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    )
    node = helper.make_node(
        "ZipMap", ["X"], ["P"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]
    )
    return write(
        path,
        [node],
        [tensor("X", ("N", 3))],
        [helper.make_value_info("P", helper.make_sequence_type_proto(by_class))],
        domains=[helper.make_opsetid("ai.onnx.ml", 3)],
    )


_COUNTERS = (
    helper.make_tensor("zero", TensorProto.INT32, [], [0]),
    helper.make_tensor("one", TensorProto.INT32, [], [1]),
    helper.make_tensor("rows", TensorProto.INT64, [1], [0]),
)


def _counting_rows() -> list[Any]:
    """ROWS is the number of rows of the batch, in each of them."""
    return [
        helper.make_node("Mul", ["VALUE", "zero"], ["zeros"]),
        helper.make_node("Add", ["zeros", "one"], ["ones"]),
        helper.make_node("ReduceSum", ["ones", "rows"], ["number"]),
        helper.make_node("Add", ["zeros", "number"], ["ROWS"]),
    ]


def _integers(*names: str) -> list[Any]:
    return [tensor(name, ("N", 1), TensorProto.INT32) for name in names]


def adding_start(path: Path) -> Path:
    """OUTPUT = INPUT + START where READY is 1: the network of Triton's `simple_sequence`."""
    return write(
        path,
        [
            helper.make_node("Add", ["INPUT", "START"], ["sum"]),
            helper.make_node("Mul", ["sum", "READY"], ["OUTPUT"]),
        ],
        _integers("INPUT", "START", "READY"),
        _integers("OUTPUT"),
    )


def adding_start_and_end(path: Path) -> Path:
    """OUTPUT = INPUT + START + END * CORRID, as in Triton's `simple_dyna_sequence`."""
    return write(
        path,
        [
            helper.make_node("Cast", ["CORRID"], ["number"], to=TensorProto.INT32),
            helper.make_node("Mul", ["END", "number"], ["last"]),
            helper.make_node("Add", ["INPUT", "START"], ["first"]),
            helper.make_node("Add", ["first", "last"], ["sum"]),
            helper.make_node("Mul", ["sum", "READY"], ["OUTPUT"]),
        ],
        [
            *_integers("INPUT", "START", "END", "READY"),
            tensor("CORRID", ("N", 1), TensorProto.UINT64),
        ],
        _integers("OUTPUT"),
    )


def summing(path: Path) -> Path:
    """TOTAL and the state AFTER = BEFORE + VALUE.

    PLACE is a row's place in the batch, ROWS their number, and BUSY that of those with READY.
    """
    return write(
        path,
        [
            *_counting_rows(),
            helper.make_node("Add", ["BEFORE", "VALUE"], ["AFTER"]),
            helper.make_node("Identity", ["AFTER"], ["TOTAL"]),
            helper.make_node("CumSum", ["ones", "zero"], ["PLACE"]),
            helper.make_node("ReduceSum", ["READY", "rows"], ["ready"]),
            helper.make_node("Add", ["zeros", "ready"], ["BUSY"]),
        ],
        _integers("VALUE", "READY", "BEFORE"),
        _integers("TOTAL", "AFTER", "PLACE", "ROWS", "BUSY"),
        _COUNTERS,
    )


def remembering(path: Path) -> Path:
    """The state AFTER is BEFORE with VALUE at its end."""
    return write(
        path,
        [*_counting_rows(), helper.make_node("Concat", ["BEFORE", "VALUE"], ["AFTER"], axis=1)],
        [*_integers("VALUE"), tensor("BEFORE", ("N", "M"), TensorProto.INT32)],
        [*_integers("ROWS"), tensor("AFTER", ("N", "M"), TensorProto.INT32)],
        _COUNTERS,
    )


def speaking(path: Path) -> Path:
    """The state AFTER is BEFORE with WORD at its end, TEXT the same with the sequence's name."""
    return write(
        path,
        [
            helper.make_node("StringConcat", ["BEFORE", "WORD"], ["AFTER"]),
            helper.make_node("StringConcat", ["NAME", "AFTER"], ["TEXT"]),
        ],
        [tensor(name, [1], TensorProto.STRING) for name in ("WORD", "NAME", "BEFORE")],
        [tensor(name, [1], TensorProto.STRING) for name in ("TEXT", "AFTER")],
    )
