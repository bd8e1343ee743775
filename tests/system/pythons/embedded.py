"""Run by each Python: a server in this process's service, asked without a port.

Prints "as expected". The argument is a repository with add_sub, doubled and tokens.
"""

from __future__ import annotations

import sys

import numpy as np

import zmqtriton


def main(repository: str) -> None:
    ones = np.ones((1, 16), np.float32)
    with zmqtriton.Server(repository, log_info=False) as server:
        for model, names, expected in (
            ("add_sub", ("INPUT0", "INPUT1"), {"OUTPUT0": 2, "OUTPUT1": 0}),
            ("doubled", ("LEFT", "RIGHT"), {"LEFT_TWICE": 2, "RIGHT_TWICE": 2}),
        ):
            [response] = server.model(model).infer(inputs=dict.fromkeys(names, ones))
            assert {name: array[0, 0] for name, array in response.outputs.items()} == expected
        tokens = server.model("tokens").infer(inputs={"COUNT": [3]})
        words = [response.outputs["TOKEN"][0] for response in tokens if response.outputs]
        assert words == [b"token0", b"token1", b"token2"], words
    sys.stdout.write("as expected\n")


if __name__ == "__main__":
    main(sys.argv[1])
