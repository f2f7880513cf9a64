"""MobileNet V5 300M, the convolutional tower of Gemma 3n, which a config names but does not describe."""

from __future__ import annotations

from kvtax.architectures.tensors import Tensor

# stage, kernel at the start (0 for none), kernel in the middle, channels in, expanded, out, blocks of that kind
_INVERTED = (
    (1, 3, 5, 128, 768, 256, (0,)),
    (1, 5, 0, 256, 1024, 256, (1, 3)),
    (1, 3, 0, 256, 1024, 256, (2, 4)),
    (2, 5, 5, 256, 1536, 640, (0,)),
    (2, 5, 0, 640, 2560, 640, tuple(range(1, 8))),
    (2, 0, 0, 640, 640, 640, (8,)),
    (2, 0, 0, 640, 1280, 640, tuple(range(10, 37, 2))),
    (3, 5, 5, 640, 3840, 1280, (0,)),
    (3, 0, 0, 1280, 2560, 1280, tuple(range(2, 39, 2))),
)
# stage, channels, width of the queries, width of the one key/value head, whether keys and values are downsampled, blocks
_ATTENTION = (
    (2, 640, 768, 64, True, tuple(range(9, 36, 2))),
    (3, 1280, 1536, 96, False, tuple(range(1, 38, 2))),
)


def _one(name: str, shape: tuple[int, ...], blocks: tuple[int, ...] = ()) -> Tensor:
    return Tensor(name, shape, "vision", blocks)


def _edge_residual(prefix: str) -> list[Tensor]:
    """Stage 0: three blocks that expand with a 3 x 3 convolution."""
    found: list[Tensor] = []
    for inner, expanded, blocks in ((64, 256, (0,)), (128, 512, (1, 2))):
        block = f"{prefix}blocks.0.*"
        found += [
            _one(f"{block}.conv_exp.weight", (expanded, inner, 3, 3), blocks),
            _one(f"{block}.bn1.weight", (expanded,), blocks),
            _one(f"{block}.conv_pwl.weight", (128, expanded, 1, 1), blocks),
            _one(f"{block}.bn2.weight", (128,), blocks),
        ]
    return found


def _inverted(prefix: str) -> list[Tensor]:
    """Universal inverted residual blocks: depthwise convolutions where there are kernels, expansion, projection, a scale."""
    found: list[Tensor] = []
    for stage, start, middle, inner, expanded, outer, blocks in _INVERTED:
        block = f"{prefix}blocks.{stage}.*"
        for name, kernel, width in (("dw_start", start, inner), ("dw_mid", middle, expanded)):
            if kernel:
                found.append(_one(f"{block}.{name}.conv.weight", (width, 1, kernel, kernel), blocks))
                found.append(_one(f"{block}.{name}.bn.weight", (width,), blocks))
        found += [
            _one(f"{block}.pw_exp.conv.weight", (expanded, inner, 1, 1), blocks),
            _one(f"{block}.pw_exp.bn.weight", (expanded,), blocks),
            _one(f"{block}.pw_proj.conv.weight", (outer, expanded, 1, 1), blocks),
            _one(f"{block}.pw_proj.bn.weight", (outer,), blocks),
            _one(f"{block}.layer_scale.gamma", (outer,), blocks),
        ]
    return found


def _attention(prefix: str) -> list[Tensor]:
    """Multi-query attention blocks."""
    found: list[Tensor] = []
    for stage, width, queries, head_dim, downsampled, blocks in _ATTENTION:
        block = f"{prefix}blocks.{stage}.*"
        found += [
            _one(f"{block}.norm.weight", (width,), blocks),
            _one(f"{block}.attn.query.proj.weight", (queries, width, 1, 1), blocks),
            _one(f"{block}.attn.output.proj.weight", (width, queries, 1, 1), blocks),
            _one(f"{block}.layer_scale.gamma", (width,), blocks),
        ]
        for name in ("key", "value"):
            found.append(_one(f"{block}.attn.{name}.proj.weight", (head_dim, width, 1, 1), blocks))
            if downsampled:
                found.append(_one(f"{block}.attn.{name}.down_conv.weight", (width, 1, 3, 3), blocks))
                found.append(_one(f"{block}.attn.{name}.norm.weight", (width,), blocks))
    return found


def mobilenet_v5_300m(prefix: str) -> list[Tensor]:
    """A stem, four stages of blocks and a fusion of the last two stages: 294,126,912 parameters.

    Source: timm 1.0.31 models/mobilenetv5.py, mobilenetv5_300m_enc.
    """
    return [
        _one(f"{prefix}conv_stem.conv.weight", (64, 3, 3, 3)),
        _one(f"{prefix}conv_stem.conv.bias", (64,)),
        _one(f"{prefix}conv_stem.bn.weight", (64,)),
        *_edge_residual(prefix),
        *_inverted(prefix),
        *_attention(prefix),
        _one(f"{prefix}msfa.ffn.pw_exp.conv.weight", (3840, 1920, 1, 1)),
        _one(f"{prefix}msfa.ffn.pw_exp.bn.weight", (3840,)),
        _one(f"{prefix}msfa.ffn.pw_proj.conv.weight", (2048, 3840, 1, 1)),
        _one(f"{prefix}msfa.ffn.pw_proj.bn.weight", (2048,)),
        _one(f"{prefix}msfa.norm.weight", (2048,)),
    ]
