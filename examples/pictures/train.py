"""Train a diffusion model on the digits of scikit-learn: it learns to see a digit in noise.

Half a minute of one core.
"""

import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # several would wait for each other

import joblib
import numpy as np
from draw import SIGNAL, features
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPRegressor

data, rng = load_digits(), np.random.default_rng(0)
pictures, digits = data.data / 8 - 1, data.target
network = MLPRegressor(
    hidden_layer_sizes=(512, 512), batch_size=256, learning_rate_init=1e-3, random_state=0
)
for turn in range(1, 301):
    when = rng.integers(0, len(SIGNAL), len(pictures))
    signal, noise = SIGNAL[when, None], rng.normal(size=pictures.shape)
    noisy = np.sqrt(signal) * pictures + np.sqrt(1 - signal) * noise
    network.partial_fit(features(noisy, when, digits), pictures)
    if turn % 60 == 0:
        print(f"{turn} times all digits: loss {network.loss_:.3f}")
joblib.dump(network, Path(__file__).parent / "network.joblib")
