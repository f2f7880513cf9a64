"""Models that other programs keep on this disk, by the names that people know them by: `ollama:llama3.1:8b`, `lmstudio:publisher/repository`."""

from __future__ import annotations

from kvtax.sources.found import Found


def read_store(name: str) -> Found:
    """The model of a store.

    Raises:
        KvtaxError: there is no such model, or it is wrong.
    """
    rest = name.partition(":")[2]
    return _ollama(rest) if name.lower().startswith("ollama:") else _lm_studio(name, rest)


def _ollama(rest: str) -> Found:
    """A model of Ollama's store: GGUF, or safetensors under their names in the manifest."""
    from kvtax.errors import ConfigError
    from kvtax.safe_text import safe
    from kvtax.sources.folder_model import read_gguf_files, with_projector
    from kvtax.sources.ollama import find_ollama

    model = find_ollama(rest)
    found = Found(safe(f"ollama:{model.name}"), f"Ollama's store, {safe(model.name)}", notices=model.notices)
    context = model.parameters.get("num_ctx")
    if context:
        found = found._replace(settings={"num_ctx": context})
    if not model.model_paths:
        raise ConfigError(
            "is kept as safetensors, which Ollama runs in its own engine",
            code="ollama-safetensors",
            where=safe(f"ollama:{model.name}"),
            hint=f"its weights are {model.model_bytes} bytes; name the same model on the hub",
        )
    found = read_gguf_files(found, [model.model_paths[-1]], "")
    return with_projector(found, model.projector_paths[0] if model.projector_paths else "")


def _lm_studio(name: str, rest: str) -> Found:
    """A model of LM Studio's folder."""
    from kvtax.safe_text import safe
    from kvtax.sources.folder_model import read_folder, read_gguf_files
    from kvtax.sources.lm_studio import find_lm_studio

    model = find_lm_studio(rest)
    place = f"LM Studio's folder, {model.name}"
    if model.choice is None:
        return read_folder(model.folder, model=safe(name), place=place)
    projector = model.projector_paths[0] if model.projector_paths else ""
    return read_gguf_files(Found(safe(name), place), list(model.model_paths), model.choice.label, projector)
