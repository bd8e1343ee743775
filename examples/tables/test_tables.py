"""The growers are those that LightGBM predicts when it is called directly."""

from pathlib import Path

import lightgbm
import pytest
from sklearn.datasets import load_wine


def test_growers_are_those_of_the_trees(make, serve, here: Path) -> None:
    make("train.py", "growers.txt")
    server, wines = serve("tables.py"), load_wine(as_frame=True).data
    wines = wines.rename(columns={"od280/od315_of_diluted_wines": "od280"})

    answer = server.ask("growers", {"wines": wines.to_dict("records")})["output"]

    scores = lightgbm.Booster(model_file=here / "growers.txt").predict(wines.to_numpy())
    assert scores.argmax(1).tolist() == [each["grower"] for each in answer]
    assert scores.max(1).tolist() == pytest.approx([each["probability"] for each in answer])
