"""XGBoost's own files; `make test KIND=frameworks` has it installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zmqtriton_extras.backends.tests.served import Served

xgboost = pytest.importorskip("xgboost")


@pytest.mark.parametrize("name", ["xgboost.json", "xgboost.ubj"])
def test_it_answers_as_xgboost_does(tmp_path: Path, name: str) -> None:
    rows = np.random.default_rng(5).normal(size=(200, 4)).astype(np.float32)
    settings = {"objective": "binary:logistic", "max_depth": 2, "nthread": 1}
    forest = xgboost.train(settings, xgboost.DMatrix(rows, (rows[:, 0] > 0).astype(int)), 5)
    (tmp_path / "m" / "1").mkdir(parents=True)
    forest.save_model(tmp_path / "m" / "1" / name)
    text = 'backend: "fil" parameters { key: "predict_proba" value { string_value: "true" } }'

    outputs = Served(tmp_path / "m", text).ask(input__0=rows[:9])

    expected = forest.predict(xgboost.DMatrix(rows[:9]))
    np.testing.assert_allclose(outputs["output__0"], expected, rtol=1e-5)
