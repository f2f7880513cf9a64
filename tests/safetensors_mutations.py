"""Valid safetensors files and changes to them: of bytes, of the words of their header, of the values in it."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from safetensors_files import BITS, data_bytes, entries, with_length

NAMES = (
    "a",
    "model.embed_tokens.weight",
    "model.layers.0.mlp.up_proj.weight",
    "ä",
    "\U0001f600.x",
    "",
    "x y",
    'q"uote',
    "back\\slash",
    "b",
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 8, 1.0, 0.5, 2**32, 2**48, 2**48 + 1, 2**53, 2**63, 2**64 - 1, 2**64, 10**30, "", "F32", "f32", "F5", "BF16",
    [], [0], [1, 2, 3], [0, 0], [0, 8], [8, 0], [-1, 4], ["0", "4"], [0, 4.0], [2**62, 2**62], {}, {"dtype": "F32"}, [[]], [None, 1], "\ud83d\ude00",
)  # fmt: skip
WORDS = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0061", b"\\ud800", b"\\ud83d\\ude00", b"\\/", b"\\x", b" ", b"\t", b"\n", b"\r", b"\x0b", b"\x00",
    b"-", b"0", b"00", b"1", b"e1", b".0", b"null", b"true", b"NaN", b"Infinity", b"\xc3\xa4", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"dtype",
    b'"shape":[],', b'"__metadata__":{},', b'"__metadata__":{"format":"pt"},', b'"x":1,', b"18446744073709551615", b"18446744073709551616",
)  # fmt: skip


def random_tensors(chance: random.Random) -> list[tuple[str, str, tuple[int, ...]]]:
    """Up to six tensors of a few bytes each."""
    found = []
    for name in chance.sample(NAMES, chance.randrange(7)):
        tag = chance.choice(tuple(BITS))
        shape = [chance.choice((0, 1, 1, 2, 3, 4, 8)) for _ in range(chance.randrange(4))]
        if BITS[tag] < 8:
            shape.append(chance.choice((4, 8)))
        found.append((name, tag, tuple(shape)))
    return found


def valid(chance: random.Random) -> tuple[dict[str, Any], bytes]:
    """A valid header, its entries in any order, and its text, written in any of the usual ways."""
    header = entries(random_tensors(chance))
    items: list[tuple[str, Any]] = [
        (name, dict(chance.sample(sorted(entry.items()), 3)) if chance.random() < 0.2 else entry)
        for name, entry in header.items()
    ]
    if chance.random() < 0.3:
        items.append(("__metadata__", chance.choice(({}, {"format": "pt"}, {"a": "ä", "b": "\n", "format": "mlx"}))))
    if chance.random() < 0.3:
        chance.shuffle(items)
    header = dict(items)
    return header, dumped(chance, header) + b" " * chance.choice((0, 0, 1, 7))


def dumped(chance: random.Random, value: Any) -> bytes:
    """JSON with or without spaces, line ends and escapes."""
    return json.dumps(
        value,
        ensure_ascii=chance.random() < 0.5,
        separators=chance.choice(((",", ":"), (", ", ": "))),
        indent=chance.choice((None, None, None, 1)),
    ).encode("utf-8", "surrogatepass")


def changed_values(chance: random.Random, header: dict[str, Any]) -> bytes:
    """The header with one or two of its values replaced, dropped, added, moved or swapped."""
    header = json.loads(json.dumps(header))
    for _ in range(chance.choice((1, 1, 2))):
        entry = header[chance.choice(tuple(header))] if header else {}
        way = chance.randrange(9)
        if way == 0 or not isinstance(entry, dict) or not entry:
            header[chance.choice((*NAMES, *header))] = copy.deepcopy(chance.choice(VALUES))
        elif way == 1:
            entry[chance.choice(tuple(entry))] = copy.deepcopy(chance.choice(VALUES))
        elif way == 2:
            entry.pop(chance.choice(tuple(entry)))
        elif way == 3:
            entry[chance.choice(("extra", "dtype ", "Shape", "data_offsets"))] = copy.deepcopy(chance.choice(VALUES))
        elif way == 4 and isinstance(entry.get("data_offsets"), list) and entry["data_offsets"]:
            offsets = entry["data_offsets"]
            where = chance.randrange(len(offsets))
            offsets[where] = chance.choice(
                (offsets[where] - 1 if type(offsets[where]) is int else 0, 1, 4, 2**63 - 1, 2**63, None)
            )
        elif way == 5 and isinstance(entry.get("shape"), list):
            entry["shape"].insert(
                chance.randrange(1 + len(entry["shape"])), chance.choice((0, 1, 2, 1.0, -1, 2**40, 2**48, True))
            )
        elif way == 6:
            entry["dtype"] = chance.choice((*BITS, "F5", "f32", "", 4))
        elif (
            way == 7
            and isinstance(entry.get("data_offsets"), list)
            and all(type(each) is int for each in entry["data_offsets"])
        ):
            by = chance.choice((-4, -1, 1, 8))
            entry["data_offsets"] = [each + by for each in entry["data_offsets"]]
        else:
            other = header[chance.choice(tuple(header))]
            if isinstance(other, dict) and "data_offsets" in entry and "data_offsets" in other:
                entry["data_offsets"], other["data_offsets"] = other["data_offsets"], entry["data_offsets"]
    return dumped(chance, header)


def changed_bytes(chance: random.Random, data: bytes) -> bytes:
    """One to three changes: a byte flipped, a piece cut out, repeated, moved, overwritten or a word put in."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(found) + 1)
        end = min(len(found), at + chance.choice((1, 1, 2, 8, 40)))
        way = chance.randrange(6)
        if way == 0 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif way == 1:
            del found[at:end]
        elif way == 2:
            found[at:at] = found[at:end]
        elif way == 3:
            found[at:at] = chance.choice(WORDS)
        elif way == 4:
            found[at:end] = chance.choice(WORDS)
        else:
            piece = found[at:end]
            del found[at:end]
            to = chance.randrange(len(found) + 1)
            found[to:to] = piece
    return bytes(found)


def mutated(chance: random.Random) -> bytes:
    """A whole small file that was valid before a change; one in ten still is."""
    header, text = valid(chance)
    size = data_bytes(header)
    way = chance.randrange(10)
    if way in (1, 2, 3):
        text = changed_values(chance, header)
    elif way in (4, 5, 6, 7):
        text = changed_bytes(chance, text)
    data = with_length(text) + b"\0" * size
    if way == 8:
        data = changed_bytes(chance, data)
    elif way == 9:
        size = max(0, len(data) + chance.choice((-9, -1, 1, 8, -len(data) // 2, 100)))
        data = data[:size].ljust(size, b"\0")
    return data
