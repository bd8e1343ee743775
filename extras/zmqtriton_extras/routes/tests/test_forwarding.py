"""The models whose routes have the path of a request, as a frontend finds them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zmqtriton_extras.routes.forwarding import Paths
from zmqtriton_floor.wire import ForgetModel, VersionInfo
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.model_version import ModelVersion


class Counting(Catalogue):
    """Counts how often all models are looked at."""

    looks = 0

    def newest(self) -> list[ModelVersion]:
        self.looks += 1
        return super().newest()


def add(catalogue: Catalogue, name: str, path: str) -> None:
    config = {"name": name, "parameters": {"ROUTES_PATH": {"string_value": path}}}
    text = json.dumps(config if path else {"name": name})
    catalogue.apply(VersionInfo(1, name, 1, "READY", None, 1, text, b""))


@pytest.fixture
def catalogue() -> Any:
    """The routes of `one` and `deep` are served; those of `late` and `refused` are not, or yet."""
    catalogue: Any = Counting()
    catalogue.catalogue = catalogue
    for name, path in {
        **{"plain": "", "one": "/api", "one.routes": "/api", "refused": "/api/it"},
        **{"deep": "/x/y", "deep.routes": "/x/y", "late": "/late", "wrong": "/v2"},
    }.items():
        add(catalogue, name, path)
    return catalogue


def search(paths: Paths, path: str) -> tuple[str, str, str] | None:
    target = paths.find(path)
    return None if target is None else (target[0], *target[1])


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api", ("one", "/api", "/")),
        ("/api/", ("one", "/api", "/")),
        ("/api/who/is", ("one", "/api", "/who/is")),
        ("/api/it/who", ("one", "/api", "/it/who")),
        ("/x/y/z", ("deep", "/x/y", "/z")),
        ("/x/y" + "/z" * 30_000, ("deep", "/x/y", "/z" * 30_000)),
        ("/late/who", ("late", "/late", "/who")),
        *((path, None) for path in ("/", "/apis", "/x", "/v2/who", "/" + "x" * 300, "//api")),
    ],
)
def test_a_path_is_that_of_the_model_that_has_it_or_what_is_above(
    catalogue: Any, path: str, target: tuple[str, str, str] | None
) -> None:
    assert target == search(Paths(catalogue), path)


def test_all_models_are_looked_at_after_changes_alone(catalogue: Any) -> None:
    paths = Paths(catalogue)
    for _ in range(3):
        assert search(paths, "/new") is None
    assert catalogue.looks == 1

    add(catalogue, "new", "/new")
    for _ in range(3):
        assert search(paths, "/new") == ("new", "/new", "/")
    catalogue.apply(ForgetModel("new"))

    assert search(paths, "/new") is None
    assert catalogue.looks == 3
