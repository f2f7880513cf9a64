"""Tiny models in every form that kvtax reads, and a hub in memory that serves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from gguf_files import LLAMA_KEYS, TensorOf
from kvtax.sources.hub.client import Reply
from safetensors_files import whole

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def checkpoint(tag: str = "BF16") -> list[tuple[str, str, tuple[int, ...]]]:
    """The tensors of CONFIG, and one that it says nothing of."""
    found: list[tuple[str, str, tuple[int, ...]]] = [
        ("model.embed_tokens.weight", tag, (256, 64)),
        ("lm_head.weight", tag, (256, 64)),
        ("model.norm.weight", tag, (64,)),
        ("extra.*.0.weight", "F32", (1000,)),
    ]
    for layer in range(2):
        start = f"model.layers.{layer}."
        found += [
            (start + "self_attn.q_proj.weight", tag, (64, 64)),
            (start + "self_attn.k_proj.weight", tag, (32, 64)),
            (start + "self_attn.v_proj.weight", tag, (32, 64)),
            (start + "self_attn.o_proj.weight", tag, (64, 64)),
            (start + "mlp.gate_proj.weight", tag, (128, 64)),
            (start + "mlp.up_proj.weight", tag, (128, 64)),
            (start + "mlp.down_proj.weight", tag, (64, 128)),
            (start + "input_layernorm.weight", tag, (64,)),
            (start + "post_attention_layernorm.weight", tag, (64,)),
        ]
    return found


def safetensors_folder(path: Path, config: Mapping[str, Any] = CONFIG) -> Path:
    """A folder with config.json and model.safetensors."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(whole(checkpoint()))
    return path


GGUF_KEYS = {**LLAMA_KEYS, "llama.feed_forward_length": 512, "llama.attention.head_count_kv": 2}


def gguf_tensors(dtype: str = "q4_k", layers: int = 2) -> list[TensorOf]:
    """A whole small Llama, its large matrices in one format."""
    found = [
        TensorOf("token_embd.weight", (256, 4096), "q6_k"),
        TensorOf("output_norm.weight", (256,)),
        TensorOf("output.weight", (256, 4096), "q6_k"),
    ]
    for layer in range(layers):
        start = f"blk.{layer}."
        found += [
            TensorOf(start + "attn_norm.weight", (256,)),
            TensorOf(start + "attn_q.weight", (256, 256), dtype),
            TensorOf(start + "attn_k.weight", (256, 128), dtype),
            TensorOf(start + "attn_v.weight", (256, 128), dtype),
            TensorOf(start + "attn_output.weight", (256, 256), dtype),
            TensorOf(start + "ffn_norm.weight", (256,)),
            TensorOf(start + "ffn_gate.weight", (256, 512), dtype),
            TensorOf(start + "ffn_up.weight", (256, 512), dtype),
            TensorOf(start + "ffn_down.weight", (512, 256), dtype),
        ]
    return found


class HubInMemory:
    """In place of hub.client.Client: serves {repository: {file: bytes, or (beginning, length)}}, and counts what is asked."""

    has_token = token_withheld = False

    def __init__(self, repositories: Mapping[str, Mapping[str, Any]]) -> None:
        self.repositories = repositories
        self.asked: list[str] = []
        self.endpoint = ""

    def __call__(self, endpoint: str) -> HubInMemory:
        self.endpoint = endpoint
        return self

    def get(self, path: str, limit_bytes: int, *, first: int = 0, ranged: bool = False, name: str = "") -> Reply:
        """One answer as the hub gives it."""
        self.asked.append(path)
        if path.startswith("api/models/"):
            repository = path.removeprefix("api/models/").partition("/revision/")[0]
            files = self.repositories[repository]
            siblings = [{"rfilename": file, "size": self._whole(data)[1]} for file, data in files.items()]
            body = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()
            return self._reply(200, body[:limit_bytes])
        repository, _, rest = path.partition("/resolve/")
        file = unquote(rest.partition("/")[2])
        if file not in self.repositories.get(repository, {}):
            word = "EntryNotFound" if repository in self.repositories else "RepoNotFound"
            return self._reply(404, b"", {"x-error-code": word})
        data, size = self._whole(self.repositories[repository][file])
        if not ranged:
            return self._reply(200, data[:limit_bytes], {"content-length": str(size)})
        last = min(first + limit_bytes, size) - 1
        body = data[first : last + 1].ljust(last + 1 - first, b"\0")
        return self._reply(206, body, {"content-range": f"bytes {first}-{last}/{size}"})

    @staticmethod
    def _whole(data: Any) -> tuple[bytes, int]:
        return data if isinstance(data, tuple) else (data, len(data))

    @staticmethod
    def _reply(status: int, body: bytes, headers: Mapping[str, str] = {}) -> Reply:
        found = {"x-repo-commit": COMMIT, **headers}
        return Reply(status, found, found, body)
