"""What the parts of scripts/check-serving share: models of random weights, and servers of them."""
import atexit
import json
import os
import random
import re
import subprocess
import sys
import urllib.request

LENGTH = 1024  # of the longest text, in tokens
# A schema that texts are asked for.
PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 3}}, "required": ["name", "age"]}


def model_of(program, recipe, dtype, folder, suffix="", settings=()):
    """A checkpoint of the recipe after one step, which is random weights but for that. `settings` change the recipe."""
    run = f"{folder}/{recipe}-{dtype}{suffix}"
    if os.path.isdir(run):
        return run
    os.makedirs(folder, exist_ok=True)
    text = f"{folder}/text.txt"
    rng = random.Random(1)
    with open(text, "w", encoding="utf-8") as out:
        for _ in range(4000):
            out.write(" ".join(rng.choice(["the", "sea", "was", "light", "and", "day"]) for _ in range(9)) + "\n")
    subprocess.run([program, "train", recipe, "--device", "cpu", "--data", text, "--out", run, "--steps", "1", "--quiet",
                    "--sample", "0", "--set", "batch=1", "--set", "sequence=64", "--set", f"dtype={dtype}",
                    *(word for setting in settings for word in ("--set", setting))], check=True)
    return run


def model_with_tokenizer(program, recipe):
    """One in f32 whose tokenizer transformers has as well."""
    file = os.path.abspath("tests/trainer/interop/tokenizers/smollm.json")
    return model_of(program, recipe, "f32", "build/serving", "-smollm",
                    ["model.vocab_size=420", f'input.tokenizer=TokenizerJson{{file="{file}" end_of_text="<|end|>"}}'])


def exported(program, run):
    """The run as a Hugging Face directory."""
    folder = run + "-hf"
    if not os.path.isdir(folder):
        subprocess.run([program, "export", "--checkpoint", run, "--out", folder], check=True, stdout=subprocess.DEVNULL)
    return folder


class Server:
    """`meshloom serve` in the background."""

    def __init__(self, program, run, *options, device="cpu"):
        length = [] if "--max-length" in options else ["--max-length", str(LENGTH)]
        # The CPU is batch-invariant unasked.
        where = ["--device", device, *([] if device == "cpu" else ["--batch-invariant"])]
        self.process = subprocess.Popen([program, "serve", run, *where, "--port", "0", *length, *options], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        atexit.register(self.process.kill)  # also where the check fails
        said = ""
        self.pages = None  # where it gives pages to other servers
        for line in self.process.stdout:
            said += line
            if found := re.match(r"Giving pages .* at (\S+)$", line):
                self.pages = found[1]
            if found := re.match(r"Serving .* at (http\S+)/v1", line):
                self.url = found[1]
                break
        else:
            sys.exit(f"the server ended: {said}")
        if "batch-invariant" not in said:
            sys.exit(f"the server is not batch-invariant: {said}")

    def completion(self, body):
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(request))
        choice = answer["choices"][0]
        scores = choice["logprobs"]
        return {"text": choice["text"], "tokens": scores["tokens"], "logprobs": scores["token_logprobs"],
                "top": scores["top_logprobs"], "finish": choice["finish_reason"]}

    def metric(self, name):
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        return sum(float(value) for value in re.findall(rf"^meshloom_{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))

    def end(self):
        self.process.terminate()
        return self.process.wait()
