"""Config.json files that differ in one field, and the tiny models that they are read as.

Shared by make_fields.py, which writes what transformers makes of them into fields.json, and check_exports.py, which
passes them through Meshloom. fields_test.cpp makes the same weights: a number for each element, from the tensor's name
and the element's place.
"""
import contextlib
import copy
import io
import json
import os
import pathlib
import tempfile

import numpy
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

torch.set_num_threads(1)  # the models are tiny

VOCABULARY, POSITIONS = 31, 12
TOKENS = [(7 * i + 3) % VOCABULARY for i in range(POSITIONS)]
# Position and token of the logits that are kept.
SHOWN = ((POSITIONS - 1, 0), (POSITIONS - 1, 1), (POSITIONS - 2, 2), (POSITIONS // 2, 3))

# Values that no family has by default, so that leaving one out shows.
COMMON = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=16, rms_norm_eps=0.05, hidden_act="gelu_pytorch_tanh",
              attention_dropout=0.25, tie_word_embeddings=True, initializer_range=0.3)
WINDOWS = dict(use_sliding_window=True, sliding_window=4, max_window_layers=1)
LINEAR = dict(rope_type="linear", factor=2.0)
YARN = dict(rope_type="yarn", factor=3.0, original_max_position_embeddings=8, beta_fast=2.0, beta_slow=0.5, mscale=0.7,
            mscale_all_dim=1.3, truncate=False)
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0,
              original_max_position_embeddings=8)

# name: (model_type, fields); all fields that transformers saves for the family come on top.
BASES = {
    "llama": ("llama", dict(COMMON, head_dim=6, rope_theta=50.0, attention_bias=True, mlp_bias=True)),
    "llama-linear": ("llama", dict(COMMON, rope_theta=50.0, rope_scaling=LINEAR, tie_word_embeddings=False)),
    "llama-yarn": ("llama", dict(COMMON, head_dim=6, rope_theta=50.0, rope_scaling=YARN)),
    "llama3": ("llama", dict(COMMON, head_dim=6, rope_theta=50.0, rope_scaling=LLAMA3)),
    "mistral": ("mistral", dict(COMMON, head_dim=6, rope_theta=50.0, sliding_window=4)),
    "mixtral": ("mixtral", dict(COMMON, head_dim=6, rope_theta=50.0, sliding_window=4, num_local_experts=4,
                                num_experts_per_tok=3)),
    "qwen2": ("qwen2", dict(COMMON, rope_theta=50.0, **WINDOWS)),
    "qwen3": ("qwen3", dict(COMMON, head_dim=6, rope_theta=50.0, attention_bias=True, **WINDOWS)),
    "qwen2_moe": ("qwen2_moe", dict(COMMON, rope_theta=50.0, num_experts=4, num_experts_per_tok=3, norm_topk_prob=True,
                                    moe_intermediate_size=8, shared_expert_intermediate_size=6, mlp_only_layers=[1],
                                    **WINDOWS)),
    "qwen2_moe-plain": ("qwen2_moe", dict(COMMON, rope_theta=50.0, num_experts=6, num_experts_per_tok=2, qkv_bias=False,
                                          moe_intermediate_size=8, shared_expert_intermediate_size=6,
                                          decoder_sparse_step=2)),
    "qwen3_moe": ("qwen3_moe", dict(COMMON, head_dim=6, rope_theta=50.0, num_experts=4, num_experts_per_tok=3,
                                    norm_topk_prob=True, moe_intermediate_size=8, attention_bias=True,
                                    mlp_only_layers=[1], **WINDOWS)),
    "gemma2": ("gemma2", dict({k: v for k, v in COMMON.items() if k != "hidden_act"}, head_dim=6, rope_theta=50.0,
                              hidden_activation="silu", sliding_window=4, query_pre_attn_scalar=24,
                              attn_logit_softcapping=2.0, final_logit_softcapping=3.0, attention_bias=True,
                              layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
    "gpt2": ("gpt2", dict(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=16, n_inner=20,
                          activation_function="silu", layer_norm_epsilon=0.05, tie_word_embeddings=False)),
}

# More than one field at a time, or other values: base, what is left out, what is set.
EDITS = [
    ("llama", [], dict(rope_scaling=LINEAR, rope_parameters=dict(rope_type="default", rope_theta=7.0))),
    ("llama", ["rope_theta"], dict(rope_scaling=LINEAR, rope_parameters=dict(rope_type="default", rope_theta=7.0))),
    ("llama", ["rope_theta", "rope_scaling"],
     dict(rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=7.0))),
    ("llama", ["rope_theta"], dict(rope_scaling={}, rope_parameters=dict(rope_theta=7.0))),
    ("llama", [], dict(rope_scaling=dict(type="linear", factor=3.0), rope_parameters=None)),
    ("llama", [], dict(sliding_window=4)),
    ("llama", [], dict(layer_types=["full_attention"] * 3)),
    ("llama", [], dict(num_key_value_heads=2, hidden_act="relu")),
    ("llama", [], dict(hidden_act="swish")),
    ("llama", [], dict(hidden_act="gelu")),
    ("llama-yarn", [], dict(original_max_position_embeddings=4)),
    ("llama-yarn", [], dict(rope_scaling=dict(rope_type="yarn", factor=3.0), original_max_position_embeddings=8)),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, mscale=0))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, mscale_all_dim=0.0))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, beta_fast=0, beta_slow=0))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, truncate=None))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, factor=None))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, attention_factor=1.5))),
    ("llama-yarn", [], dict(rope_scaling=dict(YARN, type="linear"))),
    ("llama3", [], dict(original_max_position_embeddings=4)),
    ("mistral", [], dict(layer_types=["full_attention", "sliding_attention", "full_attention"])),
    ("mistral", [], dict(max_window_layers=2, use_sliding_window=False)),
    ("mistral", [], dict(rope_scaling=YARN)),
    ("mixtral", [], dict(rope_scaling=YARN)),
    ("mixtral", [], dict(num_experts_per_tok=1)),
    ("mixtral", [], dict(num_experts=5)),
    ("mixtral", ["num_local_experts"], dict(num_experts=4)),
    ("qwen2", [], dict(use_sliding_window=False, layer_types=None)),
    ("qwen2", ["layer_types"], dict(max_window_layers=2)),
    ("qwen2", ["layer_types"], dict(max_window_layers=0)),
    ("qwen2", [], dict(layer_types=["sliding_attention", "full_attention", "attention"])),
    ("qwen2", [], dict(head_dim=6)),
    ("qwen2", [], dict(sliding_window=None, layer_types=None)),
    ("qwen3", [], dict(use_sliding_window=False, layer_types=None)),
    ("qwen3", ["layer_types"], dict(max_window_layers=2)),
    ("qwen3", [], dict(rope_scaling=YARN)),
    ("qwen2_moe", ["layer_types"], dict(max_window_layers=2)),
    ("qwen2_moe", ["layer_types"], dict(max_window_layers=3)),
    ("qwen2_moe", ["layer_types", "max_window_layers"], {}),
    ("qwen2_moe", [], dict(layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
    ("qwen2_moe", [], dict(num_experts_per_tok=1)),
    ("qwen2_moe", [], dict(num_experts_per_tok=1, norm_topk_prob=False)),
    ("qwen2_moe-plain", [], dict(sliding_window=0)),
    ("qwen3_moe", [], dict(max_window_layers=2)),
    ("qwen3_moe", [], dict(layer_types=["full_attention", "sliding_attention", "full_attention"])),
    ("qwen3_moe", [], dict(num_experts_per_tok=1)),
    ("qwen3_moe", ["num_experts"], dict(num_local_experts=4)),
    ("qwen3_moe", [], dict(num_local_experts=5)),
    ("qwen3_moe", [], dict(rope_scaling=YARN)),
    ("gemma2", ["layer_types"], dict(sliding_window=3)),
    ("gemma2", [], dict(hidden_act="relu")),
    ("gemma2", [], dict(rope_scaling=LINEAR)),
    ("gpt2", [], dict(hidden_size=32)),
    ("gpt2", ["n_embd", "n_head", "n_layer", "n_positions"],
     dict(hidden_size=16, num_attention_heads=2, num_hidden_layers=2, max_position_embeddings=16)),
    ("gpt2", [], dict(num_attention_heads=4)),
]


def saved_configs():
    """What this version of transformers saves for each base."""
    configs = {}
    for name, (kind, fields) in BASES.items():
        with tempfile.TemporaryDirectory() as directory:
            fields = copy.deepcopy(fields)
            config = transformers.AutoConfig.for_model(kind, **fields)
            config.architectures = [transformers.AutoModelForCausalLM._model_mapping[type(config)].__name__]
            config.save_pretrained(directory)
            configs[name] = json.loads(pathlib.Path(directory, "config.json").read_text())
    return configs


def edited(config, path, *value):
    """With a field left out, or set to `value`; `path` may name a field of an object, "rope_scaling.factor"."""
    config = copy.deepcopy(config)
    *outer, name = path.split(".")
    place = config
    for key in outer:
        place = place[key]
    if value:
        place[name] = value[0]
    else:
        del place[name]
    return config


def paths(config):
    for name, value in config.items():
        if name not in ("model_type", "architectures", "transformers_version"):
            yield name
        if isinstance(value, dict) and name.startswith("rope"):
            yield from (f"{name}.{inner}" for inner in value)


def numbers(name, shape):
    """In [-0.5, 0.5), exact in f32; around 1 for the weights of norms."""
    state = 2166136261
    for byte in name.encode():
        state = (state ^ byte) * 16777619 & 0xFFFFFFFF
    x = (numpy.arange(int(numpy.prod(shape)), dtype=numpy.uint64) * 2654435761 + state) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> numpy.uint64(shift))) * numpy.uint64(factor)) & numpy.uint64(0xFFFFFFFF)
    values = (x >> numpy.uint64(8)).astype(numpy.float64) / 2**24 - 0.5
    if name.endswith("norm.weight") or ".ln_" in name and name.endswith(".weight"):
        values += 1
    return values.astype(numpy.float32).reshape(shape)


def write_weights(config, directory):
    """model.safetensors of the model that `config` describes, under the names by which transformers saves it."""
    with tempfile.TemporaryDirectory() as scratch:
        pathlib.Path(scratch, "config.json").write_text(json.dumps(config))
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(scratch))
        with contextlib.redirect_stderr(io.StringIO()):
            model.save_pretrained(scratch)
        with safe_open(scratch + "/model.safetensors", "np") as file:
            tensors = {name: numbers(name, file.get_slice(name).get_shape()) for name in file.keys()}
    save_file(tensors, directory + "/model.safetensors", {"format": "pt"})


def logits(directory):
    """(POSITIONS, VOCABULARY) in double precision, or None where transformers refuses config or tensors."""
    options = dict(dtype=torch.float64, attn_implementation="eager", output_loading_info=True)
    if int(transformers.__version__.split(".")[0]) >= 5:
        options["experts_implementation"] = "eager"  # the others know no f64
    try:
        with contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
            model, info = transformers.AutoModelForCausalLM.from_pretrained(directory, **options)
            if any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")):
                return None
            result = model.eval()(torch.tensor([TOKENS])).logits[0]
    except Exception:  # whatever a config leads to
        return None
    return result if bool(torch.isfinite(result).all()) else None


def logits_of(config, weights):
    """Of a config beside the tensors of the directory `weights`."""
    with tempfile.TemporaryDirectory() as directory:
        os.symlink(weights + "/model.safetensors", directory + "/model.safetensors")
        pathlib.Path(directory, "config.json").write_text(json.dumps(config))
        return logits(directory)


def shown(values):
    return [float(f"{values[place].item():.6g}") for place in SHOWN]
