"""Has a model compute the rows of a picture, and draws it: `python job.py [--rows N]`."""

import argparse
import sys
import time
from collections import deque
from pathlib import Path

import numpy as np

import zmqtriton

MODELS = Path(__file__).parent / "models"
#: Enough for two instances and batches of sixteen, with as many waiting.
UNDER_WAY = 64
SHADES = " .:-=+*#%@"
BAR = 40


def results(model, rows):
    """One result after the other, in order; the next are under way meanwhile."""
    waiting = deque()
    for row in rows:
        if len(waiting) == UNDER_WAY:
            yield next(waiting.popleft()).outputs["STEPS"][0]
        waiting.append(model.infer(inputs={"IMAGINARY": np.array([[row]])}))
    while waiting:
        yield next(waiting.popleft()).outputs["STEPS"][0]


def progress(items, total):
    """The same items, with a bar on stderr; where that is no terminal, with its last state."""
    begin = time.monotonic()
    for done, item in enumerate(items, 1):
        rate = done / max(time.monotonic() - begin, 1e-9)
        filled = "█" * (BAR * done // total)
        if done == total or sys.stderr.isatty():
            sys.stderr.write(f"\r{filled:{BAR}} {done}/{total}, {rate:.0f} a second")
        yield item
    sys.stderr.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=256)
    arguments = parser.parse_args()
    rows = np.linspace(-1.2, 1.2, arguments.rows)
    with zmqtriton.Server(MODELS) as server:
        found = progress(results(server.model("mandelbrot"), rows), len(rows))
        picture = np.array([steps.copy() for steps in found])
    for line in picture[:: max(1, len(rows) // 24)]:
        shades = np.log2(line[::7]) / np.log2(picture.max()) * (len(SHADES) - 1)
        print("".join(SHADES[int(shade)] for shade in shades))


if __name__ == "__main__":
    main()
