"""Draft models of speculative decoding: EAGLE, EAGLE-3 and the block drafters, as changes to the layers of the family that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.config import Config, describe
from kvtax.architectures.tensors import VOCAB, Tensor, linear, norm
from kvtax.terms import Notice

EAGLE = ("EagleLlamaForCausalLM", "LlamaForCausalLMEagle", "EagleMistralForCausalLM", "EagleLlamaModel", "EagleModel")
EAGLE3 = (
    "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3LlamaModel", "Eagle3DeepseekV2ForCausalLM",
    "Eagle3DeepseekV3ForCausalLM", "Eagle3Speculator", "Eagle3DraftModel", "Eagle3Qwen2_5vlForCausalLM",
)  # fmt: skip
BLOCK = ("DFlashDraftModel", "DSparkDraftModel")
_OTHER = ("Eagle", "NextN", "MTPModel", "Speculator", "DraftModel", "DSpark", "DFlash", "Medusa")
"""Parts of the names of draft classes that are not understood."""
_KEYS = ("draft_vocab_size", "eagle_config", "speculators_model_type", "dflash_config")
"""Keys that only a draft's config has."""
_FIRST_INPUTS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "q_a_proj.weight", "kv_a_proj_with_mqa.weight")
_AUXILIARY_STATES = 3
"""Hidden states of the target that EAGLE-3 takes where the config lists none."""

Build = Callable[[Config], Architecture]


def draft_kind(config: Config) -> str:
    """`eagle`, `eagle3`, `block`, or the empty string for a model that is no draft.

    Raises:
        UnsupportedArchitectureError: a draft of another kind.
    """
    name = config.architecture
    for kind, classes in (("eagle", EAGLE), ("eagle3", EAGLE3), ("block", BLOCK)):
        if name in classes:
            return kind
    stated = config.values.get("speculators_model_type")
    if stated == "eagle3":
        return "eagle3"
    if any(part in name for part in _OTHER) and not name.endswith("ForConditionalGeneration"):
        config.unsupported("architectures", f"drafts of the class {describe(name)} are not understood")
    found = next((key for key in _KEYS if config.values.get(key) is not None), None)
    if found is not None and not name.endswith(("Eagle3", "Eagle")):
        config.unsupported(
            found, f"says that this is a draft, and the class {describe(name)} is not one that is understood"
        )
    return ""


def build_draft(config: Config, kind: str, build: Build) -> Architecture:
    """The draft of a config, made of the layers that `build` reads.

    Source: vllm 0.33.0 model_executor/models/llama_eagle.py, llama_eagle3.py, deepseek_eagle3.py; sglang 0.5 srt/models/llama_eagle3.py;
    block drafters: published totals of z-lab's DFlash and of DSpark drafts.
    """
    inner = config.sub("transformer_layer_config", model_type="llama") if _is_nested(config) else config
    if kind == "eagle":
        found = eagle(build(inner), bias=config.boolean("bias"))
    elif kind == "eagle3":
        found = _eagle3(config, build(_dense(inner)))
    else:
        found = _block(config, build(inner))
    message = "this is a draft of speculative decoding: it runs beside its target only"
    notice = Notice("draft-model", message, "name it beside the target: --speculative METHOD:TOKENS:MODEL")
    return found.replace(notices=(*found.notices, notice))


def _is_nested(config: Config) -> bool:
    return config.has_sub("transformer_layer_config")


def _dense(config: Config) -> Config:
    """The layers of a draft, which are dense whatever their family does; one where their number is not stated."""
    stated = config.values.get("num_hidden_layers") is not None
    layers = config.integer("num_hidden_layers") if stated else 1
    changes: dict[str, Any] = {"num_hidden_layers": layers}
    if config.states("n_routed_experts", "first_k_dense_replace"):
        changes.update(first_k_dense_replace=layers, num_nextn_predict_layers=0)
    return config.retyped(keep_defaults=True, **changes)


def is_draft(architecture: Architecture) -> bool:
    """Whether an architecture takes hidden states of a target."""
    return any(tensor.name.rpartition("model.")[2] == "fc.weight" for tensor in architecture.tensors)


def as_draft(architecture: Architecture, method: str) -> Architecture:
    """A model that is named as an EAGLE draft, as the engine takes it: a plain decoder's config is read as EAGLE's.

    Source: vllm 0.33.0 transformers_utils/configs/eagle.py: the method decides, for configs that name the plain class.
    """
    return eagle(architecture) if method == "eagle" and not is_draft(architecture) else architecture


def eagle(architecture: Architecture, *, bias: bool = False) -> Architecture:
    """EAGLE's draft of the layers of a plain decoder: hidden state and embedding joined by `fc`, no norm at either end, the target's head.

    fc [hidden_size, 2 * hidden_size]

    Args:
        architecture: what the config says without its class; configs of published drafts name the plain class.
        bias: whether `fc` has one.

    Returns:
        The draft; its embedding is in the file, and the engine takes the target's.

    Source: vllm 0.33.0 model_executor/models/llama_eagle.py; SafeAILab/EAGLE eagle/model/cnets1.py.
    """
    hidden = architecture.hidden_size
    found: list[Tensor] = []
    for tensor in architecture.tensors:
        name = tensor.name.removeprefix("model.")
        if tensor.component == "lm_head" or name.startswith("norm."):
            continue
        if name.endswith(".input_layernorm.weight"):
            if len(tensor.layers) > 1:
                found.append(tensor._replace(name=name, layers=tensor.layers[1:]))
            continue
        found.append(tensor._replace(name=name, loaded=tensor.component != "embedding"))
    found += linear("fc", hidden, 2 * hidden, "other", bias=bias)
    return architecture.replace(tensors=found)


def _option(config: Config, key: str) -> bool:
    """A switch that stands at the outermost level or in `eagle_config`."""
    inner = config.values.get("eagle_config")
    if config.values.get(key) is None and isinstance(inner, dict):
        return config.sub("eagle_config").boolean(key)
    return config.boolean(key)


def _auxiliary_states(config: Config) -> int:
    """Hidden states of the target that are joined: as many as layers are listed, else three; 0 where none are taken."""
    nested = config.sub("eagle_config") if config.has_sub("eagle_config") else config
    if nested.values.get("use_aux_hidden_state") is False:
        return 0
    for level in (config, nested):
        listed = level.integers("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", minimum=-4096)
        if listed:
            return len(listed)
    return config.optional_integer("num_aux_hidden_states", maximum=4096) or _AUXILIARY_STATES


def _eagle3(config: Config, base: Architecture) -> Architecture:
    """The first layer attends over embedding and hidden state joined; the hidden states of several layers go through `fc`; a head of its own.

    q, k, v of the first layer [., 2 * hidden_size]; fc [hidden_size, states * target_hidden_size]; lm_head [draft_vocab_size, hidden_size]
    """
    hidden, vocab_size = base.hidden_size, base.vocab_size
    rows = config.optional_integer("draft_vocab_size") or vocab_size
    one = base.num_hidden_layers == 1 and not _is_nested(config)
    found: list[Tensor] = []
    for tensor in base.tensors:
        name = tensor.name.removeprefix("model.")
        name = name.replace("layers.*.", "midlayer.", 1) if one else name
        layers = () if one and tensor.layers == (0,) else tensor.layers
        if tensor.component == "embedding":
            found.append(tensor._replace(name=name, loaded=False, stored=_is_nested(config)))
        elif tensor.component == "lm_head":
            found.append(tensor._replace(name=name, shape=(rows, *tensor.shape[1:])))
        elif name.endswith(_FIRST_INPUTS):
            found += _wider(tensor._replace(name=name, layers=layers), hidden, tensor.layers)
        else:
            found.append(tensor._replace(name=name, layers=layers))
    found += norm("midlayer.hidden_norm" if one else "layers.*.hidden_norm", hidden, () if one else (0,))
    found += _joined(config, hidden)
    if rows != vocab_size:
        found.append(Tensor("d2t", (rows,), "other", parameter=False, dtype="int64"))
        found.append(Tensor("t2d", (vocab_size,), "other", parameter=False, loaded=False, dtype="bool"))
    notices = base.notices
    if not _is_nested(config):
        message = "a draft's file may hold an embedding of its own; engines take the target's where they are equal"
        notices = (*notices, Notice("draft-embedding", message))
    return base.replace(tensors=found, notices=notices, name=config.architecture or base.name)


def _wider(tensor: Tensor, hidden_size: int, layers: tuple[int, ...]) -> list[Tensor]:
    """The projection with twice the inputs in the first layer, as it is in the others."""
    wide = tensor._replace(shape=(tensor.shape[0], tensor.shape[1] + hidden_size))
    if len(layers) < 2:
        return [wide]
    return [wide._replace(layers=layers[:1]), tensor._replace(layers=layers[1:])]


def _joined(config: Config, hidden_size: int) -> list[Tensor]:
    """`fc` over the target's hidden states, with a norm over all or over each before it.

    Source: vllm 0.33.0 model_executor/models/llama_eagle3.py; vllm-project/vllm#42143 (the switch in eagle_config).
    """
    states = _auxiliary_states(config)
    if not states:
        return []
    width = config.optional_integer("target_hidden_size") or hidden_size
    found = linear("fc", hidden_size, states * width, "other", bias=config.boolean("bias"))
    if _option(config, "norm_before_fc"):
        found += norm("input_norm", states * width)
    if _option(config, "fc_norm"):
        found += norm("fc_norm.*", width, tuple(range(states)))
    return found


def _block(config: Config, base: Architecture) -> Architecture:
    """Layers over the hidden states of several target layers joined by `fc`; embedding and head are the target's.

    fc [hidden_size, layers taken * hidden_size]; DSpark: markov_w1 and markov_w2 [vocab_size, markov_rank], a confidence of hidden_size + markov_rank

    Source: published totals: z-lab/Qwen3-8B-DFlash-b16 1,048,626,432 and seven more, openbmb/MiniCPM5-2B-DSpark 323,776,001.
    """
    hidden = base.hidden_size
    inner = config.sub("dflash_config") if config.has_sub("dflash_config") else config
    listed = None
    for level in (inner, config):
        listed = listed or level.integers("target_layer_ids", "aux_hidden_state_layer_ids", minimum=-4096)
    if not listed:
        config.fail("target_layer_ids", "is missing: the layers of the target that the draft takes")
    kept = [
        tensor._replace(name=tensor.name.removeprefix("model."))
        for tensor in base.tensors
        if tensor.component not in ("embedding", "lm_head")
    ]
    kept += linear("fc", hidden, len(listed) * hidden, "other")
    kept += norm("hidden_norm", hidden)
    rank = config.optional_integer("markov_rank", minimum=0) or 0
    if config.architecture.startswith("DFlash2") or config.values.get("selector_rank") is not None:
        config.unsupported("selector_rank", "the second form of this draft is not understood")
    if rank:
        for name in ("markov_w1", "markov_w2"):
            kept.append(Tensor(f"markov_head.{name}.weight", (base.vocab_size, rank), "other", shard=VOCAB))
        if config.boolean("enable_confidence_head", default=True):
            wide = hidden + rank if config.boolean("confidence_head_with_markov", default=True) else hidden
            kept += linear("confidence_head.proj", 1, wide, "other", bias=True)
    return base.replace(tensors=kept, name=config.architecture)
