"""What the environment says about the hub, under the names that huggingface_hub reads; its own package is not imported for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

PUBLIC_ENDPOINT = "https://huggingface.co"
_TRUE = frozenset(("1", "ON", "YES", "TRUE"))
DEFAULT_SECONDS = 10.0
_MAXIMUM_SECONDS = 600.0


def endpoint(environment: Mapping[str, str] = os.environ) -> str:
    """HF_ENDPOINT, or the public hub."""
    return (environment.get("HF_ENDPOINT") or PUBLIC_ENDPOINT).rstrip("/")


def is_offline(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids every request (`--offline` sets the first)."""
    value = environment.get("HF_HUB_OFFLINE") or environment.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in _TRUE


def request_seconds(environment: Mapping[str, str] = os.environ) -> float:
    """HF_HUB_DOWNLOAD_TIMEOUT: how long one request for a small file may take [s]."""
    try:
        value = float(environment.get("HF_HUB_DOWNLOAD_TIMEOUT") or DEFAULT_SECONDS)
    except ValueError:
        return DEFAULT_SECONDS
    return min(value, _MAXIMUM_SECONDS) if value > 0 else DEFAULT_SECONDS


def hub_cache(environment: Mapping[str, str] = os.environ) -> str:
    """HF_HUB_CACHE, else `hub` in HF_HOME, else in huggingface's folder of the user's cache."""
    explicit = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    if explicit:
        return _expanded(explicit)
    home = environment.get("HF_HOME")
    if not home:
        home = os.path.join(environment.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"), "huggingface")
    return os.path.join(_expanded(home), "hub")


def _expanded(path: str) -> str:
    return os.path.expandvars(os.path.expanduser(path))


def host_of(url: str) -> str:
    """The host of a URL, '' where it has none that can be understood."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a URL; a port that cannot be is -1."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    return parts.scheme.lower(), (parts.hostname or "").lower(), port or {"https": 443, "http": 80}.get(parts.scheme, 0)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    import ipaddress

    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_carry_token(url: str) -> bool:
    """Whether a token may be sent to an endpoint: over https, or to this machine."""
    return urlsplit(url).scheme == "https" or is_loopback(host_of(url))
