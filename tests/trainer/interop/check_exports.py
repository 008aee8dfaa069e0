#!/usr/bin/env python3
"""Imports and exports tiny models of every family, and compares what transformers makes of the result.

    python tests/trainer/interop/check_exports.py build/meshloom [BASE...]

Each config.json of fields, as two versions of transformers save it, with each field left out, set to null or to
other values, that the transformers at hand loads: Meshloom must import it, and transformers must load what Meshloom
exports and compute the same logits. Where transformers refuses, nothing is asked. Then the models of
tests/trainer/interop/models, in the dtype in which they are stored. Prints how many were compared, and the largest difference
of a logit.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import transformers

import field_cases as cases

transformers.logging.set_verbosity(transformers.logging.CRITICAL)
parser = argparse.ArgumentParser()
parser.add_argument("binary")
parser.add_argument("bases", nargs="*")
arguments = parser.parse_args()
counts, largest, failures = collections.Counter(), 0.0, []


def variants(entry):
    """What each is, its config, and what fields says of it."""
    config = entry["config"]
    yield "as it is", config, "="
    for path, said in entry["absent"].items():
        yield f"{path} absent", cases.edited(config, path), said
    for path, said in entry["null"].items():
        yield f"{path} null", cases.edited(config, path, None), said
    for edit in entry["edits"]:
        changed = {key: value for key, value in config.items() if key not in edit["absent"]}
        changed.update(edit["set"])
        yield json.dumps(edit["set"]), changed, edit["logits"]


def meshloom(*words):
    ran = subprocess.run([arguments.binary, *words], capture_output=True, text=True)
    return ran.stderr.strip() if ran.returncode else None


def check(given, kind, dtype="f32"):
    """What is wrong with a directory, or None; counts what was done."""
    global largest
    want = cases.logits(given)
    if want is None:
        counts["refused by transformers"] += 1
        return None
    with tempfile.TemporaryDirectory() as scratch:
        run, out = scratch + "/run", scratch + "/out"
        error = meshloom("import", given, "--out", run)
        if error is None:
            error = meshloom("export", "--checkpoint", run, "--out", out, "--family", kind, "--dtype", dtype)
        if error is not None:
            return None if known(error) else error
        got = cases.logits(out)
        if got is None:
            return "transformers refuses the export: " + pathlib.Path(out, "config.json").read_text()
    difference = (got - want).abs().max().item()
    counts["compared"] += 1
    largest = max(largest, difference)
    return None if difference <= 1e-9 * want.abs().max().item() else f"logits differ by {difference}"


def known(error):
    """Whether Meshloom refuses on purpose what transformers reads (fields_test.cpp says why)."""
    rules = ("rope_type: must be present; found none", "with tie_word_embeddings it must equal")
    refused = any(rule in error for rule in rules)
    counts["refused by Meshloom on purpose"] += refused
    return refused


def report(error, *words):
    if error:
        failures.append(" ".join(words) + ": " + error)
        print(failures[-1], flush=True)


for entry in cases.golden():
    if arguments.bases and entry["name"] not in arguments.bases:
        continue
    with tempfile.TemporaryDirectory() as weights:
        cases.write_weights(entry["config"], weights)
        for what, config, said in variants(entry):
            if said == "refused" and entry["made_by"] == transformers.__version__:
                counts["refused by transformers"] += 1
                continue
            pathlib.Path(weights, "config.json").write_text(json.dumps(config))
            report(check(weights, config["model_type"]), entry["transformers"], entry["name"], what)
    print(f"config.json of transformers {entry['transformers']}, {entry['name']}: {dict(counts)} so far", flush=True)
for directory in sorted((pathlib.Path(__file__).parent / "models").iterdir()):
    if not arguments.bases or directory.name in arguments.bases:
        config = json.loads((directory / "config.json").read_text())
        dtype = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}[config.get("dtype", config.get("torch_dtype"))]
        report(check(str(directory), config["model_type"], dtype), directory.name)
print(f"transformers {transformers.__version__}: {counts['compared']} exports compared, "
      f"largest difference {largest:.3g}; {counts['refused by transformers']} files that transformers refuses, "
      f"{counts['refused by Meshloom on purpose']} that Meshloom refuses on purpose; {len(failures)} faults")
sys.exit(1 if failures or not counts["compared"] else 0)
