#!/usr/bin/env python3
"""Holds chats in Meshloom to transformers, with the chat templates of real models on tiny models with random weights.

    scripts/fetch-chat-templates                                            # writes build/chat-templates
    python3 -m venv v && v/bin/pip install torch 'transformers>=5' jinja2
    v/bin/python tests/trainer/interop/check_chat.py [--only NAME] [--rows] [--meshloom build/meshloom]

For each template a byte-level tokenizer with its special tokens and a Llama of two layers are made. Then
- rows: `meshloom data` gives the ids of tokenizer.apply_chat_template(messages), and what is learned are the answers and
  the token that ends each;
- tuned on 50 fixed questions (not with --rows), the model ends every answer, with the same text, in `meshloom generate
  --chat` and in transformers' generate after `meshloom export`, with and without --like.
Prints a line per template; exits with 1 when one fails.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

# name: part of the file's name, bos_token, eos_token of the tokenizer, eos_token_id of config.json as text, end of a turn.
# Where the last two differ, the model is one that was not tuned for chats.
CASES = {
    "llama-3.1": ("Llama-3.1-8B-Instruct", "<|begin_of_text|>", "<|eot_id|>", "<|end_of_text|>", "<|eot_id|>"),
    "llama-3.2": ("Llama-3.2-3B-Instruct", "<|begin_of_text|>", "<|end_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
    "qwen2.5": ("Qwen2.5-7B-Instruct", None, "<|endoftext|>", "<|endoftext|>", "<|im_end|>"),
    "qwen3": ("Qwen3-0.6B", None, "<|im_end|>", "<|endoftext|>", "<|im_end|>"),
    "gemma-2": ("gemma-2-2b-it", "<bos>", "<eos>", "<eos>", "<end_of_turn>"),
    "phi-3.5": ("Phi-3.5-mini-instruct", "<s>", "<|endoftext|>", "<|endoftext|>", "<|end|>"),
    "mistral-nemo": ("Mistral-Nemo-Instruct-2407", "<s>", "</s>", "</s>", "</s>"),
    "granite-3.3": ("granite-3.3-2B-Instruct", "<|end_of_text|>", "<|end_of_text|>", "<|end_of_text|>", "<|end_of_text|>"),
    "bielik": ("Bielik-11B-v3.0-Instruct", "<s>", "<|im_end|>", "</s>", "<|im_end|>"),
    "qwq": ("QwQ-32B", None, "<|im_end|>", "<|im_end|>", "<|im_end|>"),
    "deepseek-r1": ("DeepSeek-R1-Distill-Llama-8B", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>",
                    "<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "lfm2": ("LFM2-8B-A1B", "<|startoftext|>", "<|im_end|>", "<|im_end|>", "<|im_end|>"),
}
SPECIAL = re.compile(r"<\|[A-Za-z0-9_▁]+\|>|<｜[^｜]+｜>|\[/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]|<(?:start|end)_of_turn>")
WORDS = ["red", "blue", "seven", "stone", "river", "cloud", "green", "two", "bird", "leaf", "sand", "iron"]
LEARN = 60  # steps


def questions(count=50):
    for i in range(count):
        a, b = WORDS[i % 12], WORDS[(i * 5 + i // 12) % 12]
        yield [{"role": "user", "content": f"What is {a} and {b} ({i})?"},
               {"role": "assistant", "content": f"{b} {a}" if i % 3 else f"{a}."}]


def conversations(template):
    """Those that the template takes."""
    one = list(questions(4))
    many = one + [
        [{"role": "system", "content": "Be brief."}] + one[0],
        one[0] + one[1] + one[2],
        [{"role": "user", "content": "  spaces \n\nand <b>ä€😀</b>\t"}, {"role": "assistant", "content": "\n Größe 12 e\u0301 \n"}],
        [{"role": "user", "content": "a <|im_end|> </s> b", "name": None}, {"role": "assistant", "content": "ok\n"}],
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"},
         {"role": "user", "content": "so?"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nno"}],
    ]
    for messages in many:
        try:
            template(messages)
        except Exception:
            continue
        yield messages


def make(directory, source, bos, eos, model_end, turn_end):
    special = list(dict.fromkeys([t for t in (bos, eos, model_end, turn_end) if t] + SPECIAL.findall(source)))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [part for part in SPECIAL.split(source) if part] + [m["content"] for row in questions() for m in row] * 3
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=440 + len(special), show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in special]))
    if bos and bos != eos:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A",
                                                                 special_tokens=[(bos, tokenizer.token_to_id(bos))])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
    fast.chat_template = source
    fast.save_pretrained(directory)
    torch.manual_seed(1)
    end = tokenizer.token_to_id(model_end)
    config = transformers.LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=1024, eos_token_id=end,
        bos_token_id=tokenizer.token_to_id(bos) if bos else None, pad_token_id=None, tie_word_embeddings=False)
    transformers.LlamaForCausalLM(config).save_pretrained(directory)
    return transformers.AutoTokenizer.from_pretrained(directory)


class Check:
    def __init__(self, arguments, scratch):
        self.meshloom, self.scratch = arguments.meshloom, pathlib.Path(scratch)
        self.say = arguments.verbose

    def run(self, *words):
        result = subprocess.run([self.meshloom, *map(str, words)], capture_output=True, text=True)
        if self.say and result.stderr:
            print(result.stderr, end="")
        if result.returncode:
            raise RuntimeError(f"meshloom {words[0]}: {result.stderr.strip()}")
        return result.stdout

    def rows(self, tokenizer, model, turn_end):
        chats = list(conversations(lambda m: tokenizer.apply_chat_template(m, tokenize=False)))
        path = self.scratch / "rows.jsonl"
        path.write_text("".join(json.dumps({"messages": m}) + "\n" for m in chats))
        shown = json.loads(self.run("data", path, "--init", model, "--set", "sequence=1024", "--set",
                                    "input.eval_fraction=0", "--show", len(chats), "--json"))["shown"]
        assert len(shown) == len(chats), "rows are missing"
        for messages, row in zip(chats, shown):
            ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
            assert row["ids"] == list(ids), f"ids of {messages}: {row['tokens']}, not {tokenizer.convert_ids_to_tokens(ids)}"
            learned = [i for i, mark in zip(row["ids"], row["loss_mask"]) if mark]
            answers = [m for m in messages if m["role"] == "assistant"]
            text = tokenizer.decode(learned)
            assert text.count(turn_end) == len(answers), f"ends in what is learned: {text!r}"
            assert text.endswith(turn_end), f"the end of what is learned: {text!r}"
            assert answers[-1]["content"].split("</think>")[-1].strip() in text, f"the answer in what is learned: {text!r}"
        return len(chats)

    def answers_match(self, tokenizer, model, tuned, like):
        out = self.scratch / ("like" if like else "plain")
        self.run("export", "--checkpoint", tuned, "--out", out, *(["--like", like] if like else []))
        theirs = transformers.AutoTokenizer.from_pretrained(out)
        net = transformers.AutoModelForCausalLM.from_pretrained(out)
        ended = 0
        for i, messages in enumerate(questions()):
            ids = theirs.apply_chat_template(messages[:1], add_generation_prompt=True, tokenize=True, return_dict=False)
            assert list(ids) == list(tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True, tokenize=True,
                                                                   return_dict=False)), "the exported tokenizer's prompt"
            with torch.no_grad():
                got = net.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                                   do_sample=False, max_new_tokens=40)[0, len(ids):].tolist()
            if i not in self.ours:
                self.ours[i] = json.loads(self.run("generate", "--checkpoint", tuned, "--chat", "--prompt", json.dumps(
                    messages[:1]), "--temperature", 0, "--tokens", 40, "--json", "--device", "cpu"))
            ours = self.ours[i]
            assert ours["ended"], f"Meshloom's answer to question {i} has no end: {ours['text']!r}"
            assert len(got) < 40 or got[-1] in ours["tokens"][-1:], f"transformers' answer to question {i} has no end"
            assert got == ours["tokens"], f"question {i}: {theirs.decode(got)!r}, Meshloom {ours['text']!r}"
            ended += 1
        return ended

    def tuned(self, tokenizer, model, steps):
        self.ours = {}
        path = self.scratch / "questions.jsonl"
        path.write_text("".join(json.dumps({"messages": m}) + "\n" for m in questions()))
        tuned = self.scratch / "tuned"
        self.run("train", "--init", model, "--data", path, "--out", tuned, "--quiet", "--sample", 0, "--device", "cpu",
                 "--steps", steps, "--set", "sequence=320", "--set", "batch=8", "--set", "input.eval_fraction=0",
                 "--set", "eval_batches=0", "--set", f"learner.schedule.total_steps={steps}", "--set",
                 "learner.schedule.warmup_steps=5", "--set", "learner.peak_learning_rate=5e-3")
        self.answers_match(tokenizer, model, tuned, None)
        return self.answers_match(tokenizer, model, tuned, self.scratch / "hf")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--meshloom", default="build/meshloom")
    parser.add_argument("--templates", default="build/chat-templates", type=pathlib.Path)
    parser.add_argument("--only", metavar="NAME", help="one of " + ", ".join(CASES))
    parser.add_argument("--rows", action="store_true", help="no tuning")
    parser.add_argument("--steps", type=int, default=LEARN)
    parser.add_argument("--verbose", action="store_true", help="what meshloom notes")
    arguments = parser.parse_args()
    failed = 0
    for name, (part, bos, eos, model_end, turn_end) in CASES.items():
        if arguments.only and name != arguments.only:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            check = Check(arguments, scratch)
            model = check.scratch / "model"
            try:
                files = [f for f in sorted(arguments.templates.rglob("*.jinja")) if part in f.name]
                assert files, f"no template file has {part} in its name"
                tokenizer = make(check.scratch / "hf", files[0].read_text(), bos, eos, model_end, turn_end)
                check.run("import", check.scratch / "hf", "--out", model)
                line = f"{check.rows(tokenizer, model, turn_end)} rows equal"
                if not arguments.rows:
                    line += f", {check.tuned(tokenizer, model, arguments.steps)} answers end and are equal"
                print(f"{name}: {line}", flush=True)
            except Exception as error:  # every template is tried
                failed += 1
                print(f"{name}: FAILED: {error}", flush=True)
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
