"""Train on the 1,797 digits that scikit-learn brings, and write a number as a picture."""

from pathlib import Path

import joblib
import numpy as np
from PIL import Image
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

#: Width and height of a digit in a picture.
SIZE = 120


def picture_of(digits: np.ndarray) -> Image.Image:
    """Return digits of 8 times 8 fields as a picture of a number, dark on light."""
    page = Image.new("L", (SIZE * len(digits), SIZE + 40), 255)
    for place, digit in enumerate(digits):
        paper = 255 - np.clip(digit.reshape(8, 8) * 16, 0, 255).astype(np.uint8)
        drawn = Image.fromarray(paper).resize((SIZE - 20, SIZE), Image.Resampling.BICUBIC)
        page.paste(drawn, (SIZE * place + 10, 20))
    return page


if __name__ == "__main__":
    here, data = Path(__file__).parent, load_digits()
    train, test, digits, expected = train_test_split(data.data, data.target, random_state=0)
    machine = CalibratedClassifierCV(SVC(gamma=0.001), ensemble=False).fit(train, digits)
    joblib.dump(machine, here / "models" / "classify" / "1" / "digits.joblib")
    print(f"{machine.score(test, expected):.1%} of {len(test)} new digits are right")
    picture_of(test[:4]).save(here / "number.png")
    print("number.png is", "".join(map(str, expected[:4])))
