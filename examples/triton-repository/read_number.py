"""Send a picture of a number, by default `number.png`, to the server."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from tritonclient.http import InferenceServerClient, InferInput


def read(url: str, picture: Image.Image) -> tuple[str, float]:
    """Return the number, and the probability that all its digits are right."""
    grey = np.asarray(picture.convert("L"))
    tensor = InferInput("PICTURE", grey.shape, "UINT8")
    tensor.set_data_from_numpy(grey)
    with InferenceServerClient(url) as client:
        result = client.infer("number", [tensor])
    return result.as_numpy("NUMBER")[0].decode(), float(result.as_numpy("PROBABILITY")[0])


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "number.png"
    number, probability = read("localhost:8000", Image.open(path))
    print(f"{number}  ({probability:.0%})")
