#!/usr/bin/env python3
"""Writes tests/trainer/interop/fields: what transformers makes of config.json files with one field left out or null.

    python tests/trainer/interop/make_fields.py --saved FILE [FAMILY...]  # by the last transformers 4: what it saves
    python tests/trainer/interop/make_fields.py --old FILE [FAMILY...]    # by the newest: fields/FAMILY.json

For each base of the families (families), as both versions save it: "config"; "logits", a few of them as the newest transformers
computes them; "absent" and "null", by path of the field, and "edits": each "=" (the same logits), "refused", or others.
"""
import argparse
import json
import pathlib
import tempfile

import transformers

import field_cases as cases

transformers.logging.set_verbosity(transformers.logging.CRITICAL)
parser = argparse.ArgumentParser()
parser.add_argument("--saved", metavar="FILE")
parser.add_argument("--old", metavar="FILE")
parser.add_argument("families", nargs="*")
arguments = parser.parse_args()
if arguments.saved:
    pathlib.Path(arguments.saved).write_text(json.dumps(
        {"version": transformers.__version__, "configs": cases.saved_configs(arguments.families)}))
    raise SystemExit
old = json.loads(pathlib.Path(arguments.old).read_text())
new = {"version": transformers.__version__, "configs": cases.saved_configs(arguments.families)}
entries, counts = [], {}
for saved in (old, new):
    for name, config in saved["configs"].items():
        with tempfile.TemporaryDirectory() as weights:
            cases.write_weights(config, weights)
            base = cases.logits_of(config, weights)
            assert base is not None, name

            def result(changed):
                values = cases.logits_of(changed, weights)
                told = "refused" if values is None else cases.shown(values)
                told = "=" if told == cases.shown(base) else told
                kind = told if isinstance(told, str) else "other"
                counts[kind] = counts.get(kind, 0) + 1
                return told

            entry = {"name": name, "transformers": saved["version"], "config": config, "logits": cases.shown(base)}
            entry["absent"] = {path: result(cases.edited(config, path)) for path in cases.paths(config)}
            entry["null"] = {path: result(cases.edited(config, path, None)) for path in cases.paths(config)}
            entry["edits"] = []
            for base_name, left_out, set_to in cases.EDITS:
                if base_name != name or any(field not in config for field in left_out):
                    continue
                changed = {key: value for key, value in config.items() if key not in left_out}
                changed.update(set_to)
                entry["edits"].append({"absent": left_out, "set": set_to, "logits": result(changed)})
            entries.append(entry)
            print(saved["version"], name, len(entry["absent"]), "fields", flush=True)
head = json.dumps({"made_by": new["version"], "tokens": cases.TOKENS, "shown": cases.SHOWN, "bases": []})[:-2]
for family in sorted({entry["config"]["model_type"] for entry in entries}):
    rows = [json.dumps(entry) for entry in entries if entry["config"]["model_type"] == family]
    target = pathlib.Path(__file__).parent / "fields" / (family + ".json")
    target.write_text(head + "\n" + ",\n".join(rows) + "\n]}\n")
    print(target, target.stat().st_size, "bytes")
print(counts)
