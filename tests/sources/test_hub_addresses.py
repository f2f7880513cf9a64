"""Where a token may go and where a redirect may lead."""

from __future__ import annotations

import pytest

from kvtax.errors import SourceError
from kvtax.sources.hub import settings
from kvtax.sources.hub.redirects import check_redirect, is_private


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://huggingface.co", True), ("https://hub.example.com", True), ("http://127.0.0.1:8080", True), ("http://localhost:1", True),
        ("http://[::1]:1", True), ("http://huggingface.co", False), ("http://127.evil.example", False), ("http://localhost.evil.example", False),
        ("http://10.0.0.1", False), ("ftp://127.evil.example", False), ("", False),
    ],
)  # fmt: skip
def test_a_token_goes_over_https_or_to_this_machine(url, allowed):
    assert settings.may_carry_token(url) is allowed


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "0.0.0.0", "localhost",  # noqa: S104
        "2130706433", "0x7f000001", "127.1", "017700000001", "::ffff:127.0.0.1", "metadata.internal", "224.0.0.1",
        "127.0.0.1.", "localhost.", "127\u30020\u30020\u30021", "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::", "::127.0.0.1", "2852039166", "0xa9fea9fe", "127.1.",
    ],
)  # fmt: skip
def test_private_hosts(host):
    assert is_private(host)


@pytest.mark.parametrize("host", ["huggingface.co", "8.8.8.8", "cdn-lfs.hf.co", "2606:4700::1111", "1e100.net"])
def test_public_hosts(host):
    assert not is_private(host)


@pytest.mark.parametrize(
    ("endpoint", "target", "allowed"),
    [
        ("https://huggingface.co", "https://cdn-lfs.hf.co/x", True),
        ("https://huggingface.co", "http://cdn-lfs.hf.co/x", False),
        ("https://huggingface.co", "https://10.0.0.1/x", False),
        ("https://huggingface.co", "https://2130706433/x", False),
        ("https://huggingface.co", "file:///etc/passwd", False),
        ("https://huggingface.co", "https:///x", False),
        ("https://huggingface.co", "https://[::1/x", False),
        ("http://127.0.0.1:8080", "http://127.0.0.1:9090/x", True),
        ("http://10.0.0.5", "http://10.0.0.6/x", True),
        ("http://10.0.0.5", "http://169.254.169.254/x", False),
    ],
)
def test_where_a_redirect_may_lead(endpoint, target, allowed):
    if allowed:
        check_redirect(endpoint, endpoint, target, "acme/model")
        return
    with pytest.raises(SourceError) as caught:
        check_redirect(endpoint, endpoint, target, "acme/model")
    assert caught.value.code == "hub-redirects"


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 10.0), ("3", 3.0), ("x", 10.0), ("-1", 10.0), ("1e9", 600.0), ("nan", 10.0)]
)
def test_the_time_of_a_request_has_limits(text, seconds):
    assert settings.request_seconds({"HF_HUB_DOWNLOAD_TIMEOUT": text}) == seconds


@pytest.mark.parametrize("value", ["abc", "2.5", "", "-3"])
def test_a_time_that_the_hubs_package_cannot_read_is_no_bug(value):
    from runner import run

    for name in ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"):
        ran = run("inspect", "acme/none", env={name: value, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": ""})
        assert ran.code == 3
        assert "cannot be reached" in ran.err


def test_a_home_that_is_none_is_one_line():
    from runner import run

    ran = run(
        "inspect", "acme/none", env={"HF_HOME": "/dev/null", "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": ""}
    )
    assert ran.code == 3
    assert ran.err.count("\n") == 2


@pytest.mark.parametrize("endpoint", ["http://h:99999", "http://h:abc", "http://[::1", "foo", "file:///x", "https://"])
def test_an_endpoint_that_is_none(endpoint):
    from kvtax.sources.hub.client import Client

    with pytest.raises(SourceError) as caught:
        Client(endpoint)
    assert caught.value.code == "invalid-endpoint"
