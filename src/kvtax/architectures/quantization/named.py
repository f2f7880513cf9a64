"""Formats by the names that a deployment gives them: quantised while loading, or as a usual recipe makes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.quantization import formats, recipes
from kvtax.architectures.quantization.formats import Format
from kvtax.architectures.quantization.scheme import USUAL, Scheme
from kvtax.architectures.quantization.stored import Quantization
from kvtax.errors import UnknownNameError

MAXIMUM_GROUP = 65_536
_ALL = USUAL | {"mtp"}
# name -> (usual group size, group size -> format)
_NAMES: dict[str, tuple[int, Callable[[int], Format]]] = {
    "fp8": (0, lambda _: formats.fp8_tensor()),
    "fp8-channel": (0, lambda _: formats.fp8_channel()),
    "fp8-block": (128, lambda size: formats.fp8_block(size, size)),
    "mxfp8": (32, formats.mxfp8),
    "w8a8-int8": (0, lambda size: formats.int8(scale="group" if size else "channel", group_size=size)),
    "awq-int4": (128, lambda size: formats.awq(4, size)),
    "gptq-int4": (128, lambda size: formats.gptq(4, size)),
    "gptq-int8": (128, lambda size: formats.gptq(8, size)),
    "ct-int4": (128, lambda size: formats.packed(4, size)),
    "ct-int8": (128, lambda size: formats.packed(8, size)),
    "nvfp4": (16, formats.nvfp4),
    "mxfp4": (32, formats.mxfp4),
    "bnb-nf4": (64, lambda size: formats.bnb_4bit("nf4", block=size)),
    "bnb-int8": (0, lambda _: formats.bnb_int8()),
}
# the quant_method that a checkpoint of this kind states
_METHODS = {
    "fp8": "fp8", "fp8-channel": "compressed-tensors", "fp8-block": "fp8", "mxfp8": "modelopt",
    "w8a8-int8": "compressed-tensors", "awq-int4": "awq", "gptq-int4": "gptq", "gptq-int8": "gptq",
    "ct-int4": "compressed-tensors", "ct-int8": "compressed-tensors", "nvfp4": "modelopt", "mxfp4": "mxfp4",
    "bnb-nf4": "bitsandbytes", "bnb-int8": "bitsandbytes",
}  # fmt: skip
NAMES = tuple("ct-int4-g32" if name == "ct-int4" else name for name in _NAMES)
# per tensor, row or whole matrix: there are no groups to name
_UNGROUPED = frozenset(("fp8", "fp8-channel", "bnb-int8"))
_GGUF = re.compile(r"(i?q[1-8]|tq[12]|mxfp4_moe|f16|f32|bf16)(_[0-9a-z]+)*", re.IGNORECASE | re.ASCII)


def named_quantization(name: str, architecture: Architecture | None = None) -> Quantization:
    """The scheme of a deployment's `quantization`.

    fp8: 1 byte a weight and one float32 a tensor, as engines quantise while loading. Left alone: embeddings, head, norms, routers,
    towers; for mxfp4 attention too, as in gpt-oss; and what recipes for a kind of model leave alone (see `recipes`).

    Args:
        name: one of NAMES, with `-gN` for another group size than the usual one; `-online` where the engine quantises while it loads.
        architecture: the model; None for one of plain attention.

    Returns:
        What is stored in place of a model's weights.

    Raises:
        UnknownNameError: code `unknown-quantization`.
    """
    key = name.strip().lower().replace("_", "-").removesuffix("-online")
    base, size = _split(key)
    if base not in _NAMES or (size is not None and (base in _UNGROUPED or not 1 <= size <= MAXIMUM_GROUP)):
        _unknown(name, base)
    usual, make = _NAMES[base]
    if size is None and architecture is not None:
        usual = recipes.usual_group(base, usual, architecture)
    group_size = usual if size is None else size
    if base == "mxfp4":
        return Scheme(_METHODS[base], make(group_size), only=("mlp", "routed_experts", "shared_experts"))
    untouched = frozenset(("lm_head", "mtp")) if base.startswith("bnb-") else _ALL
    if architecture is not None:
        untouched |= recipes.left_alone(base, architecture)
    others = {part: formats.fp8_tensor() for part in recipes.halfway(base, architecture)} if architecture else {}
    return Scheme(_METHODS[base], make(group_size), untouched=untouched, others=others)


def _split(key: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"(.+)-g([0-9]{1,9})", key, re.ASCII)
    return (found[1], int(found[2])) if found else (key, None)


def _unknown(name: str, base: str) -> NoReturn:
    shown = ascii(name)[:64]
    known = "known: " + ", ".join(NAMES) + "; -gN for another group size"
    if base in _NAMES:
        problem = "has no groups" if base in _UNGROUPED else f"needs a group size from 1 to {MAXIMUM_GROUP}"
        raise UnknownNameError(f"quantization {shown}: {base} {problem}", code="unknown-quantization", hint=known)
    if _GGUF.fullmatch(name.strip()):
        raise UnknownNameError(
            f"quantization {shown} is a GGUF preset: only the llama.cpp engine has those",
            code="unknown-quantization",
            hint="choose --engine llama.cpp, or one of: " + ", ".join(NAMES),
        )
    import difflib  # only a wrong name pays for it

    raise UnknownNameError(
        f"quantization {shown} is not known",
        suggestions=difflib.get_close_matches(base[:64], NAMES, n=3),
        code="unknown-quantization",
        hint=known,
    )
