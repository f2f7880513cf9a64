"""From what a source has found to a Model: the architecture of the config, with the weights that its files hold."""

from __future__ import annotations

from kvtax.architectures.architecture import Architecture
from kvtax.architectures.from_files import Weighed, match
from kvtax.architectures.gguf.model import read_model
from kvtax.architectures.registry import read_architecture
from kvtax.errors import ConfigError, KvtaxError, UnsupportedArchitectureError
from kvtax.sources.class_defaults import class_defaults
from kvtax.sources.found import Found
from kvtax.sources.resolve import COUNTED, Model, about, with_weights
from kvtax.terms import Notice
from kvtax.units import format_bytes

_WHY = {
    "mtp": "layers for multi-token prediction, which serving leaves out unless it speculates",
    "vision": "a vision tower",
    "audio": "an audio tower",
    "lm_head": "a stored copy of the tied output matrix, or a head that the config does not count",
    "other": "tensors that the config says nothing of",
    "embedding": "another vocabulary, or padding of it",
}


FAR_OFF = 8
"""Files that hold less than an eighth of what the config counts are of another model: no quantisation is smaller than 2 of 16 bit."""


def model_of(found: Found) -> Model:
    """The Model of what was found.

    Raises:
        KvtaxError: config or headers are wrong or not understood.
    """
    if found.gguf is not None:
        architecture = _of_gguf(found)
        notices: tuple[Notice, ...] = found.notices
    elif found.config is not None:
        architecture, more = _of_config(found)
        notices = (*found.notices, *about(found.config, architecture), *more)
    else:
        raise ConfigError("nothing here says what the model is", code="no-config", where=found.id)
    return Model(
        found.id,
        found.place,
        architecture,
        None,
        notices,
        found.weights or COUNTED,
        found.runner,
        found.limits,
        found.settings,
    )


def _of_gguf(found: Found) -> Architecture:
    file = found.gguf
    if file is None:
        raise ConfigError("no GGUF file was read", code="no-gguf", where=found.id)
    try:
        return read_model(file.keys, file.lengths, file.tensors, found.label)
    except KvtaxError as error:
        raise _placed(error, found.id) from None


def _of_config(found: Found) -> tuple[Architecture, list[Notice]]:
    """The architecture of the config; with the files' own tensors where headers were read."""
    tensors = found.tensors
    try:
        architecture = read_architecture(found.config or {}, class_defaults, extra_quantization=found.quant_config)
    except UnsupportedArchitectureError as error:
        size = found.sized_bytes if tensors is None else sum(tensor.bytes for tensor in tensors)
        raise with_weights(error, size, found.weights or "sizes of the files") from None
    except KvtaxError as error:
        raise _placed(error, found.id) from None
    if tensors is None:
        return architecture, _about_size(architecture, found.sized_bytes)
    weighed = match(architecture, tensors)
    if weighed.bytes * FAR_OFF < weighed.counted_bytes:
        raise ConfigError(
            f"the files hold {format_bytes(weighed.bytes)} of the {format_bytes(weighed.counted_bytes)} that the config counts",
            code="files-inconsistent",
            where=found.id,
            hint="are these files of this model? The config.json alone is sized without them",
        )
    return architecture.replace(stored=weighed.stored), _about_difference(weighed, architecture.dtype)


def _placed(error: KvtaxError, place: str) -> KvtaxError:
    """An error with the model that it is about in front."""
    where = f"{place}: {error.where}" if error.where and place not in error.where else place
    return type(error)(error.message, code=error.code, hint=error.hint, where=where)


def _about_difference(weighed: Weighed, dtype: str) -> list[Notice]:
    """A notice where files and config differ by more than 0.1 %: by how much, and what may be why."""
    if not weighed.differs:
        return []
    more = weighed.bytes - weighed.counted_bytes
    share = 100 * abs(more) / max(weighed.counted_bytes, 1)
    left = sum(stored.bytes for stored in weighed.stored if not stored.source.loaded)
    ending = f"; {format_bytes(left)} of the files are not loaded" if left * 1000 > weighed.bytes else ""
    held = {
        stored.dtype
        for stored in weighed.stored
        if stored.dtype in ("float32", "float16", "bfloat16") and not stored.source.dtype
    }
    if held == {"float32"} and dtype != "float32":
        ending += f"; they are in float32 and run in {dtype}"
    parts = [
        f"{gap.what} {'+' if gap.bytes > 0 else '-'}{format_bytes(abs(gap.bytes))}"
        + (f" ({_WHY[gap.what]})" if gap.what in _WHY and gap.bytes > 0 and "float32" not in held else "")
        for gap in weighed.gaps[:3]
    ]
    return [
        Notice(
            "headers-differ",
            f"the files hold {format_bytes(weighed.bytes)}, {share:.1f} % {'more' if more > 0 else 'less'} than the config counts "
            f"({format_bytes(weighed.counted_bytes)}): {'; '.join(parts)}{ending}; weights are those of the files",
        )
    ]


def _about_size(architecture: Architecture, size: int | None) -> list[Notice]:
    """A notice where files that are never opened have another size than the config counts, by more than 1 %."""
    counted = architecture.checkpoint_bytes
    if size is None or not counted or abs(size - counted) * 100 <= counted:
        return []
    return [
        Notice(
            "sizes-differ",
            f"the weight files have {format_bytes(size)}, the config counts {format_bytes(counted)}: another dtype, or other tensors",
            "give what is loaded: --weights-bytes, or --dtype",
        )
    ]
