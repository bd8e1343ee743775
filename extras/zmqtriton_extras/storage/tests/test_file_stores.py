"""Repositories of a hub and a registry, request in this process; the servers are stand-ins."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.model_sources import Hub, Registry, digest_of, layer
from tests.support.needs import skip_missing
from tests.support.reports import Reports
from zmqtriton_extras.storage import web
from zmqtriton_extras.storage.blobs import BlobCache
from zmqtriton_extras.storage.file_stores import FileStore
from zmqtriton_extras.storage.mirror import Mirror
from zmqtriton_extras.storage.places import HubPath, parse_url
from zmqtriton_extras.storage.registry import RegistryStore
from zmqtriton_extras.storage.trees import InvalidObjectName, build_tree
from zmqtriton_floor.errors import InternalError

FILES = {"m/1/model.py": b"x", "m/config.pbtxt": b"", "README.md": b"about"}
WEIGHTS = bytes(range(256)) * 2000

T = TypeVar("T")
Open = Callable[..., FileStore]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_FIRST_PAUSE_S", 0.0)


WARNINGS: list[str] = []


def open_store(url: str, cache: Path, revision: str = "") -> FileStore:
    """Open a repository of a store as the storage process does."""
    WARNINGS.clear()
    place = parse_url(url)
    kept = BlobCache(cache)
    store: FileStore
    if isinstance(place, HubPath):
        from zmqtriton_extras.storage.hub import HubStore

        store = HubStore(place, kept)
    else:
        store = RegistryStore(place, kept)  # type: ignore[arg-type]
    run(store.open(revision, WARNINGS.append))
    return store


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    if importlib.util.find_spec("huggingface_hub") is None:
        skip_missing("huggingface_hub")
    from huggingface_hub import constants

    with Hub() as running:
        server = running.variables["HF_ENDPOINT"]
        monkeypatch.setattr(constants, "ENDPOINT", server)
        template = f"{server}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running


def contents(store: FileStore, folder: str, target: Path) -> dict[str, bytes]:
    """Copy a model as a load does, and return its files."""

    async def copy() -> str:
        mirror = Mirror(str(target), lambda number, model: Reports())
        tree = build_tree(await store.list_objects(folder))
        return await mirror.copy_model(1, folder, "url", tree, store)

    target.mkdir()
    root = Path(run(copy()))
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


# ------------------------------------------------------------------- registry


def test_models_of_an_image_are_those_of_its_folder(registry: Registry, tmp_path: Path) -> None:
    """As KServe builds them, from an image of a system."""
    base = layer({"etc/passwd": b"root", "models/m/1/weights": WEIGHTS, "models/gone/1/x": b"x"})
    top = layer({"models/m/1/model.py": b"x", "models/.wh.gone": b""}, is_compressed=False)
    digest = registry.put("v1", base, top)
    registry.put_index("latest", arm64=digest, amd64=digest, unknown=digest_of(b"notes"))

    store = open_store(f"oci://{registry.address}/org/image", tmp_path / "cache")

    assert ["m"] == run(store.list_folders())
    expected = {"1/model.py": b"x", "1/weights": WEIGHTS}
    assert expected == contents(store, "m", tmp_path / "copies")
    # Given the same again, nothing but the tag is asked for
    registry.requests.clear()
    again = open_store(f"oci://{registry.address}/org/image", tmp_path / "cache")
    assert expected == contents(again, "m", tmp_path / "others")
    assert ["/v2/org/image/manifests/latest"] == [request.path for request in registry.requests]


def test_an_artifact_that_is_one_model_has_the_repository_s_name(
    registry: Registry, tmp_path: Path
) -> None:
    """As `oras push` writes files; a tag may be moved, a digest is what it was."""
    pushed = ("v1", b"config", b"model")
    digest = registry.put(*pushed, titles={0: "config.pbtxt", 1: "1/model.py"})
    url = f"oci://{registry.address}/models/prices"
    tagged = open_store(f"{url}:v1", tmp_path / "cache")
    registry.put("v1", b"other", titles={0: "config.pbtxt"})

    assert digest == tagged.revision
    fixed = open_store(f"{url}@{digest}", tmp_path / "cache")
    expected = {"config.pbtxt": b"config", "1/model.py": b"model"}
    for number, store in enumerate((tagged, fixed)):
        assert expected == contents(store, "prices", tmp_path / f"{number}")
    assert digest != open_store(f"{url}:v1", tmp_path / "cache").revision
    assert digest == open_store(f"{url}:v1", tmp_path / "cache", digest).revision


def test_a_registry_is_asked_with_the_login_of_docker(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.login = "me:secret"
    registry.put("v1", layer({"m/1/model.py": b"x"}))
    url = f"oci://{registry.address}/private:v1"
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "none"))

    with pytest.raises(InternalError) as refused:
        open_store(url, tmp_path / "cache")
    for name, value in registry.login_file(tmp_path).items():
        monkeypatch.setenv(name, value)

    text = f"{url} cannot be read: {registry.address} refuses manifests/v1: 401 Unauthorized; "
    assert f"{text}log in with `docker login {registry.address}`" == refused.value.text
    assert ["m"] == run(open_store(url, tmp_path / "cache").list_folders())


def test_a_cut_download_goes_on_where_it_was(registry: Registry, tmp_path: Path) -> None:
    registry.put("v1", WEIGHTS, titles={0: "m/1/weights"})
    store = open_store(f"oci://{registry.address}/org/m:v1", tmp_path / "cache")
    registry.cut_bytes, registry.cuts = 100_000, 3

    assert {"1/weights": WEIGHTS} == contents(store, "m", tmp_path / "copies")

    ranges = [
        request.headers.get("range") for request in registry.requests if "/blobs/" in request.path
    ]
    assert [None, "bytes=100000-", "bytes=200000-", "bytes=300000-"] == ranges


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_content_of_another_digest_is_refused_and_not_kept(
    registry: Registry, tmp_path: Path, is_begun: bool
) -> None:
    registry.put("v1", WEIGHTS, titles={0: "m/1/weights"})
    cache = BlobCache(tmp_path / "cache")
    path = cache.path(digest_of(WEIGHTS))
    if is_begun:
        path.parent.mkdir(parents=True)
        path.with_name(f"{path.name}.partial").write_bytes(b"of another")
    registry.blobs[digest_of(WEIGHTS)] = bytes(len(WEIGHTS))
    store = open_store(f"oci://{registry.address}/org/m:v1", tmp_path / "cache")

    with pytest.raises(
        InternalError, match="the download is damaged, load again: its digest must be sha256:"
    ):
        contents(store, "m", tmp_path / "copies")

    assert not path.exists()
    assert 0o700 == (tmp_path / "cache").stat().st_mode & 0o777
    # and what was begun with other bytes is begun anew
    path.with_name(f"{path.name}.partial").write_bytes(b"of another")
    registry.blobs[digest_of(WEIGHTS)] = WEIGHTS
    assert {"1/weights": WEIGHTS} == contents(store, "m", tmp_path / "others")


@pytest.mark.parametrize("is_file", [True, False])
def test_a_kept_content_that_was_written_to_is_fetched_again(
    registry: Registry, tmp_path: Path, is_file: bool
) -> None:
    """As root can, for whom it is not read-only; all copies of a model are links to it."""
    if is_file:
        registry.put("v1", WEIGHTS, titles={0: "m/1/weights"})
    else:
        registry.put("v1", layer({"m/1/weights": WEIGHTS}))
    url = f"oci://{registry.address}/org/m:v1"
    contents(open_store(url, tmp_path / "cache"), "m", tmp_path / "copies")
    (path,) = tmp_path.glob("copies/*/m/1/weights")
    path.chmod(0o644)
    path.write_bytes(bytes(len(WEIGHTS)))

    again = open_store(url, tmp_path / "cache")

    assert {"1/weights": WEIGHTS} == contents(again, "m", tmp_path / "others")


def test_a_missing_tag_is_named(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=f"{registry.address} has no v9 of org/m; "):
        open_store(f"oci://{registry.address}/org/m:v9", tmp_path)


def test_a_manifest_of_another_digest_is_refused(registry: Registry, tmp_path: Path) -> None:
    digest = registry.put("v1", layer({"m/1/model.py": b"x"}))
    registry.manifests[digest] += b" "

    store = open_store(f"oci://{registry.address}/m@{digest}", tmp_path)
    with pytest.raises(InternalError, match="its manifest has another digest, sha256"):
        run(store.list_objects())


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, "its manifest has no layers"),
        (
            {"layers": [{"digest": "sha256:../../x", "size": 1}]},
            "a layer of the digest 'sha256:../",
        ),
        ({"manifests": []}, "it is for no machine: build it for linux/"),
    ],
)
def test_a_manifest_without_what_is_needed_is_explained(
    registry: Registry, tmp_path: Path, document: dict[str, Any], text: str
) -> None:
    registry.put_manifest(
        "v1", {"mediaType": "application/vnd.oci.image.index.v1+json", **document}
    )

    store = open_store(f"oci://{registry.address}/m:v1", tmp_path)
    with pytest.raises(InternalError, match=f"^oci://.* cannot be read: .*{text}"):
        run(store.list_objects())


def test_an_odd_link_is_the_problem_of_one_model(registry: Registry, tmp_path: Path) -> None:
    registry.put("v1", layer({"good/1/model.py": b"x", "bad/1/model.py": "/etc/passwd"}))

    store = open_store(f"oci://{registry.address}/m:v1", tmp_path)

    assert ["1/model.py"] == [entry.path for entry in run(store.list_objects("good"))]
    for folder in ("bad", ""):
        with pytest.raises(
            InvalidObjectName, match=r"has 'bad/1/model.py', a link that leads to no"
        ):
            run(store.list_objects(folder))


def test_an_empty_folder_is_a_version(registry: Registry, tmp_path: Path) -> None:
    import tarfile

    folders = {path: tarfile.TarInfo(path) for path in ("m/1", "m/data/7", "m")}
    for entry in folders.values():
        entry.type = tarfile.DIRTYPE
    registry.put("v1", layer({"m/config.pbtxt": b"x", **folders}))

    store = open_store(f"oci://{registry.address}/m:v1", tmp_path)

    assert ("1",) == build_tree(run(store.list_objects("m"))).directories


def test_a_registry_that_is_away_is_no_loss_once_all_is_here(tmp_path: Path) -> None:
    with Registry() as registry:
        digest = registry.put("v1", layer({"m/1/model.py": b"x"}))
        url = f"oci://{registry.address}/m:v1"
        contents(open_store(url, tmp_path / "cache"), "m", tmp_path / "copies")

    away = open_store(url, tmp_path / "cache")

    [warning] = WARNINGS
    assert warning.endswith(f"; the revision of the last time is used: {digest}")
    assert digest == away.revision
    assert {"1/model.py": b"x"} == contents(away, "m", tmp_path / "others")
    with pytest.raises(InternalError, match=r"cannot be read: 127.*does not answer, "):
        open_store(url, tmp_path / "empty")


# ------------------------------------------------------------------------ hub


@pytest.mark.slow
def test_models_of_a_hub_are_those_of_a_commit(hub: Hub, tmp_path: Path) -> None:
    commit = hub.put("org/name", FILES, large={"m/1/weights": WEIGHTS})
    store = open_store("hf://org/name", tmp_path / "cache")
    hub.put("org/name", {"m/1/model.py": b"other"})

    assert commit == store.revision
    assert ["m"] == run(store.list_folders())
    expected = {"1/model.py": b"x", "config.pbtxt": b"", "1/weights": WEIGHTS}
    assert expected == contents(store, "m", tmp_path / "copies")
    # whoever asks for that commit again asks for nothing
    hub.requests.clear()
    for number, url in enumerate((f"hf://org/name@{commit}", f"hf://org/name:{commit}")):
        assert expected == contents(
            open_store(url, tmp_path / "cache"), "m", tmp_path / f"{number}"
        )
    assert [] == hub.requests


@pytest.mark.slow
def test_a_folder_of_a_hub_s_repository_is_a_repository_or_a_model(
    hub: Hub, tmp_path: Path
) -> None:
    hub.put("org/name", {"triton/m/1/model.py": b"x", "1/model.py": b"y"}, branch="v2")

    folders = [
        run(open_store(f"hf://org/name@v2{folder}", tmp_path).list_folders())
        for folder in ("", "/triton", "/triton/m")
    ]

    assert [["name"], ["m"], ["m"]] == folders
    with pytest.raises(InternalError, match="it has no folder 'missing'"):
        run(open_store("hf://org/name@v2/missing", tmp_path).list_folders())


def test_a_private_repository_is_read_with_the_user_s_token(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_secret"
    hub.put("org/name", FILES, large={"m/1/weights": WEIGHTS})

    with pytest.raises(InternalError, match=r"answers 401: there is no org/name, or HF_TOKEN may"):
        open_store("hf://org/name", tmp_path / "cache")
    monkeypatch.setenv("HF_TOKEN", hub.token)

    store = open_store("hf://org/name", tmp_path / "cache")
    assert WEIGHTS == contents(store, "m", tmp_path / "copies")["1/weights"]


def test_a_missing_repository_or_revision_is_named(hub: Hub, tmp_path: Path) -> None:
    hub.put("org/name", FILES)

    with pytest.raises(InternalError, match=r"hf://org/none .*404: there is no org/none, or HF_T"):
        open_store("hf://org/none", tmp_path)
    with pytest.raises(InternalError, match="org/name has no revision 'v9'"):
        open_store("hf://org/name@v9", tmp_path)


def test_a_file_of_the_hub_of_another_digest_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.put("org/name", FILES, large={"m/1/weights": WEIGHTS})
    hub.damaged = {digest_of(WEIGHTS).partition(":")[2]: bytes(len(WEIGHTS))}
    store = open_store("hf://org/name", tmp_path / "cache")

    with pytest.raises(
        InternalError, match="the download is damaged, load again: its digest must be"
    ):
        contents(store, "m", tmp_path / "copies")


def test_what_the_library_has_fetched_is_not_fetched_again(hub: Hub, tmp_path: Path) -> None:
    import huggingface_hub

    commit = hub.put("org/name", FILES, large={"m/1/weights": WEIGHTS})
    hub_cache = str(tmp_path / "hf")
    path = huggingface_hub.hf_hub_download(
        "org/name", "m/1/weights", revision=commit, cache_dir=hub_cache
    )
    hub.requests.clear()

    store = open_store(f"hf://org/name@{commit}", tmp_path / "cache")

    assert (
        WEIGHTS == contents(store, "m", tmp_path / "copies")["1/weights"] == Path(path).read_bytes()
    )
    assert [] == hub.paths("weights") + hub.paths("/large/")


def test_offline_the_cache_of_the_library_is_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `hf download` fills it for machines without a network."""
    import huggingface_hub
    from huggingface_hub import constants

    commit = hub.put("org/name", FILES, large={"m/1/weights": WEIGHTS})
    huggingface_hub.snapshot_download("org/name", cache_dir=constants.HF_HUB_CACHE)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()

    for number, url in enumerate(("hf://org/name", f"hf://org/name@{commit}")):
        store = open_store(url, tmp_path / f"cache{number}")
        assert commit == store.revision
        assert WEIGHTS == contents(store, "m", tmp_path / f"{number}")["1/weights"]

    assert [] == hub.requests
    with pytest.raises(InternalError, match="HF_HUB_OFFLINE is set, and nothing is here of org/o"):
        open_store("hf://org/other", tmp_path / "cache")
