"""Serves a function as a model, until Ctrl-C: `python serve.py`."""

import numpy as np

from zmqtriton.pytriton.decorators import batch
from zmqtriton.pytriton.model_config import ModelConfig, Tensor
from zmqtriton.pytriton.triton import Triton

# Length and width of sepals and petals, in centimetres, as Fisher published them.
SETOSA = [[5.1, 3.5, 1.4, 0.2], [4.9, 3.0, 1.4, 0.2], [5.0, 3.6, 1.4, 0.2]]
VERSICOLOR = [[7.0, 3.2, 4.7, 1.4], [6.4, 3.2, 4.5, 1.5], [5.5, 2.3, 4.0, 1.3]]
VIRGINICA = [[6.3, 3.3, 6.0, 2.5], [5.8, 2.7, 5.1, 1.9], [7.1, 3.0, 5.9, 2.1]]
KNOWN = np.array([*SETOSA, *VERSICOLOR, *VIRGINICA], dtype=np.float32)
LABELS = np.array([b"setosa"] * 3 + [b"versicolor"] * 3 + [b"virginica"] * 3)


@batch
def classify(flowers):
    """One label for each row, of however many requests the rows are."""
    distances = np.linalg.norm(flowers[:, np.newaxis] - KNOWN, axis=2)
    nearest = distances.argmin(axis=1, keepdims=True)
    return {"label": LABELS[nearest], "distance": np.take_along_axis(distances, nearest, axis=1)}


if __name__ == "__main__":
    with Triton() as triton:
        triton.bind(
            model_name="iris",
            infer_func=classify,
            inputs=[Tensor(name="flowers", dtype=np.float32, shape=(4,))],
            outputs=[
                Tensor(name="label", dtype=bytes, shape=(1,)),
                Tensor(name="distance", dtype=np.float32, shape=(1,)),
            ],
            config=ModelConfig(max_batch_size=64),
        )
        triton.serve()
