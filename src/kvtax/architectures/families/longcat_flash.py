"""LongCat Flash: two latent attentions and two dense MLPs a layer, and experts, some of which compute nothing."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, Config
from kvtax.architectures.decoder import assemble, gated_mlp
from kvtax.architectures.latent import LatentDecoder, latent_attention, latent_caches
from kvtax.architectures.tensors import Tensor, embedding, linear, norm, not_loaded


class LongCat(LatentDecoder):
    """The numbers of LongCat Flash: num_layers blocks, of which each counts as two layers."""

    def __init__(self, config: Config) -> None:
        key, blocks = "num_layers", config.optional_integer("num_layers", maximum=MAXIMUM_LAYERS // 2)
        if config.states("num_hidden_layers"):
            key, blocks = "num_hidden_layers", config.integer("num_hidden_layers") // 2
        if not blocks:
            config.fail(key, "must leave at least one block of two layers")
        super().__init__(config.retyped(num_hidden_layers=2 * blocks))
        self.config = config
        self.blocks = tuple(range(blocks))
        if self.latent.q_lora_rank is None:
            config.fail("q_lora_rank", "is null, but the model always has that latent")


def build(config: Config, *, prefix: str = "") -> Architecture:
    """Two latent attentions and two gated MLPs a block, routed experts on a shortcut.

    Zero experts have a place in the router and no weights: transformers allocates gate and up projections for them too,
    which the checkpoint does not have.
    Source: transformers 5.24.0 models/longcat_flash (modeling, configuration); MTP: the model repository's
    model.safetensors.index.json.
    """
    shape = LongCat(config)
    hidden = shape.hidden_size
    dense_width = config.integer("ffn_hidden_size", "intermediate_size")
    width = config.integer("expert_ffn_hidden_size", "moe_intermediate_size")
    routed = config.integer("n_routed_experts", "num_local_experts", minimum=0, maximum=MAXIMUM_EXPERTS)
    zero = config.optional_integer("zero_expert_num", minimum=0, maximum=MAXIMUM_EXPERTS) or 0
    used = config.integer("moe_topk", "num_experts_per_tok", maximum=MAXIMUM_EXPERTS)
    if used > routed + zero:
        config.fail("moe_topk", f"{used} is more than the {routed + zero} experts that there are")
    layer, blocks = "model.layers.*", shape.blocks
    bias = config.boolean("attention_bias")
    body: list[Tensor] = []
    for half in ("0", "1"):
        body += latent_attention(f"{layer}.self_attn.{half}", blocks, shape.latent, bias=bias)
        body += gated_mlp(f"{layer}.mlps.{half}", blocks, hidden, dense_width)
        body += norm(f"{layer}.input_layernorm.{half}", hidden, blocks)
        body += norm(f"{layer}.post_attention_layernorm.{half}", hidden, blocks)
    body += _router(f"{layer}.mlp.router", blocks, routed + zero, hidden, bias=config.boolean("router_bias"))
    if routed:
        body += gated_mlp(f"{layer}.mlp.experts.*", blocks, hidden, width, component="routed_experts", per_layer=routed)
    body += _mtp(config, shape, dense_width, bias)
    return assemble(
        config, shape, body, latent_caches(shape.latent, shape.num_hidden_layers), prefix=prefix,
        intermediate_size=dense_width, num_experts=routed, num_experts_per_tok=min(used, routed),
        moe_intermediate_size=width, rotary_dim=shape.latent.qk_rope_head_dim,
    )  # fmt: skip


def _router(name: str, layers: tuple[int, ...], experts: int, hidden_size: int, *, bias: bool) -> list[Tensor]:
    """A classifier over routed and zero experts, in float32, and its correction bias."""
    found = [
        Tensor(f"{name}.classifier.weight", (experts, hidden_size), "router", layers, dtype="float32"),
        Tensor(f"{name}.e_score_correction_bias", (experts,), "router", layers, parameter=False, dtype="float32"),
    ]
    if bias:
        found.append(Tensor(f"{name}.classifier.bias", (experts,), "router", layers, dtype="float32"))
    return found


def _mtp(config: Config, shape: LongCat, dense_width: int, bias: bool) -> list[Tensor]:
    """`model.mtp`: layers of one attention and one dense MLP behind norms and a projection; files have one."""
    count = config.optional_integer("num_nextn_predict_layers", default=1, minimum=0, maximum=MAXIMUM_LAYERS)
    layers = tuple(range(count or 0))
    if not layers:
        return []
    layer, hidden = "model.mtp.layers.*", shape.hidden_size
    return not_loaded(
        [
            *embedding(shape.vocab_size, hidden, name="model.mtp.embed_tokens"),
            *norm("model.mtp.norm", hidden),
            *norm(f"{layer}.enorm.m", hidden, layers),
            *norm(f"{layer}.hnorm.m", hidden, layers),
            *linear(f"{layer}.eh_proj", hidden, 2 * hidden, "mtp", layers),
            *latent_attention(f"{layer}.self_attn", layers, shape.latent, bias=bias),
            *gated_mlp(f"{layer}.transformer_layer.mlp", layers, hidden, dense_width),
            *norm(f"{layer}.input_layernorm", hidden, layers),
            *norm(f"{layer}.post_attention_layernorm", hidden, layers),
        ]
    )
