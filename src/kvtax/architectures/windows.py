"""Which layers of a dense decoder see a window only: one rule for each way in which configs say it."""

from __future__ import annotations

from collections.abc import Callable

from kvtax.architectures.config import Config
from kvtax.architectures.decoder import every_nth_full

# what a rule gives: `full_attention` or `sliding_attention` for each layer, and the window of the sliding ones
Windows = tuple[list[str], int | None]
Rule = Callable[[Config, int], Windows]

FULL, SLIDING = "full_attention", "sliding_attention"


def stated_kinds(config: Config, num_hidden_layers: int) -> list[str] | None:
    """The config's own `layer_types`, the older name `attention` included, or None where it gives none."""
    kinds = config.layer_types(num_hidden_layers)
    return None if kinds is None else [FULL if kind == "attention" else kind for kind in kinds]


def no_windows(_config: Config, num_hidden_layers: int) -> Windows:
    """Every layer keeps every token, whatever the config says about windows."""
    return [FULL] * num_hidden_layers, None


def listed(config: Config, num_hidden_layers: int) -> Windows:
    """Windows only where layer_types names sliding layers and sliding_window is a number; a lone sliding_window is ignored.

    Source: vllm 0.33.0 model_executor/models/llama.py LlamaAttention.
    """
    kinds = stated_kinds(config, num_hidden_layers)
    window = config.optional_integer("sliding_window", minimum=0) or None
    if kinds is None or window is None:
        kinds = [FULL] * num_hidden_layers if kinds is None else [FULL if kind == SLIDING else kind for kind in kinds]
    return kinds, window


def uniform(config: Config, num_hidden_layers: int) -> Windows:
    """A `sliding_window` that is not null is that of every layer, unless the config states layer_types."""
    window = config.optional_integer("sliding_window")
    kinds = stated_kinds(config, num_hidden_layers)
    return kinds or [FULL if window is None else SLIDING] * num_hidden_layers, window


def switched(config: Config, num_hidden_layers: int) -> Windows:
    """`use_sliding_window` switches windows on, for layers from max_window_layers on unless layer_types says which."""
    if not config.boolean("use_sliding_window"):
        return [FULL] * num_hidden_layers, None
    window = config.optional_integer("sliding_window")
    kinds = stated_kinds(config, num_hidden_layers)
    if kinds is None:
        first = config.integer("max_window_layers", minimum=0) if window is not None else num_hidden_layers
        kinds = [SLIDING if layer >= first else FULL for layer in range(num_hidden_layers)]
    return kinds, window


def every_nth(n: int, key: str = "") -> Rule:
    """layer_types; without them every n-th layer is full, where `key` names what may give another n."""

    def rule(config: Config, num_hidden_layers: int) -> Windows:
        kinds = stated_kinds(config, num_hidden_layers)
        if kinds is None:
            stated = config.optional_integer(key, default=n) if key else n
            kinds = every_nth_full(num_hidden_layers, n if stated is None else stated)
        return kinds, config.optional_integer("sliding_window")

    return rule


def first_of_four(config: Config, num_hidden_layers: int) -> Windows:
    """layer_types; without them layers 0, 4, 8 ... are full."""
    kinds = stated_kinds(config, num_hidden_layers)
    if kinds is None:
        kinds = [SLIDING if layer % 4 else FULL for layer in range(num_hidden_layers)]
    return kinds, config.optional_integer("sliding_window", minimum=0) or None


def gemma3(config: Config, num_hidden_layers: int) -> Windows:
    """Every 6th layer is full; an encoder that looks both ways has half the window on each side."""
    kinds, window = every_nth(6, "sliding_window_pattern")(config, num_hidden_layers)
    if window is not None and config.boolean("use_bidirectional_attention"):
        window = window // 2 + 1
    return kinds, window


def exaone4(config: Config, num_hidden_layers: int) -> Windows:
    """layer_types; without them sliding_window_pattern: a number, or letters (`LLLG`) with the last layer full."""
    window = config.optional_integer("sliding_window")
    kinds = stated_kinds(config, num_hidden_layers)
    if kinds is not None:
        return kinds, window
    pattern = config.get("sliding_window_pattern")
    if window is None or pattern is None:
        return [FULL] * num_hidden_layers, None
    if not isinstance(pattern, str):
        return every_nth_full(num_hidden_layers, config.integer("sliding_window_pattern")), window
    if not pattern or not set(pattern) <= {"L", "G"}:
        config.unsupported("sliding_window_pattern", "a pattern is made of the letters L and G")
    kinds = [SLIDING if pattern[layer % len(pattern)] == "L" else FULL for layer in range(num_hidden_layers)]
    return [*kinds[:-1], FULL], window


def smollm3(config: Config, num_hidden_layers: int) -> Windows:
    """layer_types; without them the layers without rope slide, where use_sliding_window asks for it."""
    window = config.optional_integer("sliding_window")
    kinds = stated_kinds(config, num_hidden_layers)
    if kinds is None and window is not None and config.boolean("use_sliding_window"):
        rope = config.integers("no_rope_layers", length=num_hidden_layers, maximum=1)
        if rope is None:
            interval = config.integer("no_rope_layer_interval", default=4)
            rope = [int((layer + 1) % interval != 0) for layer in range(num_hidden_layers)]
        kinds = [FULL if has_rope else SLIDING for has_rope in rope]
    return kinds or [FULL] * num_hidden_layers, window
