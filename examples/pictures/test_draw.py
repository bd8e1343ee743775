"""What is drawn is the digit that was asked for, says scikit-learn; previews lead up to it."""

import base64
import io

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.svm import SVC


def as_array(picture: str) -> np.ndarray:
    data = base64.b64decode(picture.partition(",")[2])
    return 16 - np.asarray(Image.open(io.BytesIO(data)), float).ravel() / 16


def test_drawn_digits_are_read_as_what_was_asked_for(make, serve) -> None:
    make("train.py", "network.joblib")
    server, data = serve("draw.py"), load_digits()
    machine = SVC(gamma=0.001).fit(data.data, data.target)
    right = 0
    for digit in range(10):
        for seed in range(3):
            asked = {"digit": digit, "seed": seed, "previews": 4, "size": 8}
            pictures = [as_array(picture) for picture in server.ask("draw", asked)]

            assert len(pictures) == 4
            right += machine.predict(pictures[-1:])[0] == digit
    assert right >= 28
