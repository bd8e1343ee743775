"""Which changes of files count, and when."""

from __future__ import annotations

from zmqtriton.supervisor.features.reloading.reloader import FileWatch


def watching(*fingerprints: str) -> FileWatch:
    """A watch that has reported the model `m` with the last of these."""
    watch = FileWatch()
    for fingerprint in fingerprints:
        watch.observe({"m": fingerprint})
        watch.observe({"m": fingerprint})
    return watch


def test_what_is_new_is_reported_once_it_stays_the_same() -> None:
    watch = FileWatch()

    assert [] == watch.observe({"m": "1"})
    assert ["m"] == watch.observe({"m": "1"})
    assert [] == watch.observe({"m": "1"})


def test_a_change_that_goes_on_is_waited_for() -> None:
    watch = watching("1")

    assert [] == watch.observe({"m": "half"})
    assert watch.is_changing
    assert [] == watch.observe({"m": "whole"})
    assert ["m"] == watch.observe({"m": "whole"})
    assert not watch.is_changing


def test_what_is_as_before_again_has_not_changed() -> None:
    watch = watching("1")

    watch.observe({"m": "renamed away"})

    assert [] == watch.observe({"m": "1"})
    assert [] == watch.observe({"m": "1"})


def test_one_model_does_not_wait_for_another() -> None:
    watch = watching("1")

    watch.observe({"m": "2", "n": "1"})

    assert ["m"] == watch.observe({"m": "2", "n": "2"})
    assert ["n"] == watch.observe({"m": "2", "n": "2"})


def test_what_was_not_looked_at_meanwhile_is_new_again() -> None:
    watch = watching("1")
    watch.observe({})

    watch.observe({"m": "1"})

    assert ["m"] == watch.observe({"m": "1"})
