"""Signatures of webhooks are those of the specification Standard Webhooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton_extras.jobs.process.webhooks.signatures import read_secrets, sign

#: The specification's example.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE, TIMESTAMP, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def _file(directory: Path, *lines: str) -> str:
    file = directory / "secret"
    file.write_text("\n".join(lines))
    return str(file)


def test_the_specification_s_example_has_its_signature(tmp_path: Path) -> None:
    secrets = read_secrets(_file(tmp_path, SECRET, ""))

    assert sign(secrets, MESSAGE, TIMESTAMP, BODY) == SIGNATURE


def test_while_secrets_change_there_is_a_signature_by_each(tmp_path: Path) -> None:
    secrets = read_secrets(_file(tmp_path, "a plain text is one, too", SECRET))

    first, second = sign(secrets, MESSAGE, TIMESTAMP, BODY).split()
    assert secrets[0] == b"a plain text is one, too"
    assert SIGNATURE == second != first


@pytest.mark.parametrize("lines", [(), ("",), ("short",), (SECRET, "short"), ("whsec_???",)])
def test_a_file_without_a_good_secret_is_an_error(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"secret|base64"):
        read_secrets(_file(tmp_path, *lines))
