#!/usr/bin/env python3
"""Makes the tiny models of tests/trainer/interop/models with Hugging Face transformers.

    python3 -m venv v && v/bin/pip install 'torch==2.1.2' 'transformers==4.51.3' 'numpy<2' safetensors
    v/bin/python tests/trainer/interop/make_models.py                # writes the models of transformers 4
    python3 -m venv w && w/bin/pip install torch transformers safetensors
    w/bin/python tests/trainer/interop/make_models.py                # and, by the newest one, those of transformers 5

Each directory is what save_pretrained writes for a tiny randomly initialised model, and expected.safetensors: a batch
("tokens", "targets"; negative targets are ignored), and what transformers computes from the stored weights in double
precision: "logits", "loss_sum" and the gradients of loss_sum ("gradient/NAME", under the names of the stored weights).
Names that end with a 5 are made by transformers 5, the others by 4. frequencies.safetensors (of 4): tables of rotary
positions at the sizes of real models, by their config.json (the metadata). check_exports.py looks at what Meshloom
exports of them.
"""
import argparse
import json
import pathlib
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

from families import MODELS as CASES
from families._common import MODEL

BATCH, SEQUENCE, VOCABULARY = 2, 11, MODEL["vocab_size"]
MODELS = pathlib.Path(__file__).parent / "models"

MAJOR = transformers.__version__.split(".")[0]


def made_here(name):
    return name.endswith("5") == (MAJOR == "5")


def build(name):
    kind, fields, dtype, _ = CASES[name]
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(kind, **fields)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():  # norms and biases too, so that nothing is trivially 0 or 1
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model.to(dtype).eval()


def batch():
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    targets = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    targets[0, 3] = targets[1, 10] = -1
    return tokens, targets


def load(directory):
    options = dict(experts_implementation="eager") if MAJOR == "5" else {}  # the others know no f64
    return transformers.AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float64,
                                                             attn_implementation="eager", **options).eval()


def stored(model):
    """Its parameters under the names by which they are stored."""
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch, safe_serialization=True)
        return load_file(scratch + "/model.safetensors")


def write(name):
    directory = MODELS / name
    shutil.rmtree(directory, ignore_errors=True)
    build(name).save_pretrained(directory, safe_serialization=True, **CASES[name][3])
    (directory / "generation_config.json").unlink(missing_ok=True)
    exact = load(directory)
    tokens, targets = batch()
    logits = exact(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1), ignore_index=-1,
                                             reduction="sum")
    loss.backward()
    tensors = {"tokens": tokens.int(), "targets": targets.int(), "logits": logits.detach().float().contiguous(),
               "loss_sum": loss.detach().float().reshape(1)}
    for parameter in exact.parameters():
        parameter.data = parameter.grad
    tensors.update({"gradient/" + key: gradient for key, gradient in stored(exact.float()).items()})
    save_file(tensors, directory / "expected.safetensors")
    print(name, len(tensors), "tensors, loss", loss.item())


# Fields of a config.json beside those of a Llama with a head of 128.
SCALINGS = {
    "default": {},
    "linear": dict(rope_scaling=dict(rope_type="linear", factor=8.0)),
    "llama3": dict(rope_theta=500000.0, max_position_embeddings=131072, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)),
    "yarn": dict(rope_theta=1000000.0, max_position_embeddings=131072, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)),
    "yarn-old": dict(max_position_embeddings=65536, rope_scaling=dict(
        type="yarn", factor=16.0, original_max_position_embeddings=4096, beta_fast=16.0, beta_slow=2.0)),
    "yarn-factor": dict(max_position_embeddings=16384, rope_scaling=dict(
        rope_type="yarn", factor=2.0, original_max_position_embeddings=8192, attention_factor=1.25)),
    "yarn-mscale": dict(max_position_embeddings=163840, rope_scaling=dict(
        rope_type="yarn", factor=40.0, original_max_position_embeddings=4096, mscale=0.707, mscale_all_dim=1.0)),
}
POSITIONS = (1, 17, 1000)


def write_frequencies():
    tensors, metadata = {}, {}
    for name, fields in SCALINGS.items():
        fields = dict(dict(vocab_size=64, hidden_size=256, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                           max_position_embeddings=4096, rope_theta=10000.0), **fields)
        metadata[name] = json.dumps(dict(fields, model_type="llama"))
        config = transformers.LlamaConfig(**fields)
        rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
        angles = torch.tensor(POSITIONS, dtype=torch.float64)[:, None] * rotary.inv_freq.double()[None]
        tensors["cosine/" + name] = (angles.cos() * rotary.attention_scaling).float()
        tensors["sine/" + name] = (angles.sin() * rotary.attention_scaling).float()
    save_file(tensors, MODELS.parent / "frequencies.safetensors", metadata)
    print("frequencies of", ", ".join(SCALINGS))


parser = argparse.ArgumentParser()
parser.add_argument("names", nargs="*")
arguments = parser.parse_args()
torch.set_default_dtype(torch.float64)
if MAJOR == "4" and (not arguments.names or "frequencies" in arguments.names):
    write_frequencies()
for case in [name for name in arguments.names if name != "frequencies"] or ([] if arguments.names else CASES):
    if made_here(case):
        write(case)
