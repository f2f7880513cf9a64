"""What can go wrong with the hub, each with its own sentence and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from kvtax.errors import SourceError
from kvtax.safe_text import safe
from kvtax.sources.hub import settings

_LOCAL = "or pass the path of its config.json or of its folder as the model"


def _place(endpoint: str) -> str:
    """The hub as people call it: its host, without user or path."""
    return "the hub" if endpoint == settings.PUBLIC_ENDPOINT else f"the hub at {safe(settings.host_of(endpoint), 96)}"


def offline(name: str) -> SourceError:
    """Nothing on this disk, and no request is allowed."""
    return SourceError(
        f"{name} is neither in the catalogue nor on this disk, and requests are off (--offline or HF_HUB_OFFLINE)",
        code="hub-offline",
        hint=f"allow requests once: what is read is kept; {_LOCAL}",
    )


def timed_out(name: str, endpoint: str, seconds: float) -> SourceError:
    """No answer in time."""
    return SourceError(
        f"{_place(endpoint)} did not answer about {name} within {seconds:.0f} s",
        code="hub-timeout",
        hint=f"try again, raise HF_HUB_DOWNLOAD_TIMEOUT (seconds), {_LOCAL}",
    )


def unreachable(name: str, endpoint: str, reason: str) -> SourceError:
    """No connection."""
    return SourceError(
        f"{_place(endpoint)} cannot be reached for {name} ({safe(reason, 64)})",
        code="hub-unreachable",
        hint=f"check the network, the proxy (HTTPS_PROXY) and HF_ENDPOINT, {_LOCAL}",
    )


def refused(name: str, problem: str, code: str) -> SourceError:
    """The server does something that is not accepted."""
    return SourceError(f"{name}: the server {problem}", code=code, hint=f"is HF_ENDPOINT a hub? {_LOCAL.capitalize()}")


def of_status(
    name: str, endpoint: str, status: int, headers: Mapping[str, str], *, has_token: bool, withheld: bool = False
) -> SourceError:
    """The error of an HTTP status that is no success; a file that is missing in a repository is none and not asked here.

    Args:
        name: of the model.
        endpoint: of the hub.
        status: of the answer.
        headers: of it; `x-error-code` tells a gate from a name that is not there.
        has_token: whether the user has one.
        withheld: whether it was kept back, as the endpoint is neither https nor this machine.
    """
    word = headers.get("x-error-code", "")
    if withheld and status in (401, 403):
        return SourceError(
            f"{name} needs a token, and none is sent over plain http to another machine",
            code="hub-token-withheld",
            hint="use an HF_ENDPOINT with https",
        )
    if "disabled" in headers.get("x-error-message", "").lower() or word == "DisabledRepo":
        return _taken_down(name)
    if word == "GatedRepo" or (status == 403 and not word):
        return _gated(name, endpoint, has_token)
    if word == "RevisionNotFound":
        return SourceError(
            f"{name}: there is no such revision", code="hub-no-revision", hint="name a branch, a tag or a whole commit"
        )
    if status in (401, 403):
        return _private(name, endpoint, has_token)
    if status in (404, 410):
        return SourceError(
            f"there is no model {name} on {_place(endpoint)}" + (" that your token may see" if has_token else ""),
            code="hub-missing",
            hint="check the spelling (org/name); a private one needs HF_TOKEN",
        )
    if status == 451:
        return _taken_down(name)
    if status == 429:
        after = headers.get("retry-after", "")
        wait = f" for {after} s" if after.isascii() and after.isdecimal() and len(after) < 6 else ""
        return SourceError(
            f"{_place(endpoint)} takes no more requests from here{wait} (rate limit)",
            code="hub-rate-limited",
            hint="wait, or set HF_TOKEN: the limit of an account is higher",
        )
    if status >= 500:
        return SourceError(
            f"{_place(endpoint)} fails with status {status} for {name}",
            code="hub-error",
            hint=f"try again later, {_LOCAL}",
        )
    return SourceError(
        f"{_place(endpoint)} answers {name} with status {status}", code="hub-error", hint=_LOCAL.removeprefix("or ")
    )


def _taken_down(name: str) -> SourceError:
    return SourceError(f"{name} has been taken down", code="hub-disabled", hint=_LOCAL.removeprefix("or "))


def _gated(name: str, endpoint: str, has_token: bool) -> SourceError:
    page = f"{settings.PUBLIC_ENDPOINT}/{name.partition('@')[0].partition(':')[0]}"
    where = f" at {page}" if endpoint == settings.PUBLIC_ENDPOINT else ""
    then = "with the account of your token" if has_token else "and set HF_TOKEN (or run: hf auth login)"
    problem = "and your token's account has not been let in" if has_token else "and no token is given"
    return SourceError(
        f"{name} is gated: its owner wants terms to be accepted, {problem}",
        code="hub-gated",
        hint=f"accept them{where} {then}",
    )


def _private(name: str, endpoint: str, has_token: bool) -> SourceError:
    if has_token:
        return SourceError(
            f"{_place(endpoint)} does not let your token read {name}: it is private, or the token is not valid",
            code="hub-private",
            hint="give a token with read access to it: HF_TOKEN, or hf auth login",
        )
    return SourceError(
        f"{name} is private, or there is no such model: {_place(endpoint)} shows it to nobody without a token",
        code="hub-private",
        hint="check the spelling; for a private one set HF_TOKEN, or run: hf auth login",
    )
