"""Pictures of digits are read as scikit-learn reads the digits themselves."""

import io

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def as_picture(digit: np.ndarray) -> bytes:
    paper = 255 - np.clip(digit.reshape(8, 8) * 16, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(paper).resize((200, 200), Image.Resampling.BICUBIC).save(file, "png")
    return file.getvalue()


def test_pictures_are_read_as_the_machine_reads_its_data(make, serve) -> None:
    make("train.py", "digits.joblib")
    server, data = serve("digits.py"), load_digits()
    _, unseen, _, expected = train_test_split(data.data, data.target, random_state=0)

    answers = [
        server.ask("digits", body=as_picture(digit), kind="image/png")["output"]["digit"]
        for digit in unseen[:100]
    ]

    assert np.mean(expected[:100] == answers) >= 0.95
