"""Which notices say what happens, and which say that an answer rests on an assumption."""

from __future__ import annotations

INFORMATIVE = frozenset(
    (
        "size-taken",
        "class-defaults",
        "cards-idle",
        "slots-limit",
        "dtype-falls-back",
        "remote-code",
        "own-gpu",
        "own-model",
        "token-sent",
        "mmproj-beside",
        "num-ctx",
        "weights-by-size",
    )
)
"""Notices that say what happens while nothing in the answer rests on a guess; --strict lets them pass.

size-taken: the number that a size such as 8k stands for; class-defaults: what transformers itself puts in for a key that the config
leaves out; cards-idle, slots-limit: what the deployment asked for; dtype-falls-back: what the engine does on that card;
remote-code: keys that are not followed; own-gpu, own-model: entries of one's own that hide the catalogue's;
token-sent: where the token went; mmproj-beside, num-ctx, weights-by-size: what was found with the model and how it is counted.
"""
