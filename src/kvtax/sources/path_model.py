"""A model by path: whatever kind of file or folder is there."""

from __future__ import annotations

import os

from kvtax.errors import ConfigError
from kvtax.safe_text import safe
from kvtax.sources.byte_source import LocalFile
from kvtax.sources.found import Found
from kvtax.sources.local import GGUF, NEVER_OPENED, SAFETENSORS, read_config_file, split_variant


def read_path(name: str) -> Found:
    """What lies at a path.

    Args:
        name: of a folder (with `:quantisation` where it holds several GGUF files), a config.json, a .safetensors or .gguf file.

    Raises:
        ConfigError: nothing is there, or it is no model.
    """
    path, variant = split_variant(os.path.expanduser(name))
    shown = safe(path)
    if os.path.isdir(path):
        from kvtax.sources.folder_model import read_folder

        return read_folder(path, variant, model=safe(name))
    lower = path.lower()
    if lower.endswith(GGUF):
        return _gguf_file(path)
    if lower.endswith(SAFETENSORS):
        return _safetensors_file(path)
    if lower.endswith(NEVER_OPENED):
        size = LocalFile(path).size
        raise ConfigError(
            f"is never opened, since such files can run code; it has {size:,} bytes",
            code="never-opened",
            where=shown,
            hint="pass the folder or the config.json beside it",
        )
    if lower.endswith(".index.json"):
        raise ConfigError(
            "this is the index of a model's weights",
            code="no-config",
            where=shown,
            hint="pass the folder that holds it",
        )
    config, extra, notices = read_config_file(path)
    return Found(safe(name), f"file {shown}", config, extra, notices=tuple(notices))


def _gguf_file(path: str) -> Found:
    """A GGUF file, with its other shards and with the projector beside it."""
    from kvtax.sources.folder import scan
    from kvtax.sources.folder_model import read_gguf_files
    from kvtax.sources.gguf_folder import label_of
    from kvtax.sources.gguf_split import split_names

    folder, base = os.path.dirname(path), os.path.basename(path)
    LocalFile(path)
    names = split_names(base) or [base]
    try:
        contents = scan(folder or ".")
        projectors = contents.gguf.projectors if len(contents.gguf.choices) == 1 else ()
    except ConfigError:
        projectors = ()
    projector = next((one for one in projectors if one != base and "/" not in one), "")
    found = Found(safe(path), f"file {safe(path)}")
    return read_gguf_files(
        found,
        [os.path.join(folder, one) for one in names],
        label_of(base),
        os.path.join(folder, projector) if projector else "",
    )


def _safetensors_file(path: str) -> Found:
    """One safetensors file: the model of the folder where it is its whole checkpoint, else with the config beside it."""
    from kvtax.sources.folder_model import with_headers
    from kvtax.sources.safetensors import read_header

    header = read_header(LocalFile(path))
    beside = os.path.join(os.path.dirname(path), "config.json")
    if not os.path.isfile(beside):
        size = header.tensor_bytes
        raise ConfigError(
            "there is no config.json beside it, which says what the model is",
            code="no-config",
            where=safe(path),
            hint=f"weights alone: {size} bytes in {len(header.tensors)} tensors (header); no KV, so no budget",
        )
    if len(_others(path)) > 1:
        from kvtax.sources.folder_model import read_folder

        return read_folder(os.path.dirname(path) or ".", model=safe(path))
    config, extra, notices = read_config_file(beside)
    found = Found(safe(path), f"file {safe(path)} and config.json beside it", config, extra, notices=tuple(notices))
    return with_headers(found, {os.path.basename(path): header}, None)


def _others(path: str) -> list[str]:
    """The weights of the model in the folder of a file, where the file is one of several that belong together."""
    from kvtax.sources.folder import scan

    contents = scan(os.path.dirname(path) or ".")
    names = [*contents.weights, *contents.missing]
    return names if os.path.basename(path) in names or contents.needs_index else []
