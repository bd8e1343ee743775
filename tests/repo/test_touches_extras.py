"""Changes that can touch the extras; .ci/run asks before it runs their tests."""

from __future__ import annotations

import pytest

from tools.touches_extras import main, touching


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("extras/zmqtriton_extras/door/README.md", True),
        ("zmqtriton/sdk/addon.py", True),
        ("frontends/zmqtriton_frontends/gateway/gateway.py", True),
        ("tests/support/waiting.py", True),
        ("pyproject.toml", True),
        ("docs/guides/jobs.md", False),
        ("zmqtriton/broker/requests/answers.py", False),
        ("tests/repo/test_budget.py", False),
    ],
)
def test_a_file_counts_if_an_extra_or_its_tests_import_it(path: str, counts: bool) -> None:
    assert counts is bool(touching([path]))


def test_a_change_that_is_not_known_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["no-such-commit"])
    assert "the change is not known" in capsys.readouterr().out
