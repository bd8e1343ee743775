"""Names of the package `zmqtriton` that add-ons have: the modules that programs import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: An add-on of another distribution: a package, a module within it, and a single name.
DECLARED = """
from zmqtriton.sdk import AddOn
ADDON = AddOn("greeting", public={"greeting": ".hello", "Greeting": ".hello.texts:Text"})
"""
FILES = {
    "greeting-1.0.dist-info/entry_points.txt": "[zmqtriton.addons]\ngreeting = polite\n",
    "polite/__init__.py": DECLARED,
    "polite/hello/__init__.py": "print('imported')\n",
    "polite/hello/__main__.py": "import sys\nprint(__name__, sys.argv)\n",
    "polite/hello/texts.py": "class Text: ...\n",
}


def run(code: str, *words: str, path: Path | None = None) -> str:
    """Return the last line of an interpreter's outputs."""
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = f"{path}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, *(["-c", code] if code else []), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return (done.stdout + done.stderr).rstrip().rpartition("\n")[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def extra(names: str, *values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.extra(*names.split()))


@pytest.mark.parametrize(
    ("code", "place"),
    [
        extra("pytriton", "import zmqtriton.pytriton as it", "zmqtriton_extras.pytriton"),
        extra(
            "pytriton",
            "import zmqtriton.pytriton.client; it = zmqtriton.pytriton.client",
            "zmqtriton_extras.pytriton.client",
        ),
        extra(
            "pytriton",
            "from zmqtriton.pytriton.client import exceptions as it",
            "zmqtriton_extras.pytriton.client.exceptions",
        ),
        extra("door", "import zmqtriton.door as it", "zmqtriton_extras.door.client"),
        extra("routes", "import zmqtriton.routes as it", "zmqtriton_extras.routes.backend.api"),
        extra("authoring", "import zmqtriton.testing as it", "zmqtriton_extras.authoring.testing"),
    ],
)
@pytest.mark.parametrize(
    "is_public_first",
    [
        True,
        pytest.param(
            False,
            marks=pytest.mark.long(
                "command_line/test_public_names.py::test_a_module_is_the_same_by_both_names"
            ),
        ),
    ],
)
def test_a_module_is_the_same_by_both_names(code: str, place: str, is_public_first: bool) -> None:
    other = f"import importlib; other = importlib.import_module({place!r})"
    both = [code, other] if is_public_first else [other, code]

    assert "True True" == run(
        "\n".join([*both, f"print(it is other, it.__spec__.name == {place!r})"])
    )


@pytest.mark.parametrize(
    "code",
    [
        extra("pytriton", "from zmqtriton.pytriton.decorators import batch as it"),
        extra("door", "from zmqtriton import Door as it"),
        extra("routes", "from zmqtriton.routes import route as it"),
        extra("authoring", "from zmqtriton.testing import load_model as it"),
        extra("authoring capture", "from zmqtriton.testing import Case as it"),
        extra("authoring routes", "import zmqtriton.testing; it = zmqtriton.testing.RouteAnswer"),
        "import zmqtriton; it = zmqtriton.connect",
    ],
)
def test_a_name_is_imported(code: str) -> None:
    assert "True" == run(f"{code}\nprint(callable(it))")


@pytest.mark.extra("fleet")
def test_the_application_of_ray_needs_ray_alone(path: Path) -> None:
    (path / "ray").mkdir()
    (path / "ray/__init__.py").write_text("raise ImportError('that of the test')")

    assert "ImportError: that of the test" == run("import zmqtriton.ray", path=path)


def test_names_of_another_distribution_are_found(path: Path) -> None:
    script = """
from zmqtriton import Greeting
import zmqtriton.greeting.texts, polite.hello.texts
print(zmqtriton.greeting.texts is polite.hello.texts, Greeting is polite.hello.texts.Text)
"""
    assert "True True" == run(script, path=path)
    assert f"__main__ ['{path}/polite/hello/__main__.py', 'word']" == run(
        "", "-m", "zmqtriton.greeting", "word", path=path
    )


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (
            "import zmqtriton.greeting",
            "ModuleNotFoundError: No module named 'zmqtriton.greeting': neither zmqtriton nor an "
            "add-on that is installed has it",
        ),
        (
            "import zmqtriton; zmqtriton.Greeting",
            "AttributeError: no add-on that is installed has 'zmqtriton.Greeting'",
        ),
        (
            "import zmqtriton.testing; zmqtriton.testing.greeted",
            "AttributeError: no add-on that is installed has 'zmqtriton.testing.greeted'",
        ),
        (
            "import zmqtriton.config.greeting",
            "ModuleNotFoundError: No module named 'zmqtriton.config.greeting'",
        ),
        (
            "import zmqtriton.testing.greeting",
            "ModuleNotFoundError: No module named 'zmqtriton.testing.greeting'",
        ),
    ],
)
def test_a_name_that_no_add_on_has_is_said_to_be_missing(code: str, error: str) -> None:
    assert error == run(code)


def test_declarations_are_read_when_such_a_name_is_asked_for(path: Path) -> None:
    script = """
import sys, zmqtriton, zmqtriton.config
from zmqtriton import findings
read = lambda: {"zmqtriton.addons", "polite", "polite.hello"} & {*sys.modules}
before = read()
assert hasattr(zmqtriton, "Greeting")
print(before, sorted(read()))
"""
    assert "set() ['polite', 'polite.hello', 'zmqtriton.addons']" == run(script, path=path)
