"""Builders of Ollama's store and of LM Studio's folder, for tests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

MEDIA = "application/vnd.ollama.image."


def blob(store: Path, data: bytes) -> tuple[str, int]:
    """Write a blob; its digest and size."""
    digest = hashlib.sha256(data).hexdigest()
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    (store / "blobs" / f"sha256-{digest}").write_bytes(data)
    return f"sha256:{digest}", len(data)


def layer(store: Path, kind: str, data: bytes, **more: Any) -> dict[str, Any]:
    """A layer as a manifest has it, with its blob in the store."""
    digest, size = blob(store, data)
    return {"mediaType": MEDIA + kind, "digest": digest, "size": size, **more}


def manifest_path(store: Path, name: str = "registry.ollama.ai/library/llama3.1/8b") -> Path:
    """Where the manifest of `host/namespace/model/tag` lies."""
    path = store / "manifests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_manifest(
    store: Path, layers: Any, name: str = "registry.ollama.ai/library/llama3.1/8b", **config: Any
) -> Path:
    """A manifest as Ollama writes it."""
    path = manifest_path(store, name)
    about = {"model_format": "gguf", "model_family": "llama", "model_type": "8.0B", "file_type": "Q4_K_M", **config}
    digest, size = blob(store, json.dumps(about).encode())
    document = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": digest, "size": size},
        "layers": layers,
    }
    path.write_text(json.dumps(document))
    return path


def usual_layers(store: Path) -> list[dict[str, Any]]:
    """The layers of a model of the library."""
    return [
        layer(store, "model", b"GGUF" + b"w" * 96),
        layer(store, "template", b"{{ .Prompt }}"),
        layer(store, "license", b"a licence"),
        layer(store, "system", b"You are"),
        layer(store, "params", json.dumps({"num_ctx": 8192, "temperature": 0.5, "stop": ["<|end|>"], "num_gpu": 99.0}).encode()),
    ]  # fmt: skip
