"""Files of functions are known by their text."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton_extras.functions.sources import models_in

NAMED = "@zmqtriton.model(name='b')\ndef c(): ..."


@pytest.mark.parametrize(
    ("names", "source"),
    [
        (("caption",), "from zmqtriton import model\n@model\ndef caption(): ..."),
        (("caption",), "from zmqtriton import Failed, model as m\n@m(batch=2)\nclass Caption: ..."),
        (("a",), "import zmqtriton as z\n@z.model\nasync def a(): ..."),
        (("a", "b"), "import zmqtriton\n@zmqtriton.model\ndef a(): ...\n" + NAMED),
        ((), "from zmqtriton import model\n@model\nclass TritonPythonModel: ..."),
        ((), "from other import model  # zmqtriton\n@model\ndef caption(): ..."),
        ((), "from zmqtriton import model\ndef caption(): ..."),
        ((), "from zmqtriton import model\ndef caption(:"),
        ((), "class TritonPythonModel: ..."),
    ],
)  # fmt: skip
def test_names_of_models_are_read_without_an_import(
    tmp_path: Path, names: tuple[str, ...], source: str
) -> None:
    file = tmp_path / "file.py"
    file.write_text(source)

    assert names == models_in(file)
