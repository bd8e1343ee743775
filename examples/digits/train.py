"""Train on the 1,797 digits that scikit-learn brings, and write one as a picture: five seconds."""

from pathlib import Path

import joblib
import numpy as np
from PIL import Image
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

here, data = Path(__file__).parent, load_digits()
train, test, digits, expected = train_test_split(data.data, data.target, random_state=0)
machine = CalibratedClassifierCV(SVC(gamma=0.001), ensemble=False).fit(train, digits)
joblib.dump(machine, here / "digits.joblib")
print(f"{machine.score(test, expected):.1%} of {len(test)} digits that it has not seen are right")
paper = 255 - np.clip(test[0].reshape(8, 8) * 16, 0, 255).astype(np.uint8)
Image.fromarray(paper).resize((240, 240), Image.Resampling.BICUBIC).save(here / "digit.png")
print(f"digit.png is a {expected[0]}")
