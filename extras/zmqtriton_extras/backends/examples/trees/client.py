"""Asks for the names of colours: `python client.py [--serve | --url HOST:PORT] [RRGGBB ...]`."""

import argparse
import sys
from pathlib import Path

import numpy as np

NAMES = ["black", "white", "red", "green", "blue", "yellow"]
COLOURS = ["ff2010", "102030", "f0f0e0", "20e040", "0000c0", "fff010"]


def ask_http(url, rows):
    """Return the answers of a server that runs."""
    import tritonclient.http as triton

    with triton.InferenceServerClient(url) as client:
        for row in rows:
            rgb = triton.InferInput("input__0", list(row.shape), "FP32")
            rgb.set_data_from_numpy(row)
            yield client.infer("colours", [rgb]).as_numpy("output__0")


def ask_own(rows):
    """Return the answers of a server that is started here and ended again."""
    import zmqtriton

    models = Path(__file__).resolve().parent / "models"
    with zmqtriton.Server(models) as server:
        model = server.model("colours")
        # all are under way before the first is read, so the server makes batches of them
        pending = [model.infer(inputs={"input__0": row}) for row in rows]
        for answers in pending:
            yield next(answers).outputs["output__0"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("--serve", action="store_true", help="start a server for this question")
    parser.add_argument("colours", nargs="*", default=COLOURS)
    arguments = parser.parse_args()
    rows = [
        np.array([list(bytes.fromhex(colour))], dtype=np.float32) / 255
        for colour in arguments.colours
    ]
    try:
        answers = ask_own(rows) if arguments.serve else ask_http(arguments.url, rows)
        for colour, answer in zip(arguments.colours, answers):
            print(f"{colour}: {NAMES[int(answer[0])]}")
    except OSError as error:
        sys.exit(f"no server answers on {arguments.url}, see README.md: {error}")


if __name__ == "__main__":
    main()
