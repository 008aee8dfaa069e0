"""Config.json files that differ in one field, and the tiny models that they are read as.

Shared by make_fields.py, which writes what transformers makes of them into fields, and check_exports.py, which passes
them through Meshloom. fields_test.cpp makes the same weights: a number for each element, from the tensor's name
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

from families import BASES, EDITS
from families._common import FIELDS

torch.set_num_threads(1)  # the models are tiny

VOCABULARY, POSITIONS = FIELDS["vocab_size"], 12
TOKENS = [(7 * i + 3) % VOCABULARY for i in range(POSITIONS)]
# Position and token of the logits that are kept.
SHOWN = ((POSITIONS - 1, 0), (POSITIONS - 1, 1), (POSITIONS - 2, 2), (POSITIONS // 2, 3))


def saved_configs(families):
    """What this version of transformers saves for each base of these families; of all when there are none."""
    configs = {}
    for name, (kind, fields) in BASES.items():
        if families and kind not in families:
            continue
        with tempfile.TemporaryDirectory() as directory:
            fields = copy.deepcopy(fields)
            config = transformers.AutoConfig.for_model(kind, **fields)
            config.architectures = [transformers.AutoModelForCausalLM._model_mapping[type(config)].__name__]
            config.save_pretrained(directory)
            configs[name] = json.loads(pathlib.Path(directory, "config.json").read_text())
    return configs


def golden():
    """The files of fields as one."""
    files = [json.loads(file.read_text()) for file in sorted((pathlib.Path(__file__).parent / "fields").iterdir())]
    return [dict(base, made_by=file["made_by"]) for file in files for base in file["bases"]]


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
