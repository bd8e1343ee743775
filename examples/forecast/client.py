"""Continue the carbon dioxide that Mauna Loa measured until 2001 by two years, and draw it."""

import statsmodels.api as sm

import zmqtriton

monthly = sm.datasets.co2.load_pandas().data["co2"].resample("MS").mean().interpolate()
known, later = monthly[:-24], monthly[-24:]
with zmqtriton.connect() as server:
    found = server.forecast(values=known.tolist(), steps=24, season=12)
inside = 0
for date, true, mean, low, high in zip(later.index, later, found.mean, found.low, found.high):
    inside += low <= true <= high
    print(f"{date:%Y-%m}  {true:6.1f}  {mean:6.1f}  {' ' * round(2 * (mean - 360))}*")
print(f"{inside} of {len(later)} true values lie between low and high")
