"""The output of `--help`, and guesses for words that are no options."""

from __future__ import annotations

import re

import pytest

from tests.options.test_parser import refused
from zmqtriton.main import main
from zmqtriton.options import HelpRequested, parse
from zmqtriton.options.table import OPTIONS_BY_NAME


@pytest.fixture(scope="module")
def text() -> str:
    with pytest.raises(HelpRequested) as caught:
        parse(["--help"])
    return str(caught.value)


@pytest.mark.row("--help")
def test_help_shows_each_group_option_and_default(text: str) -> None:
    assert [] == [name for name in OPTIONS_BY_NAME if f"\n  --{name}" not in text]
    assert "\nModel Repository:\n" in text
    assert "Port to listen on. Default is 8000." in text
    assert "{" not in text
    assert "a load on demand. Default is 60.\n" in text


def test_what_has_a_default_does_not_name_another(text: str) -> None:
    lines = [" ".join(option.split()) for option in re.split(r"\n  --", text)]

    assert [] == [line for line in lines if "y default" in line and "Default is" in line]


def test_help_is_asked_for_in_short_too(text: str) -> None:
    with pytest.raises(HelpRequested) as caught:
        parse(["-h"])

    assert text == str(caught.value)


def about(*words: str) -> str:
    with pytest.raises(HelpRequested) as caught:
        parse([*words])
    return str(caught.value)


@pytest.mark.parametrize("words", [["--help", "openai"], ["-h", "OpenAI"], ["--help=openai"]])
def test_help_is_about_a_word(words: list[str], text: str) -> None:
    said = about(*words)

    assert "\n  --allow-openai\n        Serve OpenAI's API" in said
    assert "\n  --http-restricted-api " in said, "its help has the word"
    assert "--http-port" not in said
    assert len(said) < len(text) / 10


@pytest.mark.addons
def test_help_is_about_a_group_or_a_command(text: str) -> None:
    grpc = about("--help", "grpc")

    assert all(f"\n  --{name}" in grpc for name in OPTIONS_BY_NAME if name.startswith("grpc-"))
    assert "\n       zmqtriton token " in about("--help", "token")


def test_help_about_nothing_names_the_groups() -> None:
    assert "Nothing has the word 'zzz'. Groups: Server, Announcements, " in about("--help", "zzz")


@pytest.mark.parametrize("command", ["new", "demo", "example", "check", "simulate"])
@pytest.mark.addons
def test_help_tells_of_each_command(command: str, text: str) -> None:
    assert f"\n       zmqtriton {command} " in text


@pytest.mark.parametrize("command", ["new", "demo", "example", "check", "simulate"])
@pytest.mark.parametrize("word", ["-h", "--help"])
@pytest.mark.addons
def test_each_command_has_help_of_its_own(
    command: str, word: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main([command, word])
    except SystemExit as end:
        status = int(end.code or 0)

    printed = capsys.readouterr()
    assert (0, "") == (status, printed.err)
    assert re.match(f"[Uu]sage: zmqtriton {command} ", printed.out)
    assert len(printed.out) < len(text) / 2


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        pytest.param("chek", "zmqtriton check", marks=pytest.mark.addons),
        pytest.param("examples", "zmqtriton example", marks=pytest.mark.addons),
        ("/srv/models", "--model-repository=/srv/models"),
        ("models", "--model-repository=models"),
        ("http-port=80", "--http-port=80"),
    ],
)
def test_an_argument_that_is_no_option_is_guessed_at(word: str, meant: str) -> None:
    assert f"Unexpected argument: {word}; did you mean '{meant}'?" == refused(word).split("\n")[0]


@pytest.mark.parametrize("word", ["--", "x=y"])
def test_what_nobody_can_have_meant_is_not_guessed_at(word: str) -> None:
    assert f"Unexpected argument: {word}" == refused(word).split("\n")[0]


def test_who_says_nothing_is_told_what_to_begin_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main([])

    assert (
        "--model-repository must be specified\n"
        "Try 'zmqtriton demo' for a first look, 'zmqtriton new NAME' for a model of your own, "
        "'zmqtriton --help' for all options.\n"
    ) == capsys.readouterr().err
