"""A client that owns memory on a GPU and asks with it until it is killed; kills.py starts it.

    python -m tests.gpu.owner MEMORY ADDRESS NUMBER DIRECTORY

Prints for each request whether the answer was right.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tritonclient.grpc

from tests.gpu.kills import InRegions
from tests.support.gpus.regions import Regions, client_cuda


def main() -> None:
    memory, address, number, directory = sys.argv[1:]
    place: Any = SimpleNamespace(scratch=Path(directory))
    client = tritonclient.grpc.InferenceServerClient(address)
    with client_cuda(place, memory) as cuda:
        ask = InRegions(Regions(cuda, client), f"owner-{number}")
        while True:
            print("right" if ask(client) else "WRONG", flush=True)


if __name__ == "__main__":
    main()
