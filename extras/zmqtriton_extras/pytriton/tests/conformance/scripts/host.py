"""Binds the models of the scripts that it is told, and serves them until its input ends.

    host.py HTTP GRPC METRICS SCRIPT …

The file `ready` in its directory says that it serves.
"""

import importlib
import sys
from pathlib import Path

from zmqtriton.pytriton.triton import Triton, TritonConfig, TritonSecurityConfig


def main():
    http, grpc, metrics = (int(port) for port in sys.argv[1:4])
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=http,
        grpc_address="127.0.0.1",
        grpc_port=grpc,
        metrics_port=metrics,
        http_header_forward_pattern="x-.*",
        grpc_header_forward_pattern="x-.*",
        cache_config=["local,size=1048576"],
    )
    with Triton(config=config, security_config=TritonSecurityConfig("secret")) as triton:
        for name in sys.argv[4:]:
            importlib.import_module(name).bind(triton)
        Path("ready").touch()
        sys.stdin.read()


if __name__ == "__main__":
    main()
