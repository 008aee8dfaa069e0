#!/usr/bin/env python3
"""Makes the small tokenizers of tests/trainer/interop/tokenizers with Hugging Face tokenizers, and checks ours on many lines.

    python3 -m venv v && v/bin/pip install 'tokenizers==0.21.4'
    v/bin/python tests/trainer/interop/make_tokenizers.py                                 # writes NAME.json, NAME.ids.json
    v/bin/python tests/trainer/interop/make_tokenizers.py --lines 10000 --check build/tests/test_interop

NAME.ids.json holds [[text, ids with special tokens, decoded text], ...]. --check writes that for random lines and
lets the test program compare (MESHLOOM_TOKENIZER_LINES names the directory). Made with tokenizers 0.21.4.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent / "tokenizers"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SAMPLES = [
    "In the beginning God created the heaven and the earth.", "It's THEY'LL we'Ve I'D 'tis", "  two  spaces\tand\ttabs \n\n lines\r\n ",
    "Größe, façade, naïve, Ærøskøbing, Łódź, İstanbul ıĞşŞ", "В начале сотворил Бог небо и землю. 12345", "Ἐν ἀρχῇ ἐποίησεν ὁ θεὸς",
    "בראשית ברא אלהים את השמים", "في البدء خلق الله السماوات والأرض ١٢٣", "आदि में परमेश्वर ने १२३ क्षत्रिय", "太初，上帝创造天地。　全角", "はじめに神は天と地とを創造した。カタカナ",
    "태초에 하나님이 천지를 창조하시니라", "ในเริ่มแรก พระเจ้าทรงเนรมิต", "👩‍👩‍👧‍👦 🇩🇪 👍🏽 ☃️ ∑∫√ ½ Ⅷ ² ①", "e\u0301 \u00e9 A\u030a \u212b \uac00 \u1100\u1161 \ufb01",
    "def f(x):\n    return x**2  # 3.14159e-10\n", "a\u00a0b\u2003c\u2028d\u0085e\u180ef\u200bg\ufeffh\x0bi\x0cj\x1ck", "<|begin|>user<|end|>\n<|pad|> text <mark> x<mark>y",
    "    ", "", " ", "\n", "1234567 12 3", "ſ'ſ 'S 'RE K\u212a", "\x00\x01\x7f\ufffd\U0010ffff", "ＡＢＣ１２３ ﷺ ǆ"]
CORPUS = SAMPLES * 3 + [text.lower() for text in SAMPLES] + [
    "And God said, Let there be light: and there was light. And God saw the light, that it was good"] * 3


def letters():
    return trainers.BpeTrainer(vocab_size=420, special_tokens=["<|begin|>", "<|end|>", "<|pad|>"], show_progress=False,
                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(CORPUS, letters())
    tokenizer.add_tokens([AddedToken("<mark>", lstrip=True, rstrip=True, normalized=True)])
    return tokenizer


def split_by(pattern, normalizer=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=normalizer is None))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, letters())
    return tokenizer


def llama3():
    tokenizer = split_by(LLAMA3)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])])
    return tokenizer


def qwen():
    return split_by(QWEN, normalizers.NFC())


def smollm():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, letters())
    return tokenizer


def llama2():
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False, limit_alphabet=90, special_tokens=[
        "<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # only words while training
    tokenizer.train_from_iterator(CORPUS, trainer)
    data = json.loads(tokenizer.to_str())
    data["pre_tokenizer"] = None
    data["added_tokens"] = data["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


CASES = {"gpt2": gpt2, "llama3": llama3, "qwen": qwen, "smollm": smollm, "llama2": llama2}


def random_line(rng):
    def point():
        low, high = rng.choice([(32, 127), (0, 256), (0x100, 0x800), (0x800, 0x3100), (0x3000, 0xa000), (0xac00, 0xd7a4),
                                 (0x10000, 0x12000), (0x1f000, 0x1fb00), (0x300, 0x370), (0x2000, 0x2070)])
        return chr(rng.randrange(low, high))
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(point() for _ in range(rng.randrange(40)))
    if kind == 1:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(60))).decode("utf-8", "replace")
    words = " ".join(rng.choice(SAMPLES) for _ in range(2)).split(" ")
    rng.shuffle(words)
    text = rng.choice([" ", "  ", "\n", ""]).join(words[:12])
    return text if kind == 2 else text[::-1]


def rows(tokenizer, lines):
    result = []
    for line in lines:
        ids = tokenizer.encode(line).ids
        result.append([line, ids, tokenizer.decode(ids)])
    return result


def write(path, data):
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in data) + "\n]\n")


parser = argparse.ArgumentParser()
parser.add_argument("--check", metavar="TEST")
parser.add_argument("--lines", type=int, default=10000)
arguments = parser.parse_args()
if not arguments.check:
    HERE.mkdir(exist_ok=True)
    for name, make in CASES.items():
        tokenizer = make()
        tokenizer.save(str(HERE / f"{name}.json"), pretty=False)
        write(HERE / f"{name}.ids.json", rows(tokenizer, SAMPLES + [random_line(random.Random(i)) for i in range(12)]))
    sys.exit(0)
rng = random.Random(5)
lines = [random_line(rng) for _ in range(arguments.lines)]
# Every letter, alone and between others: whatever class a pattern puts it in.
lines += [f"a{chr(point)}1{chr(point)} {chr(point)}" for point in range(0x110000) if not 0xd800 <= point < 0xe000 and
          (point < 0x3000 or point % 97 == 0)]
with tempfile.TemporaryDirectory() as scratch:
    for name in CASES:
        write(pathlib.Path(scratch) / f"{name}.ids.json", rows(Tokenizer.from_file(str(HERE / f"{name}.json")), lines))
    sys.exit(subprocess.call([arguments.check, "--gtest_filter=*TokenizerJson.SameIds*"],
                             env=dict(os.environ, MESHLOOM_TOKENIZER_LINES=scratch)))
