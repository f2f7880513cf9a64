"""Where a hub may send its reader on to: never to a file, never from the world into a private network, never from https to http."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from kvtax.sources.hub import failures, settings


def check_redirect(endpoint: str, start: str, target: str, name: str) -> None:
    """Refuse a redirect that leads where no hub leads.

    Args:
        endpoint: where the request began.
        start: the address that answered.
        target: where it points to.
        name: of the model, for messages.

    Raises:
        SourceError: code `hub-redirects`.
    """
    try:
        parts = urlsplit(target)
        host = (parts.hostname or "").lower()
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        raise failures.refused(name, "points to something that is no web address", "hub-redirects")
    if urlsplit(start).scheme == "https" and parts.scheme == "http":
        raise failures.refused(name, "points from https to http", "hub-redirects")
    if is_private(host) and not is_private(settings.host_of(endpoint)):
        raise failures.refused(name, "points into a private network", "hub-redirects")
    if _is_link_local(host):
        raise failures.refused(name, "points to an address of the machine's own network card", "hub-redirects")


def is_private(host: str) -> bool:
    """Whether a host is this machine or an address of a private network; names other than localhost are not looked up."""
    host = _plain(host)
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    address = _address(host)
    return address is not None and (not address.is_global or address.is_multicast)


def _is_link_local(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_link_local


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    host = _plain(host)
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return _old_form(host)
    return found if isinstance(found, ipaddress.IPv4Address) else _inside(found)


def _plain(host: str) -> str:
    """A host as resolvers read it: wide digits and dots as plain ones, without the dot at the end."""
    import unicodedata

    return unicodedata.normalize("NFKC", host).replace("\u3002", ".").rstrip(".").lower()


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The IPv4 address that an IPv6 address carries (mapped, 6to4, NAT64, compatible), else itself."""
    carried = address.ipv4_mapped or address.sixtofour
    high = int(address) >> 32
    if carried is None and high in (0x64FF9B << 64, 0) and int(address) > 1:
        carried = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return carried or address


def _old_form(host: str) -> ipaddress.IPv4Address | None:
    """An address in one of the forms that resolvers still take: `2130706433`, `0x7f.1`, `127.1`."""
    import socket

    if not host[:1].isdecimal():
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None
