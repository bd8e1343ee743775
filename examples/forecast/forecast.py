"""How does this series go on? Exponential smoothing with trend and season, by statsmodels."""

import warnings
from typing import Annotated, NamedTuple

import pandas as pd
from pydantic import Field
from statsmodels.tsa.exponential_smoothing.ets import ETSModel

from zmqtriton import Refused, model


class Forecast(NamedTuple):
    mean: list[float]
    low: list[float]
    high: list[float]


SALES = [31, 40, 52, 35, 33, 43, 56, 38, 36, 46, 60, 41, 39, 50, 63, 44]


@model(instances=2, examples=[{"values": SALES, "steps": 8, "season": 4}])
def forecast(
    values: Annotated[list[float], Field(min_length=8, max_length=10_000)],
    steps: Annotated[int, Field(ge=1, le=1000)] = 12,
    season: Annotated[int, Field(ge=1, le=400, description="values in a season; 1: none")] = 1,
) -> Forecast:
    """Continue a series; four of five true values are expected between low and high."""
    if season > 1 and len(values) < 2 * season:
        raise Refused(f"{len(values)} values are less than two seasons of {season}")
    seasonal = {"seasonal": "add", "seasonal_periods": season} if season > 1 else {}
    series = ETSModel(pd.Series(values), trend="add", damped_trend=True, **seasonal)
    with warnings.catch_warnings():  # a series that is a straight line has no likelihood
        warnings.simplefilter("ignore")
        found = series.fit(disp=False).get_prediction(len(values), len(values) + steps - 1)
        table = found.summary_frame(alpha=0.2).round(3)
    return Forecast(*(table[name].tolist() for name in ("mean", "pi_lower", "pi_upper")))
