"""Numbers are read as the machine reads their digits when it is called directly."""

from pathlib import Path

import joblib
import numpy as np
import pytest
from PIL import Image
from read_number import read
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from train import picture_of
from tritonclient.utils import InferenceServerException


def test_numbers_are_read_as_the_machine_reads_their_digits(make, serve, here: Path) -> None:
    make("train.py", "number.png")
    server, data = serve("models"), load_digits()
    machine = joblib.load(here / "models" / "classify" / "1" / "digits.joblib")
    _, unseen, _, _ = train_test_split(data.data, data.target, random_state=0)
    url = f"localhost:{server.port}"
    right = []
    for length in range(1, 11):
        digits = unseen[10 * length : 11 * length]

        number, probability = read(url, picture_of(digits))

        directly = machine.predict(digits)
        right += [int(one) == other for one, other in zip(number, directly, strict=True)]
        assert 0 < probability <= 1
    assert np.mean(right) >= 0.95

    with pytest.raises(InferenceServerException, match="nothing is written there"):
        read(url, Image.new("L", (200, 100), 255))
