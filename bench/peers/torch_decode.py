"""Times decoding in f32 beside transformers with PyTorch, in turn, for the same model, and over OpenCL and Vulkan beside the CPU
(scripts/check-serving speed-torch).

    python3 bench/peers/torch_decode.py build/meshloom [--rounds 5] [--threads 2] [--recipe smollm2-135m]

Both sides compute one more token of texts of so many tokens, whose keys and values are kept. transformers runs eagerly, by its own
scaled_dot_product_attention. Ratios are medians over the rounds. Prints a line per bar and exits with 1 where one falls short. A device that is
not there is skipped, with a line. Needs torch, transformers and safetensors.
"""
import argparse
import inspect
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import transformers

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tests/trainer/serve"))
from ratio_bars import RatioBars, print_rate
from serving import exported, model_of

TEXTS = {1: 1.8, 32: 2.0}  # texts at once: the least of our rate by theirs
DEVICES = {"opencl:0": 0.4, "vulkan:0": 0.1}  # the least part of the CPU's rate of one text


def torch_rate(model, texts, context, steps):
    """Tokens per second of `texts` texts, each a token further in a step."""
    tokens = torch.randint(0, model.config.vocab_size, (texts, context + steps))
    kept = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    with torch.inference_mode():
        cache = model(tokens[:, :context], use_cache=True, logits_to_keep=1).past_key_values
        seconds = []
        for at in range(context, context + steps):
            began = time.perf_counter()
            cache = model(tokens[:, at:at + 1], use_cache=True, **{kept: cache}).past_key_values
            seconds.append(time.perf_counter() - began)
    return texts / statistics.median(seconds)


def our_rate(options, device, texts):
    ran = subprocess.run([options.program, "bench", "decode", options.recipe, "--set", "dtype=f32", "--device", device, "--quiet", "--json",
                          "--texts", str(texts), "--context", str(options.context), "--prompt", "0", "--rounds", str(options.steps)],
                         capture_output=True, text=True, env={**os.environ, "MESHLOOM_THREADS": str(options.threads)})
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip()[-2000:])
    case = json.loads(ran.stdout)["cases"][0]
    return case["tokens"] / case["seconds"]


def devices_of(program):
    return {device["id"] for device in json.loads(subprocess.run([program, "devices", "--json"], capture_output=True, check=True).stdout)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--recipe", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--context", type=int, default=256, help="tokens of each text")
    parser.add_argument("--steps", type=int, default=16, help="tokens that a round decodes")
    parser.add_argument("--json", help="a file for all rates")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    folder = exported(options.program, model_of(options.program, options.recipe, "f32", "build/serving"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    there = devices_of(options.program)
    for device in DEVICES.keys() - there:
        print(f"      no device {device}: skipped")
    rates = {}  # name: one of each round
    for _ in range(options.rounds):
        for texts in TEXTS:
            rates.setdefault(f"transformers, {texts}", []).append(torch_rate(model, texts, options.context, options.steps))
            rates.setdefault(f"cpu, {texts}", []).append(our_rate(options, "cpu", texts))
        for device in DEVICES.keys() & there:
            rates.setdefault(f"{device}, 1", []).append(our_rate(options, device, 1))
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(rates), encoding="utf-8")
    for name, values in rates.items():
        print_rate(f"{name} at once:", values)
    bars = RatioBars()

    def compare(name, of, by, least):
        bars.bar(name, [a / b for a, b in zip(rates[of], rates[by])], least)

    for texts, least in TEXTS.items():
        compare(f"decode of f32, {texts} at once, by transformers with PyTorch {torch.__version__}", f"cpu, {texts}", f"transformers, {texts}", least)
    for device, least in DEVICES.items():
        if device in there:
            compare(f"decode of f32 over {device} by the CPU's", f"{device}, 1", "cpu, 1", least)
    return 1 if bars.short else 0


if __name__ == "__main__":
    sys.exit(main())
