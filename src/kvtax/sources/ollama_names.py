"""Names of models as Ollama reads them: `{host}/{namespace}/{model}:{tag}`, all but the model with a default.

Source: ollama types/model/name.go at fb30760 (v0.33.0-rc2): parts, defaults, characters, lengths, the short form;
    server/routes.go getExistingName (case of an installed name does not matter).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kvtax.errors import InputError
from kvtax.safe_text import safe

DEFAULT_HOST = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"

_PARTS = {
    "host": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}"),
    "namespace": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}"),
    "model": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"),
    "tag": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"),
}


class OllamaName(NamedTuple):
    """The four parts of a name; each is one folder (the tag one file) below `manifests/`.

    A part begins with a letter, a digit or `_`, and holds no separator: none leads out of its folder.
    """

    host: str
    namespace: str
    model: str
    tag: str

    @property
    def valid(self) -> bool:
        """Whether every part has the characters and the length that Ollama allows."""
        return all(_PARTS[part].fullmatch(value) for part, value in self._asdict().items())

    @property
    def shown(self) -> str:
        """The name as `ollama list` writes it: without default host and namespace, always with the tag."""
        name = f"{self.model}:{self.tag}"
        if self.host.lower() != DEFAULT_HOST:
            return f"{self.host}/{self.namespace}/{name}"
        return name if self.namespace.lower() == DEFAULT_NAMESPACE else f"{self.namespace}/{name}"


def parse_ollama_name(text: str) -> OllamaName:
    """The parts of a name as people type it.

    >>> parse_ollama_name("llama3.1").shown
    'llama3.1:latest'
    >>> parse_ollama_name("hf.co/bartowski/Qwen_Qwen3-8B-GGUF:Q4_K_M").host
    'hf.co'

    Args:
        text: without `ollama:`; a scheme before the host is passed over.

    Raises:
        InputError: a part is empty, too long or has a character that Ollama refuses (`invalid-model-name`).
    """
    rest, tag = text.strip(), DEFAULT_TAG
    if rest.rfind(":") > rest.rfind("/"):
        rest, _, tag = rest.rpartition(":")
    rest, slash, model = rest.rpartition("/")
    namespace, host = DEFAULT_NAMESPACE, DEFAULT_HOST
    if slash:
        rest, slash, namespace = rest.rpartition("/")
        if slash:
            _, scheme, after = rest.partition("://")
            host = after if scheme else rest
    name = OllamaName(host, namespace, model, tag)
    if not name.valid:
        raise InputError(
            f"{safe(text, 96)!r} is not the name of an Ollama model",
            code="invalid-model-name",
            hint="write model, model:tag, user/model:tag or host/user/model:tag, in letters, digits, - _ and .",
        )
    return name
