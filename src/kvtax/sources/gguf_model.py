"""A model in GGUF from one file or from all its shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvtax.sources.byte_source import ByteSource
from kvtax.sources.gguf import GgufFile, read_gguf
from kvtax.sources.gguf_split import join

LOCAL_FIRST_READ_BYTES = 2**20
REMOTE_FIRST_READ_BYTES = 2**20
"""A vocabulary of a hundred thousand tokens takes some 6 MB: the reader asks for more as it goes."""


def read_shards(
    names: Sequence[str], open_file: Callable[[str], ByteSource], first_read_bytes: int = LOCAL_FIRST_READ_BYTES
) -> GgufFile:
    """The header of a model, of all shards together.

    Args:
        names: of the shards in order.
        open_file: gives one of them.
        first_read_bytes: of each [bytes].

    Raises:
        KvtaxError: one cannot be had or is wrong, or they do not belong together.
    """
    return join([read_gguf(open_file(name), first_read_bytes) for name in names], names[0])
