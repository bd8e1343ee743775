"""Grows the forest: it learns which of the colours in client.py is nearest."""

from pathlib import Path

import lightgbm
import numpy as np

#: The colours of the names in client.py.
CENTRES = np.array(
    [[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]], dtype=np.float32
)
FILE = Path(__file__).resolve().parent / "models" / "colours" / "1" / "model.txt"


def main():
    colours = np.random.default_rng(1).random((20000, 3))
    distances = ((colours[:, None] - CENTRES) ** 2).sum(axis=2)
    settings = {"objective": "multiclass", "num_class": len(CENTRES), "verbose": -1}
    data = lightgbm.Dataset(colours, distances.argmin(axis=1))
    FILE.parent.mkdir(parents=True, exist_ok=True)
    lightgbm.train(settings, data, 20).save_model(FILE)
    print(f"made {FILE}")


if __name__ == "__main__":
    main()
