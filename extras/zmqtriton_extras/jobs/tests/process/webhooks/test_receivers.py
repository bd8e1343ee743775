"""Which URLs a webhook may have, and which addresses may be connected to."""

from __future__ import annotations

import pytest

from zmqtriton_extras.jobs.process.webhooks.receivers import Allowed, NotAllowed, Receiver

LIST = ("app.example", "other.example:8443", "127.0.0.1:9000", "[fd00::5]:81", "10.0.0.0/8")


@pytest.mark.parametrize(
    ("url", "receiver", "authority"),
    [
        ("https://app.example", (True, "app.example", 443, "/"), "app.example"),
        ("http://APP.example:80/a?b=%20", (False, "app.example", 80, "/a?b=%20"), "app.example"),
        ("https://app.example?x", (True, "app.example", 443, "/?x"), "app.example"),
        ("https://other.example:8443/", (True, "other.example", 8443, "/"), "other.example:8443"),
        ("http://127.0.0.1:9000/x", (False, "127.0.0.1", 9000, "/x"), "127.0.0.1:9000"),
        ("http://[::ffff:7f00:1]:9000/", (False, "127.0.0.1", 9000, "/"), "127.0.0.1:9000"),
        ("http://[FD00:0::5]:81", (False, "fd00::5", 81, "/"), "[fd00::5]:81"),
        ("http://10.1.2.3/", (False, "10.1.2.3", 80, "/"), "10.1.2.3"),
    ],
)
def test_a_url_of_the_list_names_its_receiver(
    url: str, receiver: tuple[bool, str, int, str], authority: str
) -> None:
    by_list = Allowed(LIST).find(url)

    assert (Receiver(*receiver), authority) == (by_list, by_list.authority)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "app.example",
        "ftp://app.example/",
        "//app.example/",
        "https:app.example",
        "https://none.example/",
        "https://app.example.evil.example/",
        "https://app.example:8443",
        "https://other.example/",
        "http://127.0.0.1/",
        "https://10.1.2.3:8443/",
        # what two readers of a URL read differently
        "https://app.example@169.254.169.254/",
        "https://169.254.169.254#@app.example/",
        "https://app.example\\@169.254.169.254/",
        "https://app.example\t/",
        "https://app.example /",
        "https://app.example/\r\nX: y",
        "https://app.example/\n",
        "https://app.example./",
        "https://äpp.example/",
        "https://app。example/",
        "https://app.example:0/",
        "https://app.example:99999/",
        "https://app.example:٤٤٣/",
        "https://[app.example]/",
        # addresses in other spellings
        "http://169.254.169.254/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://0x7f.1/",
        "http://127.1:9000/",
        "http://0177.0.0.1:9000/",
        "http://010.1.2.3/",
        "http://[::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fe80::1%25eth0]/",
        "http://localhost:9000/",
        "https://app.example/" + "x" * 2048,
    ],
)
def test_any_other_url_is_refused(url: str) -> None:
    with pytest.raises(NotAllowed):
        Allowed(LIST).find(url)


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        *((public, True) for public in ("8.8.8.8", "::ffff:8.8.8.8", "2606:4700::1111")),
        *((listed, True) for listed in ("10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203")),
        # clouds' metadata
        *((own, False) for own in ("169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254")),
        *((own, False) for own in ("100.100.100.200", "192.0.0.192", "168.63.129.16")),
        *((own, False) for own in ("64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:a9fe::1")),
        # this machine and its networks
        *((own, False) for own in ("127.0.0.1", "0.0.0.0", "::1", "::", "::127.0.0.1")),
        *((own, False) for own in ("172.16.0.1", "192.168.1.1", "fe80::1%eth0", "fc00::1")),
        # nobody's
        *((own, False) for own in ("224.0.0.1", "ff02::1", "255.255.255.255", "192.0.2.1")),
    ],
)
def test_a_host_may_resolve_to_public_and_listed_addresses(address: str, is_allowed: bool) -> None:
    allowed = Allowed(LIST)
    receiver = allowed.find("https://app.example/")

    if is_allowed:
        allowed.check_address(receiver, address)
    else:
        with pytest.raises(NotAllowed, match="is not public"):
            allowed.check_address(receiver, address)


def test_an_address_of_the_list_is_reached_by_its_own_url_alone() -> None:
    allowed = Allowed(LIST)

    allowed.check_address(allowed.find("http://127.0.0.1:9000/"), "127.0.0.1")
    with pytest.raises(NotAllowed):
        allowed.check_address(allowed.find("http://127.0.0.1:9000/"), "127.0.0.2")


@pytest.mark.parametrize(
    "entry", ["", "https://app.example", "a/b", "10.0.0.1/8", "a:0", "*.b", "::1]"]
)
def test_an_entry_that_is_no_host_and_no_network_is_an_error(entry: str) -> None:
    with pytest.raises(ValueError, match=r"must be a host, HOST:PORT or a network|a port must be"):
        Allowed([entry])
