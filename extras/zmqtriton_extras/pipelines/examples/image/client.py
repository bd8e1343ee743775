"""Classifies the patterns of images: `python client.py [--url HOST:PORT] [FILE.png ...]`."""

import argparse
import sys
from pathlib import Path

import numpy as np
import tritonclient.http as triton


def ask(client, model, files):
    """Return one label for each file, from a single request."""
    images = np.array([path.read_bytes() for path in files], dtype=np.object_)
    image = triton.InferInput("image", list(images.shape), "BYTES")
    image.set_data_from_numpy(images)
    labels = client.infer(model, [image]).as_numpy("result")
    return [label.decode() for label in labels]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    samples = Path(__file__).resolve().parent / "samples"
    files = arguments.files or sorted(samples.glob("*.png"))
    if not files:
        sys.exit("no images: make.py makes some")
    try:
        with triton.InferenceServerClient(arguments.url) as client:
            labels = ask(client, "ensemble", files)
            if labels != ask(client, "bls", files):
                sys.exit("the ensemble and the model that calls the others answer differently")
    except OSError as error:
        sys.exit(f"no server answers on {arguments.url}, see README.md: {error}")
    for path, label in zip(files, labels):
        print(f"{path.name}: {label}")


if __name__ == "__main__":
    main()
