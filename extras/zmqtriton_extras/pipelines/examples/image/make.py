"""Draws images of six patterns, trains the classifier with them, and leaves some as samples."""

import struct
import sys
import zlib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
for model in ("core", "preprocessing"):
    sys.path.insert(0, str(HERE / "models" / model / "1"))

from features import features  # noqa: E402
from pictures import to_input  # noqa: E402

LABELS = ["across", "checkers", "down", "gradient", "noise", "spots"]
IMAGES_OF_EACH = 60


def draw(label, random):
    """Return an 8-bit image (height, width, 3): two colours in this pattern, and a little noise."""
    height, width = random.integers(200, 260, 2)
    y, x = np.mgrid[:height, :width].astype(np.float64)
    period = random.uniform(0.16, 0.26) * min(height, width)
    start = random.uniform(0, period, 2)
    across = np.sin(2 * np.pi * (y + start[0]) / period) > 0
    down = np.sin(2 * np.pi * (x + start[1]) / period) > 0
    if label == "across":
        mask = across
    elif label == "down":
        mask = down
    elif label == "checkers":
        mask = across ^ down
    elif label == "gradient":
        mask = y / height if random.random() < 0.5 else x / width
    elif label == "noise":
        mask = random.random((height, width))
    else:
        mask = np.zeros((height, width), bool)
        for _ in range(12):
            at_y, at_x = random.uniform(0, height), random.uniform(0, width)
            mask |= (y - at_y) ** 2 + (x - at_x) ** 2 < (min(height, width) / 14) ** 2
    dark, light = random.uniform(0, 90, 3), random.uniform(160, 255, 3)
    image = dark + np.asarray(mask, np.float64)[..., None] * (light - dark)
    return np.clip(image + random.normal(0, 6, image.shape), 0, 255).astype(np.uint8)


def train(random):
    """Return the weights of a linear classifier, by ridge regression towards +1 and -1."""
    rows, targets = [], []
    for number, label in enumerate(LABELS):
        for _ in range(IMAGES_OF_EACH):
            rows.append(features(to_input(draw(label, random))[None])[0])
            targets.append(np.where(np.arange(len(LABELS)) == number, 1.0, -1.0))
    x, y = np.stack(rows).astype(np.float64), np.stack(targets)
    mean, scale = x.mean(0), x.std(0) + 1e-6
    x = (x - mean) / scale
    weights = np.linalg.solve(x.T @ x + 80.0 * np.eye(x.shape[1]), x.T @ (y - y.mean(0)))
    # the margins of a regression are about 1; softmax needs larger ones to be sure of anything
    return {"mean": mean, "scale": scale, "weights": 4 * weights, "bias": 4 * y.mean(0)}


def png(image):
    """Return the image as a PNG file."""
    height, width, _ = image.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)

    def chunk(kind, data):
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in parts)


def main():
    random = np.random.default_rng(7)
    weights = {name: array.astype(np.float32) for name, array in train(random).items()}
    np.savez(HERE / "models" / "core" / "1" / "weights.npz", **weights)
    (HERE / "models" / "core" / "labels.txt").write_text("\n".join(LABELS) + "\n")
    samples = HERE / "samples"
    samples.mkdir(exist_ok=True)
    for label in LABELS:
        (samples / f"{label}.png").write_bytes(png(draw(label, random)))
    print(
        f"{len(LABELS) * IMAGES_OF_EACH} images seen; weights in models/core/1, {samples} written"
    )


if __name__ == "__main__":
    main()
