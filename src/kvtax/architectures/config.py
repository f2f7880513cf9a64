"""Reading a config.json strictly: each value checked, each class default that was used remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from kvtax.errors import ConfigError, UnsupportedArchitectureError

MAXIMUM_LAYERS = 4096
MAXIMUM_HEADS = 65_536
MAXIMUM_WIDTH = 2**24
MAXIMUM_POSITIONS = 2**31
MAXIMUM_EXPERTS = 65_536

_LIMITS = {
    "num_hidden_layers": MAXIMUM_LAYERS,
    "encoder_layers": MAXIMUM_LAYERS,
    "decoder_layers": MAXIMUM_LAYERS,
    "n_layer": MAXIMUM_LAYERS,
    "num_layers": MAXIMUM_LAYERS,
    "depth": MAXIMUM_LAYERS,
    "num_attention_heads": MAXIMUM_HEADS,
    "num_key_value_heads": MAXIMUM_HEADS,
    "max_position_embeddings": MAXIMUM_POSITIONS,
    "sliding_window": MAXIMUM_POSITIONS,
}


def describe(value: object) -> str:
    """A value from a file, short enough and safe to print: strings quoted with escapes, 64 characters at most."""
    text = ascii(value)
    return text if len(text) <= 64 else text[:61] + "..."


class Config:
    """One level of a config.json (the whole, or a nested text_config), with its model type's class defaults behind it.

    A key that is stated wins, also when it says null. A key that is left out takes the class default, and the use is recorded in
    `defaults_used`. `keys` may be given in several spellings: the first that is stated wins.

    Args:
        values: the parsed JSON object.
        model_type: the family; the value of `model_type` unless given.
        class_defaults: model_type -> {"defaults": {...}, "attribute_map": {...}, "sub_configs": {...}}, or None where there are none.
        path: where this level stands in the file, for messages, such as `text_config.`.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        class_defaults: Callable[[str], Mapping[str, Any] | None],
        *,
        model_type: str | None = None,
        path: str = "",
        defaults_used: dict[str, Any] | None = None,
        parent: Config | None = None,
    ) -> None:
        self.values = values
        self.path = path
        self.parent = parent
        stated = values.get("model_type")
        self.model_type: str = model_type or (stated if isinstance(stated, str) else "")
        self._load_defaults = class_defaults
        entry = (class_defaults(self.model_type) if self.model_type else None) or {}
        self._defaults: Mapping[str, Any] = entry.get("defaults", {})
        self._attribute_map: Mapping[str, str] = entry.get("attribute_map", {})
        self._sub_configs: Mapping[str, str] = entry.get("sub_configs", {})
        self._sub_config_init: Mapping[str, Mapping[str, Any]] = entry.get("sub_config_init", {})
        self._sub_config_defaults: Mapping[str, Mapping[str, Any]] = entry.get("sub_config_defaults", {})
        self.defaults_used: dict[str, Any] = {} if defaults_used is None else defaults_used

    # ---- raw access ----

    def _spellings(self, keys: tuple[str, ...]) -> list[str]:
        names: list[str] = []
        for key in keys:
            # an alias that the file states replaces what the canonical name says, as it does in transformers
            aliases = [alias for alias, name in self._attribute_map.items() if name == key]
            for name in (*aliases, key, self._attribute_map.get(key)):
                if name and name not in names:
                    names.append(name)
        return names

    def states(self, *keys: str) -> bool:
        """Whether the file itself gives one of the keys a value other than null."""
        return any(self.values.get(name) is not None for name in self._spellings(keys))

    def mentions(self, *keys: str) -> bool:
        """Whether one of the keys stands in the file, be it as null."""
        return any(name in self.values for name in self._spellings(keys))

    def find(self, *keys: str, default: Any = None) -> tuple[str, Any]:
        """The spelling that was found and its value: stated, else class default, else `default`.

        Among spellings a stated value that is not null wins over a stated null, and both over a class default.
        """
        names = self._spellings(keys)
        for name in names:
            if self.values.get(name) is not None:
                return name, self.values[name]
        for name in names:
            if name in self.values:
                return name, None
        for name in names:
            if name in self._defaults:
                value = self._defaults[name]
                if value is not None:
                    self.defaults_used[self.path + name] = value
                return name, value
        return keys[0], default

    def get(self, *keys: str, default: Any = None) -> Any:
        """The value of the first key that has one (see `find`); not checked."""
        return self.find(*keys, default=default)[1]

    def where(self, key: str) -> str:
        """The place of a key, for messages."""
        return f"config.json: {self.path}{key}"

    def fail(self, key: str, problem: str, hint: str = "") -> NoReturn:
        """Raise a ConfigError about a key.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(problem, where=self.where(key), hint=hint)

    def unsupported(self, key: str, problem: str) -> NoReturn:
        """Raise an UnsupportedArchitectureError that says what is not understood.

        Raises:
            UnsupportedArchitectureError: always.
        """
        raise UnsupportedArchitectureError(
            f"{self.model_type or 'this architecture'}: {problem}",
            where=self.where(key),
            hint="no budget without it; weights alone are known where the catalogue or a safetensors index beside the config has a total",
        )

    # ---- typed access ----

    def optional_integer(
        self, *keys: str, default: int | None = None, minimum: int = 1, maximum: int | None = None
    ) -> int | None:
        """An integer, or None where it is null or left out without a default.

        Raises:
            ConfigError: not an integer, or outside minimum..maximum.
        """
        name, value = self.find(*keys, default=default)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(name, f"must be a whole number, not {describe(value)}")
        limit = maximum if maximum is not None else _LIMITS.get(keys[0], MAXIMUM_WIDTH)
        if not minimum <= value <= limit:
            self.fail(name, f"must be between {minimum} and {limit}, not {describe(value)}")
        return value

    def integer(self, *keys: str, default: int | None = None, minimum: int = 1, maximum: int | None = None) -> int:
        """An integer that the architecture cannot do without.

        Raises:
            ConfigError: missing, not an integer, or outside minimum..maximum.
        """
        value = self.optional_integer(*keys, default=default, minimum=minimum, maximum=maximum)
        if value is None:
            self.fail(keys[0], "is missing, and its model type has no default for it")
        return value

    def boolean(self, *keys: str, default: bool = False) -> bool:
        """A boolean; null counts as the default.

        Raises:
            ConfigError: neither true nor false.
        """
        name, value = self.find(*keys, default=default)
        if value is None:
            return default
        if value in (0, 1) and isinstance(value, int):
            return bool(value)
        if not isinstance(value, bool):
            self.fail(name, f"must be true or false, not {describe(value)}")
        return value

    def number(self, *keys: str, default: float | None = None) -> float:
        """A finite number.

        Raises:
            ConfigError: missing or not a number.
        """
        name, value = self.find(*keys, default=default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) > 1e30:
            self.fail(name, f"must be a number, not {describe(value)}")
        return float(value)

    def string(self, *keys: str, default: str = "") -> str:
        """A string; null counts as the default.

        Raises:
            ConfigError: not a string.
        """
        name, value = self.find(*keys, default=default)
        if value is None:
            return default
        if not isinstance(value, str):
            self.fail(name, f"must be a string, not {describe(value)}")
        return value

    def optional_list(self, *keys: str, length: int | None = None) -> list[Any] | None:
        """A list, or None where it is null or left out.

        Raises:
            ConfigError: not a list, or not of `length` items.
        """
        name, value = self.find(*keys)
        if value is None:
            return None
        if not isinstance(value, list):
            self.fail(name, f"must be a list, not {describe(value)}")
        if length is not None and len(value) != length:
            self.fail(name, f"has {len(value)} items, but the model has {length} layers")
        return value

    def integers(
        self, *keys: str, length: int | None = None, minimum: int = 0, maximum: int = MAXIMUM_WIDTH
    ) -> list[int] | None:
        """A list of integers, or None where it is null or left out.

        Raises:
            ConfigError: not a list of integers in range, or not of `length` items.
        """
        values = self.optional_list(*keys, length=length)
        if values is None:
            return None
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
                self.fail(
                    keys[0], f"holds {describe(value)}, which is not a whole number between {minimum} and {maximum}"
                )
        return values

    def layer_types(self, num_hidden_layers: int, *keys: str) -> list[str] | None:
        """`layer_types` (or the family's own key) as one string a layer, or None where the config gives none.

        Raises:
            ConfigError: not a list of strings of that length.
        """
        values = self.optional_list(*(keys or ("layer_types",)), length=num_hidden_layers)
        if values is None:
            return None
        for value in values:
            if not isinstance(value, str):
                self.fail((keys or ("layer_types",))[0], f"holds {describe(value)}, which is not a string")
        return values

    def has_sub(self, key: str) -> bool:
        """Whether a nested config stands in the file."""
        return isinstance(self.values.get(key), dict)

    def sub(self, key: str, *, model_type: str | None = None) -> Config:
        """A nested config (text_config, vision_config ...) with the defaults of its own model type.

        A nested config that is left out is all class defaults; one without `model_type` has the type that its parent's class gives it.

        Raises:
            ConfigError: not an object.
        """
        value = self.values.get(key)
        # some classes fill in a nested config that is left out with numbers of their own
        given = self._sub_config_init.get(key, {}) if value is None else {}
        if value is None:
            value = {}
        if not isinstance(value, dict):
            self.fail(key, f"must be an object, not {describe(value)}")
        stated = value.get("model_type", given.get("model_type"))
        kind = stated if isinstance(stated, str) and stated else (model_type or self._sub_configs.get(key, ""))
        found = Config(
            value,
            self._load_defaults,
            model_type=kind,
            path=f"{self.path}{key}.",
            defaults_used=self.defaults_used,
            parent=self,
        )
        # and some give it a class of their own, with defaults that no model type stands for
        own = self._sub_config_defaults.get(key, {}).get("defaults", {})
        if given or own:
            found._defaults = {**found._defaults, **own, **given}
        return found

    def retyped(self, model_type: str = "", *, keep_defaults: bool = False, **changes: Any) -> Config:
        """The same level read as another model type (with its defaults, or these), or with other values."""
        found = Config(
            {**self.values, **changes},
            self._load_defaults,
            model_type=model_type or self.model_type,
            path=self.path,
            defaults_used=self.defaults_used,
            parent=self.parent,
        )
        if keep_defaults or found.model_type == self.model_type:
            found._defaults = self._defaults
        return found

    # ---- what every family asks for ----

    @property
    def root(self) -> Config:
        """The outermost config of the file."""
        return self if self.parent is None else self.parent.root

    @property
    def architecture(self) -> str:
        """The first class named in `architectures` at the outermost level, or the empty string."""
        value = self.root.values.get("architectures")
        return value[0] if isinstance(value, list) and value and isinstance(value[0], str) else ""

    def dtype(self) -> str:
        """The stated dtype of the weights (`dtype` or `torch_dtype`), or the empty string.

        The outermost level that states one wins, as in engines: nested configs of old files often keep float32 from before the export.

        Raises:
            ConfigError: a dtype that is not known.

        Source: vllm 0.33.0 transformers_utils/model_arch_config_convertor.py get_torch_dtype.
        """
        from kvtax.dtypes import find_dtype
        from kvtax.errors import UnknownNameError

        outer = "" if self.parent is None else self.parent.dtype()
        if outer:
            return outer
        for key in ("dtype", "torch_dtype"):
            value = self.values.get(key)
            if value is not None and not isinstance(value, str):
                self.fail(key, f"must be the name of a dtype, not {describe(value)}")
            if value and value != "auto":
                try:
                    return find_dtype(value).name
                except UnknownNameError:
                    self.fail(key, f"{describe(value)} is not a dtype that is known")
        return ""

    def num_key_value_heads(self, num_attention_heads: int) -> int:
        """num_key_value_heads; null is num_attention_heads.

        Raises:
            ConfigError: does not divide num_attention_heads.
        """
        heads = self.optional_integer("num_key_value_heads") or num_attention_heads
        if num_attention_heads % heads:
            self.fail("num_key_value_heads", f"{heads} does not divide num_attention_heads {num_attention_heads}")
        return heads

    def head_dim(self, hidden_size: int, num_attention_heads: int) -> int:
        """head_dim; null is hidden_size // num_attention_heads.

        Raises:
            ConfigError: hidden_size smaller than num_attention_heads.
        """
        width = self.optional_integer("head_dim")
        if width is None:
            width = hidden_size // num_attention_heads
            if width < 1:
                self.fail("num_attention_heads", f"{num_attention_heads} heads do not fit in hidden_size {hidden_size}")
        return width

    def tie_word_embeddings(self, default: bool = False) -> bool:
        """Whether lm_head is the embedding: the outermost level that states it wins over the class default of this one."""
        level: Config | None = self
        while level is not None:
            if level.values.get("tie_word_embeddings") is not None:
                return level.boolean("tie_word_embeddings")
            level = level.parent
        return self.boolean("tie_word_embeddings", default=default)
