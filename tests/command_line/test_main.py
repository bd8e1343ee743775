"""Commands: what they refuse, what they say of themselves, and where they write."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pwd
import re
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.needs import find_tool
from tests.support.refusals import refusal
from zmqtriton import addons, runtime_places
from zmqtriton.command_line import read_options
from zmqtriton.commit import full_version, read_checkout, read_installation
from zmqtriton.config.backends import backend_package
from zmqtriton.control_client import NoServerError
from zmqtriton.embedded.parent import connect
from zmqtriton.main import main
from zmqtriton.options import Options
from zmqtriton.options.result import DEFAULTS
from zmqtriton.otlp_destination import Destination, DestinationError
from zmqtriton.supervisor.machine.process_settings import Machine, settings_of
from zmqtriton_floor import __version__, lazy_names
from zmqtriton_floor.settings.frontends import FrontendSettings

# -------------------------------------------------------------------------------- main
# Refusals of the command before it starts anything.


_MODE = "--trace-config=mode=opentelemetry"


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "x", "Invalid option value. Got x"),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "ftp://c",
            "Only http and https addresses are possible. Got ftp://c",
        ),
    ],
)
def test_a_variable_that_sends_traces_nowhere_is_refused(
    variable: str,
    value: str,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)

    assert 1 == main(["--model-repository=/nowhere", _MODE])

    assert f'Bad option: "{variable}".\n{text}\n' == capfd.readouterr().err


@pytest.mark.parametrize("words", [["check", "."], ["deploy"], ["protos", "protos"]])
def test_a_pipe_that_nobody_reads_any_more_is_no_error(words: list[str], tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "zmqtriton", *words],
            stdout=nobody,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )

    assert (1, b"") == (done.returncode, done.stderr)


def test_a_letter_that_the_terminal_lacks_is_escaped(tmp_path: Path) -> None:
    version = tmp_path / "models" / "\u540d" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text("x = (")
    programs = {
        "zmqtriton": ["check", "models"],
        "zmqtriton.ctl.main": ["env", "--environment-directory=cache", "prepare", "models"],
    }

    checked, simulated = (
        subprocess.run(
            [sys.executable, "-m", program, *words],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "latin-1"},
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
        for program, words in programs.items()
    )

    assert b"\\u540d" in checked.stdout
    assert b"\\u540d" in simulated.stdout
    assert (b"", b"") == (checked.stderr, simulated.stderr)


@pytest.mark.parametrize(
    ("words", "option", "name"),
    [
        (["--trace-config=triton,file=/x"], "--trace-config", "tracing"),
        (["--model-repository=s3://bucket/x"], "--model-repository", "storage"),
        (["--model-control-mode=explicit", "--load-on-demand"], "--load-on-demand", "on_demand"),
        (["--take-over", "--one-by-one"], "--one-by-one", "on_demand"),
    ],
)
def test_an_option_whose_add_on_is_not_installed_is_refused(
    words: list[str],
    option: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("zmqtriton.addons.add_ons", dict)

    assert 1 == main(["--model-repository=/nowhere", *words])

    text = f"It needs the add-on '{name}'; install zmqtriton with it, or leave out the option.\n"
    assert f'Bad option: "{option}".\n{text}' == capfd.readouterr().err


def test_a_server_without_the_add_on_of_metrics_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--model-repository=/nowhere"]
    with_them = read_options(words)
    monkeypatch.setattr("zmqtriton.addons.add_ons", dict)

    without = read_options(words)

    assert isinstance(with_them, Options)
    assert isinstance(without, Options)
    assert (True, False) == (with_them.allow_metrics, without.allow_metrics)


# ------------------------------------------------------------------------------ addons
# Add-ons: our own first, then those that entry points of other packages name.


_CACHED = (addons.offers, addons.add_ons, addons.own_add_ons, backend_package)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The first directory of the path, which is looked at anew."""
    monkeypatch.syspath_prepend(tmp_path)
    before = {*sys.modules}
    for cached in _CACHED:
        cached.cache_clear()
    yield tmp_path
    for cached in _CACHED:
        cached.cache_clear()
    for name in {*sys.modules} - before:
        if name.endswith("_of_test"):
            del sys.modules[name]


def install(path: Path, name: str, rows: str, **declarations: str) -> None:
    """Install a distribution with rows of add-ons, and modules with the words of their AddOns."""
    metadata = path / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text(f"[zmqtriton.addons]\n{rows}\n")
    for module, words in declarations.items():
        imports = "from zmqtriton.sdk import AddOn, Command, Offer"
        (path / f"{module}.py").write_text(f"{imports}\nADDON = AddOn({words})\n")


def test_rows_are_read_as_packaging_specifies_them(path: Path) -> None:
    text = """
    [console_scripts]
    other = other:main

    # what we add
    [zmqtriton.addons]
    one=one_of_test
    two = two_of_test:OTHER [extra]
    [zmqtriton.later]
    three = package
    """

    install(path, "package", text, one_of_test="'one', ctl={'one': '.verbs:one'}")
    (path / "two_of_test.py").write_text(
        "from zmqtriton.sdk import AddOn\nOTHER = AddOn('two', ctl={'two': 'elsewhere:two'})\n"
    )

    assert "one_of_test.verbs:one" == addons.find("ctl", "one")
    assert ("elsewhere:two", "") == (addons.find("ctl", "two"), addons.find("ctl", "three"))
    assert {"one", "two"} == addons.add_ons().keys() - addons.own_add_ons().keys()


def test_our_own_are_not_replaced(path: Path) -> None:
    own = addons.find("ctl", "doctor")
    words = "'ctl', ctl={'doctor': '.verbs:doctor'}"
    install(path, "package", "ctl = doctor_of_test", doctor_of_test=words)
    words = "'another', ctl={'doctor': '.verbs:doctor'}"
    install(path, "second", "another = other_of_test", other_of_test=words)

    assert own == addons.find("ctl", "doctor")
    assert addons.own_add_ons()["ctl"] == addons.add_ons()["ctl"]


def test_of_two_copies_of_a_package_the_first_of_the_path_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = path / "earlier"
    earlier.mkdir()
    monkeypatch.syspath_prepend(earlier)
    one = "one = one_of_test"
    install(path, "package", one, one_of_test="'one', ctl={'one': 'later:one'}")
    install(earlier, "package", one, one_of_test="'one', ctl={'one': 'earlier:one'}")

    assert "earlier:one" == addons.find("ctl", "one")


def test_one_that_cannot_be_read_is_left_out_with_a_word(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(path, "package", "broken = broken_of_test", broken_of_test="'broken', colour='red'")
    install(path, "second", "absent = absent_of_test")

    assert {*addons.own_add_ons()} == {*addons.add_ons()}
    assert "the add-on 'broken' cannot be used: " in caplog.text
    assert "the add-on 'absent' cannot be used: No module named 'absent_of_test'" in caplog.text


def test_one_without_what_it_needs_is_left_out(path: Path) -> None:
    install(path, "package", "one = one_of_test", one_of_test="'one', needs=('two',)")

    assert "one" not in addons.add_ons()


def test_each_stands_behind_those_that_it_comes_after(path: Path) -> None:
    install(path, "package", "a = a_of_test", a_of_test="'a', after=('b', 'absent')")
    install(path, "second", "b = b_of_test", b_of_test="'b', after=('a',)")
    install(path, "third", "c = c_of_test", c_of_test="'c', after=('*',)")

    names = [*addons.add_ons()]

    assert names.index("b") < names.index("a"), "of two behind each other the first is behind"
    assert {"c", "cockpit"} == {*names[-2:]}, "those that come after all"


def test_a_new_kind_touches_its_host_and_its_guest_alone(path: Path) -> None:
    kind = "host_of_test.form"
    (path / "host_of_test.py").write_text(
        "from zmqtriton.sdk import AddOn\nfrom zmqtriton.sdk.process import Hook\n\n"
        f"FORM = Hook('{kind}')\nADDON = AddOn('host')\n"
    )
    install(path, "first", "host = host_of_test")
    words = f"'loud', offers={{'{kind}': ('guest_of_test:shout', 'builtins:str')}}"
    install(path, "second", "loud = loud_of_test", loud_of_test=words)
    words = f"'ready', offers={{'{kind}': Offer('guest_of_test:shout', on='exit-on-error')}}"
    install(path, "third", "ready = ready_of_test", ready_of_test=words)
    (path / "guest_of_test.py").write_text("def shout(text):\n    return text.upper()\n")
    form = importlib.import_module("host_of_test").FORM

    in_use = addons.offers_in_use(Options(exit_on_error=False).value)
    document = settings_of(Options(), Machine(offers=in_use)).document("http")
    in_process = form.all_of(FrontendSettings.decode(document).offers)

    assert ["HI", "hi", "HI"] == [each("hi") for each in form.all_of(addons.offers())]
    assert ["HI", "hi"] == [each("hi") for each in in_process]


@pytest.mark.parametrize("name", ["count", "count-all"])
def test_a_command_of_a_package_runs_and_is_in_the_help(
    path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words = f"'counter', commands={{'{name}': Command('package_of_test:count')}}"
    install(path, "package", "counter = counter_of_test", counter_of_test=words)
    (path / "package_of_test.py").write_text("def count(words):\n    return len(words)\n")

    assert (2, 0) == (main([name, "a", "b"]), main(["--help"]))
    assert f"zmqtriton {name}\n" in capsys.readouterr().out


def test_a_backend_whose_package_is_not_there_is_left_out(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backends = "{'models.backend': {'here': 'backend_of_test', 'gone': 'backend_of_test.gone'}}"
    install(path, "package", "more = more_of_test", more_of_test=f"'more', offers={backends}")
    (path / "backend_of_test").mkdir()
    (path / "backend_of_test" / "__init__.py").touch()

    assert ("backend_of_test", path / "backend_of_test") == backend_package("here")
    assert backend_package("gone") is None
    assert "'gone'" in caplog.text


def _references(add_on: addons.Installed) -> Iterator[str]:
    declared = add_on.declared
    several = [*declared.ctl.values(), *declared.public.values()]
    several += [option.declared.read for option in addons.options()[declared.name]]
    several += [
        command.run for command in declared.commands.values() if not isinstance(command, str)
    ]
    if declared.process is not None:
        several += [declared.process.module]
    yield from (add_on.reference(text) for text in several if text)


#: The kinds of words.
_WORDS = ("ctl.group", "http.category", "models.framework", "options.behind", "protocol.extension")


def test_each_thing_that_is_offered_is_there() -> None:
    for kind, _, reference in addons.offers().rows:
        assert kind in _WORDS or lazy_names.load_reference(reference)


def test_each_reference_of_our_own_names_something() -> None:
    for add_on in addons.own_add_ons().values():
        for reference in _references(add_on):
            module, _, attribute = reference.partition(":")
            assert importlib.util.find_spec(module), reference
            assert not attribute or lazy_names.load_reference(reference) is not None


def test_each_local_service_has_options() -> None:
    options = DEFAULTS.keys()

    for service in addons.services().values():
        # a service that only this server's processes ask has neither a group nor keys
        assert {service.on, service.group, service.restrictions} - {""} <= options


def test_a_declaration_imports_nothing_of_its_add_on() -> None:
    script = (
        "import sys\nfrom zmqtriton import addons\naddons.own_add_ons()\n"
        "shelves = [n for n in sys.modules if n.startswith(addons.SHELVES) and n.count('.') > 1"
        " and not n.endswith('.declaration')]\n"
        "assert not shelves, shelves\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_the_shelves_there_is_no_add_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addons, "SHELVES", ("zmqtriton_absent",))
    monkeypatch.setattr(addons, "own_add_ons", addons.own_add_ons.__wrapped__)
    monkeypatch.setattr(addons, "add_ons", addons.add_ons.__wrapped__)
    monkeypatch.setattr(addons, "offers", addons.offers.__wrapped__)

    assert not {"doctor", "status"} & {*addons.verbs()}
    assert {} == addons.own_add_ons()


def test_a_command_of_ours_looks_at_no_other_package() -> None:
    script = (
        "import zmqtriton.addons as a, click\nfrom zmqtriton.ctl.main import cli\n"
        "a._of_others = None\nassert cli.get_command(click.Context(cli), 'status')\n"
        "assert cli.get_command(click.Context(cli), 'doctor')"
    )

    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_process_that_no_server_has_started_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["watcher", "--every", "3"])

    with pytest.raises(NoServerError, match="it has no --lifeline"):
        connect()


# ------------------------------------------------------------------------------ commit
# The commit of a checkout, and of an installation.


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@y")
    command = [find_tool("git"), "-C", str(root), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_checkout_has_its_commit_and_says_if_files_differ(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "x")
    git(tmp_path, "tag", "-a", "v1", "-m", "x")
    first = git(tmp_path, "rev-parse", "HEAD")[:12]

    assert first == read_checkout(tmp_path)
    (tmp_path / "file").write_text("2")
    assert f"{first}-dirty" == read_checkout(tmp_path)


def test_without_a_repository_nothing_is_known(tmp_path: Path) -> None:
    assert "" == read_checkout(tmp_path / "none")


@pytest.mark.parametrize(
    ("version", "commit"),
    [
        ("0.1.0+20260131120000.g0123456789ab", "0123456789ab"),
        ("0.1.0+20260131120000.g0123456789ab.dirty01234567", "0123456789ab.dirty01234567"),
        ("0.1.0", ""),
        (None, ""),
    ],
)
def test_an_installation_has_the_commit_of_its_version(
    version: str | None, commit: str, tmp_path: Path
) -> None:
    (tmp_path / "zmqtriton_client-9.dist-info").mkdir()
    if version is not None:
        (tmp_path / f"zmqtriton-{version}.dist-info").mkdir()

    assert commit == read_installation(tmp_path)


def test_the_full_version_begins_with_the_version() -> None:
    assert re.fullmatch(re.escape(__version__) + r"(\+[0-9a-f]{7,}(-dirty)?)?", full_version())


# -------------------------------------------------------------------- otlp destination
# The destinations of spans, by options and variables.


def test_where_nothing_is_said_it_is_as_in_triton() -> None:
    settings = Destination.read([], {})

    assert ("http://localhost:4318/v1/traces", {}) == (settings.url, settings.headers)
    assert {"service.name": "triton-inference-server"} == settings.resource
    assert (2048, 512, 5.0, None) == (
        settings.max_queue_size,
        settings.max_batch_size,
        settings.export_delay_s,
        settings.tls,
    )


@pytest.mark.parametrize(
    ("said", "variables", "expected"),
    [
        ("localhost:4318/v1/traces", {}, "http://localhost:4318/v1/traces"),
        ("https://c/x", {"ENDPOINT": "http://other"}, "https://c/x"),
        ("", {"TRACES_ENDPOINT": "http://c:1/x", "ENDPOINT": "http://d"}, "http://c:1/x"),
        ("", {"ENDPOINT": "http://d/base/"}, "http://d/base/v1/traces"),
    ],
)
def test_an_address_may_stand_in_several_places(
    said: str, variables: dict[str, str], expected: str
) -> None:
    environment = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}

    assert expected == Destination.read([("url", said)] if said else [], environment).url


@pytest.mark.parametrize(
    "url", ["ftp://c", "file:///etc/passwd", "http://", "http://c:99999", "a b"]
)
def test_an_address_that_cannot_be_is_refused_with_its_place(url: str) -> None:
    assert refusal(DestinationError, Destination.read, [("url", url)], {}).startswith(
        'Bad option: "--trace-config opentelemetry,url".\n'
    )
    with pytest.raises(DestinationError, match="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        Destination.read([], {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url})


def test_what_is_said_of_the_server_adds_up_with_options_over_variables() -> None:
    pairs = [("resource", "service.version=1=2"), ("resource", "b=mine"), ("resource", "alone")]
    variables = {"OTEL_RESOURCE_ATTRIBUTES": "a=x%20y,b=theirs,nothing", "OTEL_SERVICE_NAME": "s"}

    assert {
        "service.name": "s",
        "service.version": "1=2",
        "a": "x y",
        "b": "mine",
        "alone": "alone",
    } == Destination.read(pairs, variables).resource
    assert (
        "o"
        == Destination.read([("resource", "service.name=o")], variables).resource["service.name"]
    )


def test_headers_are_variables_and_never_shown() -> None:
    variables = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, x=1"}
    assert {"api-key": "a b", "x": "1"} == Destination.read([], variables).headers

    assert "secret" not in refusal(
        DestinationError,
        Destination.read,
        [],
        {"OTEL_EXPORTER_OTLP_HEADERS": "key=secret%0d%0aInjected: 1"},
    )


def test_the_log_shows_no_password_and_no_query() -> None:
    assert (
        "https://c:1/x"
        == Destination.read([("url", "https://user:word@c:1/x?key=1")], {}).public_url
    )


def test_a_message_has_no_more_spans_than_may_wait() -> None:
    settings = Destination.read([("bsp_max_queue_size", "10"), ("bsp_schedule_delay", "0")], {})

    assert (10, 10, 0.0) == (
        settings.max_queue_size,
        settings.max_batch_size,
        settings.export_delay_s,
    )


def test_authorities_are_those_of_the_variable(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    name = "OTEL_EXPORTER_OTLP_CERTIFICATE"
    https = [("url", "https://c")]

    context = Destination.read(https, {name: str(authority.cert)}).tls

    assert isinstance(context, ssl.SSLContext)
    assert 1 == len(context.get_ca_certs())
    with pytest.raises(DestinationError, match=name):
        Destination.read(https, {name: str(tmp_path / "missing")})


# ---------------------------------------------------------------------- runtime places
# The place of a runtime directory: none where it would be taken away under the server.


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with /run and /tmp, and no word in the environment."""
    for name in ("run/user", "tmp"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(runtime_places, "_ROOT", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("TMPDIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def user(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a user who is not root and has logged in."""
    mine = root / "run" / "user" / "1234"
    mine.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(runtime_places, "_is_ours", lambda path: path == mine)
    named = pwd.struct_passwd(("ann", "x", 1234, 1234, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda number: named)
    return mine


def test_a_user_s_own_directory_is_taken_only_if_it_outlasts_the_session(
    root: Path, user: Path
) -> None:
    assert root / "tmp" == runtime_places.preferred()

    (root / "var/lib/systemd/linger").mkdir(parents=True)
    (root / "var/lib/systemd/linger/ann").touch()

    assert user == runtime_places.preferred()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's place is there without a login")
def test_root_has_its_own_in_run(root: Path) -> None:
    assert root / "run" == runtime_places.preferred()

    (root / "run" / "user").rmdir()
    (root / "run").rmdir()
    assert root / "tmp" == runtime_places.preferred()


def test_who_names_a_directory_for_temporary_files_gets_it(
    root: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(root / "tmp"))
    (root / "var/lib/systemd/linger").mkdir(parents=True)
    (root / "var/lib/systemd/linger/ann").touch()

    assert root / "tmp" == runtime_places.preferred()


def test_servers_are_looked_for_wherever_they_may_be(root: Path, user: Path) -> None:
    expected = {user, root / "run", root / "tmp"}

    assert expected <= set(runtime_places.places())
    assert len(runtime_places.places()) == len(set(runtime_places.places()))
    assert runtime_places.preferred() in runtime_places.places()
