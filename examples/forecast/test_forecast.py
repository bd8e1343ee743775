"""A forecast is what statsmodels makes when it is called directly, and it comes true."""

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.tsa.exponential_smoothing.ets import ETSModel


def test_a_forecast_is_that_of_statsmodels(serve) -> None:
    monthly = sm.datasets.co2.load_pandas().data["co2"].resample("MS").mean().interpolate()
    known, later = monthly[:-24], monthly[-24:].to_numpy()
    server = serve("forecast.py")

    answer = server.ask("forecast", {"values": known.tolist(), "steps": 24, "season": 12})

    directly = ETSModel(
        known, trend="add", damped_trend=True, seasonal="add", seasonal_periods=12
    ).fit(disp=False)
    assert directly.forecast(24).tolist() == pytest.approx(answer["mean"], abs=0.01)
    inside = (np.array(answer["low"]) <= later) & (later <= np.array(answer["high"]))
    assert inside.mean() > 0.7
