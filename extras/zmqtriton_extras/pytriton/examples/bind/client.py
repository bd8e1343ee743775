"""Asks for the names of irises: `python client.py [--url HOST:PORT] [FLOWER ...]`.

A flower is four numbers, as in 5.1,3.5,1.4,0.2: length and width of a sepal, then of a petal.
"""

import argparse
import sys

import numpy as np

from zmqtriton.pytriton.client import ModelClient
from zmqtriton.pytriton.client.exceptions import PyTritonClientTimeoutError

FLOWERS = ["5.4,3.9,1.7,0.4", "6.0,2.9,4.5,1.5", "6.7,3.1,5.6,2.4"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("flowers", nargs="*", default=FLOWERS)
    arguments = parser.parse_args()
    rows = [[float(number) for number in text.split(",")] for text in arguments.flowers]
    try:
        # so long it waits for a server that still starts
        with ModelClient(arguments.url, "iris", init_timeout_s=5) as client:
            answer = client.infer_batch(flowers=np.array(rows, dtype=np.float32))
    except PyTritonClientTimeoutError as error:
        sys.exit(f"no server answers on {arguments.url}, see README.md: {error}")
    for text, label, distance in zip(arguments.flowers, answer["label"], answer["distance"]):
        print(f"{label[0].decode()} ({distance[0]:.2f} cm away): {text}")


if __name__ == "__main__":
    main()
