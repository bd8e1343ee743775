"""Which variables models get."""

from __future__ import annotations

import pytest

from zmqtriton.supervisor.machine.processes.model_variables import withheld

_LOCAL = ("/srv/models",)
_STORES = {
    "s3://bucket/models": ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
    "gs://bucket/models": ["GOOGLE_APPLICATION_CREDENTIALS"],
    "as://account/container/models": ["AZURE_STORAGE_KEY"],
    "hf://org/name": ["HF_TOKEN"],
    "oci://registry/name": ["DOCKER_AUTH_CONFIG"],
}


@pytest.mark.parametrize(
    "name", ["DATABASE_URL", "HF_TOKEN", "BLS_KIND", "AWS_SECRET_ACCESS_KEY", "https_proxy", "PATH"]
)
def test_models_get_all_variables(name: str) -> None:
    assert {} == withheld({name: "x"}, (), _LOCAL)


@pytest.mark.parametrize(
    "name",
    [
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "CREDENTIALS_DIRECTORY",
        "ZMQTRITON_OPTIONS",
        "ZMQTRITON_OPTION_HTTP_RESTRICTED_API",
    ],
)
def test_but_not_the_server_s_own(name: str) -> None:
    assert {name: "*"} == withheld({name: "x", "PATH": "y"}, (), _LOCAL)


@pytest.mark.addons
@pytest.mark.parametrize(("repository", "names"), _STORES.items())
def test_and_not_its_credentials_of_a_store_that_it_uses(repository: str, names: list[str]) -> None:
    environment = dict.fromkeys(["PATH", *(name for of in _STORES.values() for name in of)], "x")

    assert names == list(withheld(environment, (), (*_LOCAL, repository)))
    assert [] == list(withheld(environment, ["*"], (*_LOCAL, repository)))


@pytest.mark.parametrize(
    "name", ["PATH", "LC_ALL", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONPATH", "HF_HOME"]
)
def test_what_libraries_need_passes_where_names_are_given(name: str) -> None:
    assert {} == withheld({name: "x"}, ("NAME",), _LOCAL)


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "DATABASE_URL", "https_proxy", "PATHS", "XPATH"]
)
def test_anything_else_does_not(name: str) -> None:
    assert {name: name} == withheld({name: "x", "PATH": "y"}, ("NAME",), _LOCAL)


@pytest.mark.parametrize(
    ("named", "left"),
    [(("B",), ["A1", "A2"]), (("A*",), ["B"]), (("*",), []), (("A1", "B"), ["A2"])],
)
def test_what_is_named_passes(named: tuple[str, ...], left: list[str]) -> None:
    assert left == list(withheld(dict.fromkeys(("B", "A2", "A1"), "x"), named, _LOCAL))
