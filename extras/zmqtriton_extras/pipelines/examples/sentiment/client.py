"""Asks the server about texts: `python client.py [--url HOST:PORT] [TEXT ...]`."""

import argparse
import sys

import numpy as np
import tritonclient.http as triton

TEXTS = [
    "The film was wonderful.",
    "The hotel was not good.",
    "I do not regret this trip!",
    "I really hated this song.",
    "the service was quite slow, and the waiter rude",
]


def ask(client, model, texts):
    """Return (label, probability) for each text, from a single request."""
    query = triton.InferInput("QUERY", [len(texts), 1], "BYTES")
    query.set_data_from_numpy(np.array([[text.encode()] for text in texts], dtype=np.object_))
    answer = client.infer(model, [query])
    labels, scores = answer.as_numpy("LABEL")[:, 0], answer.as_numpy("SCORE")[:, 0]
    return [(label.decode(), float(score)) for label, score in zip(labels, scores)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8000")
    parser.add_argument("texts", nargs="*", default=TEXTS)
    arguments = parser.parse_args()
    try:
        with triton.InferenceServerClient(arguments.url) as client:
            verdicts = ask(client, "sentiment", arguments.texts)
            if verdicts != ask(client, "sentiment_bls", arguments.texts):
                sys.exit("the ensemble and the model that calls the others answer differently")
    except OSError as error:
        sys.exit(f"no server answers on {arguments.url}, see README.md: {error}")
    for text, (label, score) in zip(arguments.texts, verdicts):
        print(f"{label} {score:.2f}: {text}")


if __name__ == "__main__":
    main()
