#!/usr/bin/env python3
"""What Hugging Face tokenizers make of every letter below 0x32400: tests/trainer/interop/unicode.json.

    v/bin/python tests/trainer/interop/make_unicode.py      # the environment of make_models.py

Of a pattern: how many letters match it, and the FNV-1a hash of those letters in UTF-8. Of a normal form: the hash of the
normal forms of a line for each letter, in which marks stand on both sides of it.
"""
import json
import pathlib

from tokenizers import Regex, normalizers, pre_tokenizers

LETTERS = [c for c in range(1, 0x32400) if not 0xD800 <= c <= 0xDFFF]
PATTERNS = [r"\p{L}", r"\p{Lu}", r"\p{Ll}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{Mn}", r"\p{Mc}", r"[\p{Mn}]", r"\p{N}", r"\p{Nd}", r"\p{P}", r"\p{S}",
            r"\p{Han}", r"\s", r"\w", r"\d", r"\S", r"\P{L}", r"\p{^N}", r"[^\s\p{L}\p{N}]", r"[\p{L}\p{M}_]", r"[^\w\s]"]


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return format(value, "016x")


def matching(pattern):
    split = pre_tokenizers.Split(Regex(pattern), behavior="removed")
    return [c for c in LETTERS if not split.pre_tokenize_str(chr(c))]


def normalized(form):
    lines = (form.normalize_str("a\u0334\u0327\u0301" + chr(c) + "\u0334\u3099\u0301\u0345") for c in LETTERS)
    return "".join(lines).encode()


patterns = {}
for pattern in PATTERNS:
    found = matching(pattern)
    patterns[pattern] = [len(found), fnv("".join(map(chr, found)).encode())]
forms = {name: fnv(normalized(getattr(normalizers, name)())) for name in ("NFC", "NFD", "NFKC", "NFKD")}
path = pathlib.Path(__file__).parent / "unicode.json"
path.write_text(json.dumps({"patterns": patterns, "forms": forms}, indent=1) + "\n")
print(path, len(patterns), "patterns")
