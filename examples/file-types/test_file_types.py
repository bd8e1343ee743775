"""What magika says when it is called directly, the server says."""

from pathlib import Path

import pytest
from magika import Magika

FILES = {
    "a letter": b"Just a few words of a letter, which nobody takes for a program.\n" * 3,
    "a program": b"import sys\n\n\ndef main() -> int:\n    print(sys.argv)\n    return 0\n" * 3,
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(200),
    "a document": b'{"name": "d", "values": [1, 2, 3], "more": {"a": null}}',
    "nothing much": b"\0",
}


def test_types_are_those_of_magika(serve, here: Path) -> None:
    server, magika = serve("file_types.py"), Magika()
    for data in FILES.values():
        answer = server.ask("file_types", body=data, kind="application/octet-stream")["output"]

        found = magika.identify_bytes(data)
        assert found.output.label == answer["label"]
        assert found.score == pytest.approx(answer["score"], abs=1e-3)
