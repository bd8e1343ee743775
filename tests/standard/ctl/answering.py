"""A port that gives one answer, whatever it is asked, and is closed then."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def answering(answer: bytes, *, ends: bool = False) -> Iterator[str]:
    """Yield the URL; with an empty answer the port says nothing, or only `ends`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            listener.close()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                if not (answer or ends):
                    done.wait(30)

        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield url
        finally:
            done.set()
            thread.join()
