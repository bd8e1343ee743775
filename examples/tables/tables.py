"""Is this wine from grower 0, 1 or 2? Trees by LightGBM, asked with rows of a table."""

import json
from pathlib import Path
from typing import TypedDict

import lightgbm
import numpy as np

from zmqtriton import model


class Wine(TypedDict):
    alcohol: float
    malic_acid: float
    ash: float
    alcalinity_of_ash: float
    magnesium: float
    total_phenols: float
    flavanoids: float
    nonflavanoid_phenols: float
    proanthocyanins: float
    color_intensity: float
    hue: float
    od280: float
    proline: float


class Grower(TypedDict):
    grower: int
    probability: float


@model(examples=[json.loads((Path(__file__).parent / "rows.json").read_text())])
class Growers:
    """Tell the growers of wines by the results of their analyses."""

    def __init__(self) -> None:
        path = Path(__file__).parent / "growers.txt"
        self.booster = lightgbm.Booster(model_file=path)

    def __call__(self, wines: list[Wine]) -> list[Grower]:
        rows = np.array([[wine[name] for name in Wine.__annotations__] for wine in wines])
        scores = self.booster.predict(rows, num_threads=1)
        return [Grower(grower=int(s.argmax()), probability=float(s.max())) for s in scores]
