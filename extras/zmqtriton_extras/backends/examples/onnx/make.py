"""Makes the ONNX file: the colour that is nearest has the highest score."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: The colours of the names in client.py.
CENTRES = np.array(
    [[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]], dtype=np.float32
)
FILE = Path(__file__).resolve().parent / "models" / "colours" / "1" / "model.onnx"


def main():
    # the square of a distance, as far as it depends on the centre, is linear in the colour
    weights = numpy_helper.from_array(2 * CENTRES.T, "weights")
    bias = numpy_helper.from_array(-(CENTRES**2).sum(axis=1), "bias")
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["RGB", "weights", "bias"], ["SCORES"])],
        "colours",
        [helper.make_tensor_value_info("RGB", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("SCORES", TensorProto.FLOAT, ["batch", len(CENTRES)])],
        [weights, bias],
    )
    FILE.parent.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, FILE)
    print(f"made {FILE}")


if __name__ == "__main__":
    main()
