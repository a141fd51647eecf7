"""Sentences for the loop, made of word lists: varied in words and in length, the same for the same seed."""

import random

_OPENINGS = ["", "", "Yesterday, ", "As far as anybody remembers, ", "To everyone's surprise, ", "On the way home, "]
_SUBJECTS = [
    "the courier",
    "my neighbour",
    "a quiet engineer",
    "the night train's conductor",
    "our old printer",
    "the committee",
    "a student of botany",
    "the lighthouse keeper",
]
_VERBS = ["missed", "repaired", "found", "described", "ordered", "forgot", "measured", "painted", "returned"]
_OBJECTS = [
    "the parcel",
    "a map of the harbour",
    "the second invoice",
    "an umbrella",
    "every window on the north side",
    "the recipe",
    "forty metres of rope",
    "a password",
]
_ENDINGS = ["", "", " before noon", " without a word", " for the third time this week", " and told nobody about it"]
_CLAUSES = [
    "",
    "",
    ", because the rain would not stop",
    ", although the shop had closed an hour earlier and the lights were out",
    ", which is why the meeting was moved to a smaller room",
    ", while the cat slept on the warm windowsill",
]


def make_sentences(count: int, seed: int) -> list[str]:
    """Return `count` sentences of about 5 to 40 words."""
    choose = random.Random(seed).choice
    parts = (_OPENINGS, _SUBJECTS, (" ",), _VERBS, (" ",), _OBJECTS, _ENDINGS, _CLAUSES)
    sentences = ["".join(choose(part) for part in parts) for _ in range(count)]
    return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences]
