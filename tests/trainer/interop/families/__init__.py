"""Tiny models and config.json files of every family: a file for each, so that a new family edits none.

MODELS: name: (model_type, config, stored dtype, save_pretrained's options), for make_models.py.
BASES: name: (model_type, fields); all fields that transformers saves for the family come on top. For field_cases.py.
EDITS: more than one field of a base at a time, or other values: base, what is left out, what is set.
"""
import importlib
import pathlib

MODELS, BASES, EDITS = {}, {}, []
for file in sorted(pathlib.Path(__file__).parent.glob("[a-z]*.py")):
    family = importlib.import_module("families." + file.stem)
    MODELS.update(family.MODELS)
    BASES.update(family.BASES)
    EDITS.extend(family.EDITS)
