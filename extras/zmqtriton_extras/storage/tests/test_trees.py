from __future__ import annotations

import pytest

from zmqtriton_extras.storage.tests.fake_store import OLD
from zmqtriton_extras.storage.trees import StoredObject, build_tree, digest, group_by_model
from zmqtriton_floor.errors import InvalidArgument


def entry(path: str, size: int = 1, tag: str = "t") -> StoredObject:
    return StoredObject(path, size, tag, OLD)


def test_the_first_name_is_the_model_s_and_hidden_ones_are_none() -> None:
    names = ["m/1/model.py", "m/config.pbtxt", "n/1/model.py", ".git/x", "__pycache__/x", "README"]

    by_model = group_by_model([entry(name) for name in names])

    assert {"m": ["1/model.py", "config.pbtxt"], "n": ["1/model.py"]} == {
        model: [one.path for one in objects] for model, objects in by_model.items()
    }


@pytest.mark.row("F21")
@pytest.mark.parametrize(
    "path",
    ["../x", "1/../../x", "/etc/x", "1//x", "./x", "1/a\nb", "x\0", "a" * 256, "a/" * 65 + "a"],
)
def test_a_name_that_cannot_be_a_file_s_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument, match="has a name that no file can have"):
        build_tree([entry("1/model.py"), entry(path)])


def test_a_file_that_is_a_folder_too_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="the object '1' is both a file and a folder"):
        build_tree([entry("1"), entry("1/model.py")])


def test_what_consoles_make_of_folders_are_directories() -> None:
    tree = build_tree([entry("1", 0), entry("data", 0), entry("data/x"), entry("empty", 0)])

    assert ("1", "data") == tree.directories
    assert ["data/x", "empty"] == sorted(tree.files)


def test_the_digest_differs_with_any_name_size_and_tag_and_not_with_the_order() -> None:
    some = [entry("a"), entry("b")]
    others = [
        [entry("a")],
        [entry("a"), entry("c")],
        [entry("a", 2), entry("b")],
        [entry("a", tag="u"), entry("b")],
        # Without a tag the time says it.
        [entry("a", tag=""), entry("b")],
    ]

    assert digest(some) == digest(reversed(some))
    assert 6 == len({digest(some), *map(digest, others)})
