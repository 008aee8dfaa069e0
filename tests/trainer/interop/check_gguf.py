#!/usr/bin/env python3
"""Holds GGUF files to the gguf package, transformers and llama.cpp (scripts/check-serving gguf).

    python tests/trainer/interop/check_gguf.py build/meshloom [--llama-cpp DIR]

Small models of every family that llama.cpp has, of random weights, are imported, written as GGUF, and read by the gguf package
(names by its own table, values, Q8_0 bit for bit), by transformers (logits) and by Meshloom again. Blocks of random bits of every
type are imported, and compared with what the gguf package makes of them. DIR has llama-quantize, llama-debug and llama-tokenize:
then llama.cpp computes logits of the models and cuts texts into tokens, and quantizes a model, which is imported.
One line per bar; exits with 1 where one falls short.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file

transformers.logging.set_verbosity(transformers.logging.CRITICAL)
transformers.logging.disable_progress_bar()
HERE = pathlib.Path(__file__).parent
FAMILIES = {  # model type: the config class, its tokenizer, fields
    "llama": (transformers.LlamaConfig, "llama3", {}),
    "llama-bias": (transformers.LlamaConfig, "llama3", {"attention_bias": True}),
    "llama-tied": (transformers.LlamaConfig, "smollm", {
        "tie_word_embeddings": True, "rope_theta": 500.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64}}),
    "mistral": (transformers.MistralConfig, "gpt2", {"sliding_window": None}),
    "mixtral": (transformers.MixtralConfig, "gpt2", {"num_local_experts": 4, "sliding_window": None}),
    "qwen2": (transformers.Qwen2Config, "qwen", {}),
    "qwen3": (transformers.Qwen3Config, "qwen", {"head_dim": 128}),
    "qwen3-moe": (transformers.Qwen3MoeConfig, "qwen", {
        "head_dim": 64, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "norm_topk_prob": True}),
    "gemma2": (transformers.Gemma2Config, "gpt2", {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 8}),
    "gemma3": (transformers.Gemma3TextConfig, "gpt2", {
        "num_hidden_layers": 7, "head_dim": 64, "query_pre_attn_scalar": 64, "sliding_window": 8, "rope_scaling": {
            "rope_type": "linear", "factor": 8.0}}),
    "smollm3": (transformers.SmolLM3Config, "llama3", {"num_hidden_layers": 5}),
    "gpt2": (transformers.GPT2Config, "gpt2", {}),
    "phi3": (transformers.Phi3Config, "llama3", {"partial_rotary_factor": 0.5}),
    "phi3-longrope": (transformers.Phi3Config, "llama3", {
        "tie_word_embeddings": True, "partial_rotary_factor": 0.75, "max_position_embeddings": 1024,
        "original_max_position_embeddings": 256, "rope_scaling": {
            "type": "longrope", "short_factor": [1 + i / 8 for i in range(24)], "long_factor": [1 + i * i / 8 for i in range(24)]}}),
    "granite": (transformers.GraniteConfig, "smollm", {
        "embedding_multiplier": 12.0, "attention_multiplier": 0.015625, "residual_multiplier": 0.22, "logits_scaling": 8.0,
        "attention_bias": True, "tie_word_embeddings": True}),
    "olmo2": (transformers.Olmo2Config, "llama3", {}),
}
ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")  # the config has them
TEXT = "The sea was 1234 light-years away, wasn't it?\n\n  Déjà vu: 你好 ok  \t<|end|> x"
parser = argparse.ArgumentParser()
parser.add_argument("binary")
parser.add_argument("--llama-cpp")
arguments = parser.parse_args()
binary = os.path.abspath(arguments.binary)
short = 0


def bar(name, good, said):
    global short
    short += not good
    print(f"{'ok   ' if good else 'SHORT'} {name}: {said}", flush=True)


def meshloom(*words):
    ran = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"meshloom {words[0]}: {ran.stderr.strip()}")
    return ran.stdout


def make(folder, family):
    """A Hugging Face directory."""
    kind, tokenizer, fields = FAMILIES[family]
    torch.manual_seed(3)
    sizes = {"vocab_size": 512, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    if family == "gpt2":
        sizes |= {"n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 256}
    else:
        sizes |= {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.08}
    config = kind(**{**sizes, **fields})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 1:
                value.add_(0.1 * torch.randn_like(value))
    model.save_pretrained(folder)
    shutil.copy(HERE / "tokenizers" / f"{tokenizer}.json", folder / "tokenizer.json")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>", "eos_token": "<|end|>",
                "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


def values_of(reader):
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)])
            for t in reader.tensors}


def permuted(value, heads):
    return value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def wanted_of(model, architecture):
    """What the file must hold, by the gguf package's own table of names."""
    config = model.config
    number = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    wanted = {}
    for name, value in model.state_dict().items():
        value = value.float().numpy()
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if architecture in ("llama", "granite", "smollm3") and (".q_proj." in name or ".k_proj." in name):
            value = permuted(value, config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            value = value + 1
        if architecture == "gpt2" and value.ndim == 2 and ".h." in name:
            value = value.T
        stem, _, suffix = name.rpartition(".")
        if name.endswith("experts.gate_up_proj"):  # transformers 5 has the experts in one tensor
            half = value.shape[1] // 2
            block = name.split(".")[2]
            wanted[f"blk.{block}.ffn_gate_exps.weight"] = value[:, :half]
            wanted[f"blk.{block}.ffn_up_exps.weight"] = value[:, half:]
        elif name.endswith("experts.down_proj"):
            wanted[f"blk.{name.split('.')[2]}.ffn_down_exps.weight"] = value
        else:
            found = names.get_name(name, try_suffixes=(".weight", ".bias"))
            wanted[found if found else "NO NAME FOR " + name] = value
    return wanted


def text_of(field):
    return field.contents()


def check_reader(family, model, path):
    reader = gguf.GGUFReader(path)
    architecture = text_of(reader.fields["general.architecture"])
    got, wanted = values_of(reader), wanted_of(model, architecture)
    for name in ROPE_TENSORS:
        got.pop(name, None)
    same = got.keys() == wanted.keys() and all(np.array_equal(got[n], wanted[n]) for n in wanted)
    missing = sorted(set(wanted) ^ set(got))[:3]
    keys = {f"{architecture}.block_count": model.config.num_hidden_layers, "tokenizer.ggml.eos_token_id": 1}
    said = {key: reader.fields[key].contents() for key in keys}
    bar(f"{family} read by gguf", same and said == keys and len(reader.fields["tokenizer.ggml.tokens"].contents()) == 512,
        f"{len(got)} tensors as {architecture}, {'the same values' if same else f'other values or names {missing}'}")


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def lost_by_transformers(model, path):
    """What the GGUF loader of transformers reads in another way than the file says, or ""."""
    want = model.config
    # It takes a mixtral for a llama, has no smollm3, granite and olmo2, and cannot name parts of a gpt2.
    if want.model_type in ("mixtral", "smollm3", "granite", "olmo2", "gpt2"):
        return "its tensors" if want.model_type == "gpt2" else "the architecture"
    got = transformers.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    names = ("head_dim", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
             "rms_norm_eps", "rope_parameters", "sliding_window", "layer_types", "attention_bias", "attn_logit_softcapping",
             "final_logit_softcapping", "query_pre_attn_scalar", "num_experts", "num_experts_per_tok", "norm_topk_prob",
             "moe_intermediate_size", "tie_word_embeddings")
    close = lambda a, b: a == b or (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-6 * abs(b))
    lost = [f"{n} as {getattr(got, n, None)}" for n in names
            if not close(getattr(got, n, None), getattr(want, n, None)) and getattr(want, n, None) not in (None, False)]
    return ", ".join(lost)


def check_transformers(family, model, path, ids):
    if lost := lost_by_transformers(model, path):
        print(f"--    {family} read by transformers: not compared, its loader loses {lost}", flush=True)
        return
    other = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    difference = (logits(other, ids) - logits(model, ids)).abs().max().item()
    bar(f"{family} read by transformers", difference <= 1e-4, f"logits differ by at most {difference:.2g}")


def check_q8(family, model, path):
    reader = gguf.GGUFReader(path)
    wanted = wanted_of(model, text_of(reader.fields["general.architecture"]))
    quantized = [t for t in reader.tensors if t.tensor_type == gguf.GGMLQuantizationType.Q8_0]
    same = all(np.array_equal(t.data.reshape(-1), gguf.quants.quantize(wanted[t.name], t.tensor_type).reshape(-1))
               for t in quantized)
    bar(f"{family} in q8_0", same and quantized, f"{len(quantized)} tensors, {'bit for bit' if same else 'other bits'} as gguf")


def weights(run):
    return load_file(next(pathlib.Path(run).glob("step-*")) / "model.safetensors")


def ulps(a, b):
    a, b = (x.view(np.int32).astype(np.int64) for x in (a, b))
    return np.abs(np.where(a < 0, -(a & 0x7fffffff), a) - np.where(b < 0, -(b & 0x7fffffff), b)).max()


def check_imported(name, path, scratch):
    """An import holds what the gguf package reads, but for the order of rows of llama's queries and keys."""
    out = scratch / "imported"
    shutil.rmtree(out, ignore_errors=True)
    meshloom("import", path, "--out", out)
    reader = gguf.GGUFReader(path)
    ours, theirs = weights(out), values_of(reader)
    for tensor in ROPE_TENSORS:
        theirs.pop(tensor, None)
    types = sorted({t.tensor_type.name for t in reader.tensors})
    if text_of(reader.fields["general.architecture"]) == "llama":
        for n in theirs:
            for kind, key in (("attn_q", "head_count"), ("attn_k", "head_count_kv")):
                if f".{kind}." in n:
                    heads = reader.fields[f"llama.attention.{key}"].contents()
                    size = theirs[n].shape[0] // heads
                    theirs[n] = theirs[n].reshape(heads, size // 2, 2, -1).swapaxes(1, 2).reshape(theirs[n].shape)
    a = sorted(ours.values(), key=lambda v: (v.size, v.tobytes()))
    b = sorted(theirs.values(), key=lambda v: (v.size, v.tobytes()))
    worst = max(int(ulps(x.reshape(-1), y.astype(np.float32).reshape(-1))) for x, y in zip(a, b)) if len(a) == len(b) else -1
    bar(f"{name} imported", 0 <= worst <= 1, f"types {', '.join(types)}: {len(a)} tensors within {worst} ulp of gguf")


def scores(model, ids, *words):
    return [token["logprob"] for token in json.loads(meshloom(
        "score", "--checkpoint", model, "--device", "cpu", "--ids", "--text", json.dumps(ids), "--json", *words))["tokens"][1:]]


def check_kept(name, path, scratch, most):
    """Blocks that are kept give what the same weights give in f32, and with activations in 8 bits nearly that: the loss differs by `most`
    at most. Random bits make logits in the thousands, which rounding moves more."""
    ids = [int(i) for i in np.random.default_rng(5).integers(2, 500, 100)]
    shutil.rmtree(scratch / "wide", ignore_errors=True)
    meshloom("import", path, "--out", scratch / "wide")
    wide = np.array(scores(scratch / "wide", ids))
    as_they_are = [word for kind in ("Linear", "Embedding") for word in
                   ("--modify", f"SetWhere{{class=BlockQuantized{kind} field=activations value=float}}")]
    kept, rounded = np.array(scores(path, ids, *as_they_are)), np.array(scores(path, ids))
    difference, loss = np.abs(kept - wide).max(), abs(rounded.mean() / wide.mean() - 1)
    bar(f"{name} kept", difference <= 1e-3 * np.abs(wide).max() and loss <= most,
        f"log-probabilities differ by at most {difference:.2g} of {np.abs(wide).max():.3g}; with activations in 8 bits the loss by {loss:.2%}")


def random_blocks(path, out, kind):
    """The file with every matrix replaced by blocks of random bits of the type, their scales finite."""
    reader = gguf.GGUFReader(path)
    rng = np.random.default_rng(int(kind))
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    halves = {"Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}.get(kind.name, [0])
    writer = gguf.GGUFWriter(out, text_of(reader.fields["general.architecture"]))
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            value = field.contents()
            sub = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, value, field.types[0], sub_type=sub)
    for tensor in reader.tensors:
        data = tensor.data
        if len(tensor.shape) == 2:
            rows, columns = int(tensor.shape[1]), int(tensor.shape[0])
            data = rng.integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
            for at in halves:
                scale = (rng.standard_normal((rows, columns // elements)) * 0.02).astype(np.float16)
                data[..., at:at + 2] = scale[..., None].view(np.uint8)
            writer.add_tensor(tensor.name, data.reshape(rows, -1), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, np.array(data, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_llama_cpp(family, model, path, hf, scratch):
    tool = os.path.abspath(arguments.llama_cpp)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(hf / "tokenizer.json"))
    ids = tokenizer(TEXT)["input_ids"]
    ran = subprocess.run([tool + "/llama-tokenize", "-m", path, "-p", TEXT, "--ids", "--log-disable"], capture_output=True,
                         text=True)
    got = json.loads(ran.stdout.strip().splitlines()[-1]) if ran.returncode == 0 and ran.stdout.strip() else ran.stderr[-200:]
    bar(f"{family} cut into tokens by llama.cpp", got == ids, f"{len(ids)} tokens" if got == ids else f"{got} and {ids}")
    plain = "The sea was light and the day was long"
    ids = tokenizer(plain)["input_ids"]
    out = scratch / "logits"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    ran = subprocess.run([tool + "/llama-debug", "-m", path, "-p", plain, "--save-logits", "--logits-output-dir", str(out),
                          "-ngl", "0", "-fa", "off", "-c", "256", "-ctk", "f32", "-ctv", "f32", "--no-warmup", "-t", "1"], capture_output=True, text=True)
    found = [f for f in out.glob("*.bin") if "tokens" not in f.name]
    if not found:
        bar(f"{family} computed by llama.cpp", False, ran.stderr.strip()[-300:])
        return
    got = np.fromfile(found[0], dtype=np.float32)
    want = logits(model, ids).numpy()[-1]
    difference = np.abs(got - want).max() if got.shape == want.shape else float("inf")
    table = family in ("gemma2", "gemma3", "gpt2")  # llama.cpp takes their GELU from a table in f16
    bar(f"{family} computed by llama.cpp", difference <= (1e-3 if table else 1e-5) * np.abs(want).max(),
        f"logits differ by at most {difference:.2g} of {np.abs(want).max():.3g}")


with tempfile.TemporaryDirectory() as folder:
    scratch = pathlib.Path(folder)
    for family in FAMILIES:
        try:
            hf, run = scratch / family, scratch / (family + "-run")
            hf.mkdir()
            model = make(hf, family)
            meshloom("import", hf, "--out", run)
            files = {}
            for dtype in ("f32", "f16", "q8_0"):
                files[dtype] = scratch / f"{family}-{dtype}.gguf"
                meshloom("export", "--checkpoint", run, "--out", files[dtype], "--format", "gguf", "--dtype", dtype)
            check_reader(family, model, files["f32"])
            check_q8(family, model, files["q8_0"])
            check_transformers(family, model, files["f32"], list(range(3, 40)))
            meshloom("import", files["f32"], "--out", scratch / (family + "-back"))
            a, b = weights(run), weights(scratch / (family + "-back"))
            worst = max(np.abs(a[n] - b[n]).max() for n in a) if a.keys() == b.keys() else float("inf")
            bar(f"{family} imported again", worst <= (1e-6 if family.startswith("gemma") else 0), f"weights differ by {worst:.2g}")
            if arguments.llama_cpp:
                check_llama_cpp(family, model, files["f32"], hf, scratch)
        except Exception as error:
            bar(family, False, f"{type(error).__name__}: {str(error)[:300]}")
    for kind in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"):
        if kind not in ("F16", "BF16"):
            random_blocks(scratch / "llama-f32.gguf", scratch / "blocks.gguf", gguf.GGMLQuantizationType[kind])
            check_imported(f"random bits of {kind}", scratch / "blocks.gguf", scratch)
            check_kept(f"random bits of {kind}", scratch / "blocks.gguf", scratch, 0.03)
        else:
            path = scratch / f"llama-{kind}.gguf"
            meshloom("export", "--checkpoint", scratch / "llama-run", "--out", path, "--format", "gguf", "--dtype", kind.lower())
            check_imported(kind, path, scratch)
    if arguments.llama_cpp:
        for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_M", "Q5_K_M", "Q6_K"):
            out = scratch / f"{kind}.gguf"
            ran = subprocess.run([arguments.llama_cpp + "/llama-quantize", str(scratch / "qwen2-f16.gguf"), str(out), kind, "1"],
                                 capture_output=True, text=True)
            if ran.returncode:
                bar(f"llama-quantize {kind}", False, ran.stderr.strip()[-200:])
                continue
            check_imported(f"llama-quantize {kind}", out, scratch)
            check_kept(f"llama-quantize {kind}", out, scratch, 0.001)
    else:
        print("--    llama.cpp: not compared; MESHLOOM_LLAMA_CPP names the folder of llama-quantize, llama-debug and llama-tokenize")
print(f"gguf {getattr(gguf, '__version__', '')}, transformers {transformers.__version__}: {short} bars short")
sys.exit(1 if short else 0)
