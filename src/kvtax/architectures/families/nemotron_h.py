"""Nemotron H and Nemotron 3: each layer is one of Mamba 2, attention, an MLP or a mixture of experts."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.cache import FullAttention, LayerCache, NoCache
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, MAXIMUM_WIDTH, Config, describe
from kvtax.architectures.decoder import Shape, assemble, attention, layers_where, plain_mlp
from kvtax.architectures.recurrent import Mamba2, kernel_size, layer_kinds, state_dtypes
from kvtax.architectures.tensors import Tensor, linear, norm, not_loaded

_KINDS = ("linear_attention", "full_attention", "mlp", "moe")
_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
_RENAMED = {"mamba": "linear_attention", "attention": "full_attention"}


class _Layers(Shape):
    """The layer list decides how many layers there are."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.kinds = _layer_list(config)
        self.num_hidden_layers = len(self.kinds)
        self.hidden_size = config.integer("hidden_size")
        self.num_attention_heads = config.integer("num_attention_heads")
        self.num_key_value_heads = config.num_key_value_heads(self.num_attention_heads)
        width = config.optional_integer("head_dim", "attention_head_dim")
        self.head_dim = width or config.head_dim(self.hidden_size, self.num_attention_heads)
        self.vocab_size = config.integer("vocab_size")
        self.layers = tuple(range(self.num_hidden_layers))
        self.tied = False  # the class ties nothing, whatever tie_word_embeddings says


def build(config: Config, *, prefix: str = "") -> Architecture:
    """One mixer and one RMS norm a layer. Experts may work in a latent width; MTP layers are in the file, not loaded.

    Source: transformers 5.24.0 models/nemotron_h/modeling_nemotron_h.py; MTP: vllm 0.33.0 models/nemotron_h_mtp.py.
    """
    shape = _Layers(config)
    mixer = _mamba(config, shape.hidden_size)
    layer = "backbone.layers.*"
    body = norm(f"{layer}.norm", shape.hidden_size, shape.layers)
    found = {kind: layers_where(shape.kinds, kind) for kind in _KINDS}
    if found["linear_attention"]:
        body += mixer.tensors(f"{layer}.mixer", found["linear_attention"])
    body += _blocks(config, shape, f"{layer}.mixer", found)
    mtp = _mtp(config, shape, mixer)
    full = FullAttention(shape.num_key_value_heads, shape.head_dim, shape.head_dim)
    recurrent = mixer.cache(state_dtypes(config))
    kept: dict[str, LayerCache] = {"full_attention": full, "linear_attention": recurrent}
    moe = bool(found["moe"])
    num_experts = _num_experts(config) if moe else 0
    return assemble(
        config, shape, [*body, *mtp], [kept.get(kind, NoCache()) for kind in shape.kinds], prefix=prefix,
        embed_name="backbone.embeddings", final_norm=norm("backbone.norm_f", shape.hidden_size),
        intermediate_size=max(_intermediate_sizes(config, len(found["mlp"])), default=0), rotary_dim=0,
        num_experts=num_experts,
        num_experts_per_tok=config.integer("num_experts_per_tok", maximum=num_experts) if moe else 0,
        moe_intermediate_size=config.integer("moe_intermediate_size") if moe else 0,
    )  # fmt: skip


def _layer_list(config: Config) -> list[str]:
    """layers_block_type, else hybrid_override_pattern, one letter a layer, else the class's own list of four."""
    stated = config.optional_list("layers_block_type", "layer_types")
    if stated is not None:
        if not 1 <= len(stated) <= MAXIMUM_LAYERS:
            config.fail(
                "layers_block_type", f"has {len(stated)} items; between 1 and {MAXIMUM_LAYERS} layers are possible"
            )
        return layer_kinds(config, len(stated), _KINDS) or []
    if config.states("hybrid_override_pattern"):
        return _pattern(config, "hybrid_override_pattern")
    return ["linear_attention", "moe", "full_attention", "mlp"]


def _pattern(config: Config, key: str) -> list[str]:
    letters = config.string(key)
    if not 1 <= len(letters) <= MAXIMUM_LAYERS:
        config.fail(key, f"has {len(letters)} letters; between 1 and {MAXIMUM_LAYERS} layers are possible")
    for letter in letters:
        if letter not in _LETTERS:
            config.unsupported(key, f"layer letter {describe(letter)} is not understood")
    return [_LETTERS[letter] for letter in letters]


def _mamba(config: Config, hidden_size: int) -> Mamba2:
    num_heads, head_dim = config.integer("mamba_num_heads"), config.integer("mamba_head_dim")
    use_bias = config.boolean("use_bias")
    mixer = Mamba2(
        hidden_size,
        num_heads * head_dim,
        num_heads,
        head_dim,
        config.integer("ssm_state_size"),
        config.integer("mamba_n_groups", "n_groups"),
        kernel_size(config, "mamba_d_conv", "conv_kernel"),
        conv_bias=config.boolean("mamba_conv_bias", "use_conv_bias", default=True),
        in_bias=use_bias,
        out_bias=use_bias,
    )
    return mixer.check(config, "mamba_num_heads")


def _num_experts(config: Config) -> int:
    return config.integer("n_routed_experts", maximum=MAXIMUM_EXPERTS)


def _intermediate_sizes(config: Config, count: int) -> list[int]:
    """The width of each MLP layer: one number, or a list with one for each (pruned models)."""
    if not count:
        return []
    if isinstance(config.get("intermediate_size"), list):
        widths = config.integers("intermediate_size", minimum=1, maximum=MAXIMUM_WIDTH) or []
        if len(widths) not in (1, count):
            config.fail("intermediate_size", f"has {len(widths)} items, but the model has {count} MLP layers")
        return widths * count if len(widths) == 1 else widths
    return [config.integer("intermediate_size")] * count


def _blocks(config: Config, shape: Shape, mixer: str, found: dict[str, tuple[int, ...]]) -> list[Tensor]:
    """Attention (never a bias), MLPs of two matrices and experts, all named `mixer`."""
    body: list[Tensor] = []
    hidden, names, bias = shape.hidden_size, ("up_proj", "down_proj"), config.boolean("mlp_bias")
    if found["full_attention"]:
        heads = (shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim)
        body += attention(mixer, found["full_attention"], hidden, *heads)
    widths = _intermediate_sizes(config, len(found["mlp"]))
    for width in sorted(set(widths)):
        layers = tuple(index for index, own in zip(found["mlp"], widths, strict=True) if own == width)
        body += plain_mlp(mixer, layers, hidden, width, bias=bias, names=names)
    if found["moe"]:
        body += _experts(config, hidden, mixer, found["moe"], bias)
    return body


def _experts(config: Config, hidden: int, mixer: str, layers: tuple[int, ...], bias: bool) -> list[Tensor]:
    """A router, experts of two matrices, a shared MLP, and any projections into and out of the experts' width."""
    num_experts, width = _num_experts(config), config.integer("moe_intermediate_size")
    latent = config.optional_integer("moe_latent_size")
    names = ("up_proj", "down_proj")
    shared = config.optional_integer("moe_shared_expert_intermediate_size", minimum=0) or config.integer(
        "intermediate_size"
    )
    body = [
        Tensor(f"{mixer}.gate.weight", (num_experts, hidden), "router", layers),
        Tensor(
            f"{mixer}.gate.e_score_correction_bias", (num_experts,), "router", layers, parameter=False, dtype="float32"
        ),
        *plain_mlp(
            f"{mixer}.experts.*",
            layers,
            latent or hidden,
            width,
            component="routed_experts",
            names=names,
            per_layer=num_experts,
        ),
        *plain_mlp(
            f"{mixer}.shared_experts", layers, hidden, shared, bias=bias, component="shared_experts", names=names
        ),
    ]
    if latent:
        body += linear(f"{mixer}.fc1_latent_proj", latent, hidden, "mlp", layers, bias=bias)
        body += linear(f"{mixer}.fc2_latent_proj", hidden, latent, "mlp", layers, bias=bias)
    return body


def _mtp(config: Config, shape: Shape, mixer: Mamba2) -> list[Tensor]:
    """The layers that predict further tokens: the pattern of one step, num_nextn_predict_layers times."""
    steps = config.optional_integer("num_nextn_predict_layers", minimum=0, maximum=64) or 0
    if not steps:
        return []
    kinds = _mtp_kinds(config) * steps
    layer, hidden = "mtp.layers.*", shape.hidden_size
    layers = tuple(range(len(kinds)))
    first = tuple(range(0, len(kinds), len(kinds) // steps))
    last = tuple(index + len(kinds) // steps - 1 for index in first)
    found = {kind: layers_where(kinds, kind) for kind in _KINDS}
    body = [
        *norm(f"{layer}.norm", hidden, layers),
        *norm(f"{layer}.enorm", hidden, first),
        *norm(f"{layer}.hnorm", hidden, first),
        *linear(f"{layer}.eh_proj", hidden, 2 * hidden, "mtp", first),
        *norm(f"{layer}.final_layernorm", hidden, last),
        *_blocks(config, shape, f"{layer}.mixer", found),
    ]
    if found["linear_attention"]:
        body += mixer.tensors(f"{layer}.mixer", found["linear_attention"])
    return not_loaded(body)


def _mtp_kinds(config: Config) -> list[str]:
    """mtp_layers_block_type; the class's own list gives way to mtp_hybrid_override_pattern."""
    default = ["full_attention", "moe"]
    stated = config.optional_list("mtp_layers_block_type")
    kinds = default
    if stated is not None:
        if not 1 <= len(stated) <= 64:
            config.fail("mtp_layers_block_type", f"has {len(stated)} items; between 1 and 64 are possible")
        kinds = []
        for index, value in enumerate(stated):
            kind = _RENAMED.get(value, value) if isinstance(value, str) else ""
            if kind not in _KINDS:
                config.unsupported(f"mtp_layers_block_type[{index}]", f"layer type {describe(value)} is not understood")
            kinds.append(kind)
    if kinds == default and config.states("mtp_hybrid_override_pattern"):
        kinds = _pattern(config, "mtp_hybrid_override_pattern")
        if len(kinds) > 64:
            config.fail("mtp_hybrid_override_pattern", "has more than 64 letters")
    return kinds
