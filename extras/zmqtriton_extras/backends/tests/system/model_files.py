"""Files of every framework for the tests that all of them have, written by a process of its own.

    python -m zmqtriton_extras.backends.tests.system.model_files onnxruntime DIRECTORY FACTOR ...

A process may not bear two frameworks, so this module imports each where it is needed. All models
answer rows of three numbers with FACTOR times each, a forest with FACTOR where one is above zero.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.support.needs import ROOT

#: Rows of it are what tests ask with.
WIDTH = 3


def _whole(path: Path) -> None:
    """Cut a file in its middle."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _nonsense(path: Path) -> None:
    path.write_text("this is no model\n")


def _other(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Replace bytes of a file, such as the name of an operator or a version."""

    def change(path: Path) -> None:
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new))

    return change


def _other_member(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Replace bytes of a member of an archive."""

    def change(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        assert any(old in data for data in members.values())
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data if b"\0" in data else data.replace(old, new))

    return change


class Breakage(NamedTuple):
    #: Does it to the file.
    apply: Callable[[Path], None]
    #: Stand in the reason.
    words: str
    #: Of the version directory, in place of the model's file.
    file: str = ""


class Kind(NamedTuple):
    """A framework: how its models are configured, and what is broken in which way."""

    backend: str
    module: str
    file: str
    input: str
    output: str
    breakages: Mapping[str, Breakage]
    #: Stand in the reason of a model without its file.
    missing: str = ""
    #: A forest tells only what is above zero.
    is_forest: bool = False

    @property
    def is_installed(self) -> bool:
        return find_spec(self.module) is not None

    @property
    def tensors(self) -> str:
        input_text = f'name: "{self.input}" data_type: TYPE_FP32 dims: [ {WIDTH} ]'
        output_text = f'name: "{self.output}" data_type: TYPE_FP32 dims: [ {WIDTH} ]'
        start = f'backend: "{self.backend}" max_batch_size: 8\n'
        return f"{start}input [ {{ {input_text} }} ]\noutput [ {{ {output_text} }} ]\n"

    def expected(self, rows: Any, factor: float) -> list[list[float]]:
        """Return the answer to rows."""
        values = ((rows > 0) if self.is_forest else rows) * np.float32(factor)
        return [[float(value) for value in row] for row in values]

    def write(self, *versions: tuple[Path, float]) -> None:
        """Write a file into each version directory, for this factor."""
        words = [word for path, factor in versions for word in (str(path), str(factor))]
        # the deprecations of the framework itself
        command = [sys.executable, "-W", "ignore", "-m", __name__, self.backend, *words]
        subprocess.run(
            command,
            check=True,
            cwd=ROOT,
            capture_output=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )


KINDS = (
    Kind(
        "onnxruntime",
        "onnxruntime",
        "model.onnx",
        "X",
        "Y",
        {
            "truncated": Breakage(_whole, "onnxruntime: "),
            "nonsense": Breakage(_nonsense, "Protobuf parsing failed"),
            "operator": Breakage(_other(b"Mul", b"Mxl"), "No Op registered for Mxl"),
        },
    ),
    Kind(
        "fil",
        "treelite",
        "checkpoint.tl",
        "input__0",
        "output__0",
        {
            "truncated": Breakage(_whole, "treelite: cannot read "),
            "nonsense": Breakage(_nonsense, "treelite: cannot read "),
        },
        is_forest=True,
    ),
    Kind(
        "pytorch",
        "torch",
        "model.pt",
        "INPUT__0",
        "OUTPUT__0",
        {
            "truncated": Breakage(_whole, "is no TorchScript"),
            "nonsense": Breakage(_nonsense, "is no TorchScript"),
            "operator": Breakage(_other_member(b"torch.mul", b"torch.mxl"), "Unknown builtin op"),
            "version": Breakage(_other_member(b"3\n", b"999\n"), "version"),
        },
    ),
    Kind(
        "openvino",
        "openvino",
        "model.xml",
        "X",
        "Y",
        {
            "truncated": Breakage(_whole, "openvino: cannot read "),
            "weights": Breakage(_whole, "openvino: cannot read ", "model.bin"),
            "nonsense": Breakage(_nonsense, "openvino: cannot read "),
            "operator": Breakage(_other(b'"Multiply"', b'"Mxltiply"'), "Mxltiply"),
        },
    ),
    Kind(
        "tensorflow",
        "tensorflow",
        "model.savedmodel",
        "x",
        "y",
        {
            "truncated": Breakage(
                _whole, "tensorflow: cannot load ", "model.savedmodel/saved_model.pb"
            ),
            "weights": Breakage(
                Path.unlink,
                "tensorflow: cannot load ",
                "model.savedmodel/variables/variables.index",
            ),
            "operator": Breakage(
                _other(b"Mul", b"Mxl"), "'Mxl'", "model.savedmodel/saved_model.pb"
            ),
        },
        # an empty directory does not tell which of the two formats is meant
        missing="unexpected 'platform' and 'backend' pair",
    ),
)


def _write_onnxruntime(path: Path, factor: float) -> None:
    from tests.support import onnx_models

    onnx_models.scaling(path / "model.onnx", factor)


def _write_fil(path: Path, factor: float) -> None:
    from treelite import model_builder

    targets = list(range(WIDTH))
    builder = model_builder.ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=model_builder.Metadata(
            num_feature=WIDTH,
            task_type="kRegressor",
            average_tree_output=False,
            num_target=WIDTH,
            num_class=[1] * WIDTH,
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=model_builder.TreeAnnotation(
            num_tree=WIDTH, target_id=targets, class_id=[0] * WIDTH
        ),
        postprocessor=model_builder.PostProcessorFunc(name="identity"),
        base_scores=[0.0] * WIDTH,
    )
    for target in targets:
        builder.start_tree()
        builder.start_node(0)
        builder.numerical_test(
            target, 0.0, default_left=True, opname="<=", left_child_key=1, right_child_key=2
        )
        builder.end_node()
        for key, value in ((1, 0.0), (2, factor)):
            builder.start_node(key)
            builder.leaf(value)
            builder.end_node()
        builder.end_tree()
    builder.commit().serialize(path / "checkpoint.tl")


def _write_pytorch(path: Path, factor: float) -> None:
    from zmqtriton_extras.backends.tests.system import torch_models

    torch_models.write_script(path / "model.pt", "Scaled", factor)


def _write_openvino(path: Path, factor: float) -> None:
    import openvino
    import openvino.opset13 as operators

    parameter = operators.parameter([-1, WIDTH], np.float32, name="X")
    factors = operators.constant(np.full((1, WIDTH), factor, dtype=np.float32))
    model = openvino.Model(
        [operators.result(operators.multiply(parameter, factors))], [parameter], "m"
    )
    model.inputs[0].tensor.set_names({"X"})
    model.outputs[0].tensor.set_names({"Y"})
    openvino.save_model(model, path / "model.xml", compress_to_fp16=False)


def _write_tensorflow(path: Path, factor: float) -> None:
    import tensorflow

    module = tensorflow.Module()
    module.factor = tensorflow.Variable(factor)
    spec = tensorflow.TensorSpec([None, WIDTH], tensorflow.float32, name="x")

    @tensorflow.function(input_signature=[spec])
    def scale(x: Any) -> Any:
        return {"y": module.factor * x}

    module.scale = scale
    directory = str(path / "model.savedmodel")
    tensorflow.saved_model.save(module, directory, signatures={"serving_default": scale})


def main(backend: str, *words: str) -> None:
    for directory, factor in zip(words[::2], words[1::2], strict=True):
        Path(directory).mkdir(parents=True)
        globals()[f"_write_{backend}"](Path(directory), float(factor))


if __name__ == "__main__":
    main(*sys.argv[1:])
