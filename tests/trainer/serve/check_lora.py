"""Adapters of a server (scripts/check-serving lora): equal to PEFT's, mixed in one step to the bit, hardly slower, and loading one fails
no request."""
import argparse
import concurrent.futures
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from serving import Server, model_of

SPEED, PEFT_ERROR = 0.75, 1e-4  # the least tokens/s with adapters beside those without, and the largest error of a log-probability
COUNT = 8                       # adapters that are mixed


def shapes_of(exported):
    """The inputs and outputs of each Linear of a Hugging Face directory, by its module."""
    with open(f"{exported}/model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return {name[:-len(".weight")]: tuple(tensor["shape"]) for name, tensor in header.items()
            if name.endswith("_proj.weight")}


def write_adapter(folder, shapes, rank, seed, alpha=16.0, size=0.05, change=None, config=None):
    """A PEFT directory of random numbers. `change` edits the tensors, (name, shape, bytes), and `config` the fields."""
    rng = random.Random(seed)
    os.makedirs(folder, exist_ok=True)
    block = struct.pack("<4096f", *(rng.gauss(0, size) for _ in range(4096)))
    tensors = []
    for module, (outputs, inputs) in shapes.items():
        for part, shape in (("lora_A", [rank, inputs]), ("lora_B", [outputs, rank])):
            count = shape[0] * shape[1] * 4
            first = rng.randrange(4096) * 4
            tensors.append([f"base_model.model.{module}.{part}.weight", shape,
                            (block[first:] + block * (count // len(block) + 1))[:count]])
    if change:
        change(tensors)
    header, at = {}, 0
    for name, shape, data in tensors:
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(f"{folder}/adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors))
    fields = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": "all-linear", "bias": "none",
              "task_type": "CAUSAL_LM", **(config or {})}
    with open(f"{folder}/adapter_config.json", "w", encoding="utf-8") as file:
        json.dump(fields, file)


def post(server, path, body):
    """Status and text of the answer."""
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scores(server, prompt, model):
    """The log-probabilities of a prompt's tokens but the first."""
    answer = server.completion({"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 0, "model": model})
    return answer["logprobs"][1:]


def check_peft(options, run, exported, folder):
    """Adapters that PEFT made, with the log-probabilities that transformers and PEFT compute."""
    import peft
    import torch
    import transformers
    torch.manual_seed(3)
    kinds = {"defaults": {"r": 8},
             "all-linear": {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"},
             "rslora": {"r": 4, "lora_alpha": 8, "use_rslora": True, "target_modules": ["q_proj", "o_proj", "down_proj"],
                        "rank_pattern": {"o_proj": 2, "layers.3.mlp.down_proj": 7}, "alpha_pattern": {"q_proj": 3}},
             "some-layers": {"r": 5, "target_modules": ["gate_proj", "up_proj"], "layers_to_transform": [0, 5]}}
    prompts = [[(i * j + 3) % 250 for i in range(1, 60)] for j in (1, 7)]
    expected = {}
    for name, fields in kinds.items():
        base = transformers.AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)
        model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **fields))
        for parameter_name, parameter in model.named_parameters():
            if "lora_" in parameter_name:
                torch.nn.init.normal_(parameter, std=0.1)
        shutil.rmtree(f"{folder}/peft-{name}", ignore_errors=True)
        model.save_pretrained(f"{folder}/peft-{name}")
        model.eval()
        with torch.no_grad():
            for which, prompt in enumerate(prompts):
                for kind in (name, "base"):
                    ids = torch.tensor([prompt])
                    if kind == "base":
                        with model.disable_adapter():
                            logits = model(ids).logits
                    else:
                        logits = model(ids).logits
                    table = torch.log_softmax(logits[0].double(), -1)
                    expected[kind, which] = [table[i, token].item() for i, token in enumerate(prompt[1:])]
    server = Server(options.program, run, "--max-loras", "4", "--max-lora-rank", "16")
    base = run.rstrip("/").split("/")[-1]
    worst, changed = 0.0, 0.0
    for name in kinds:
        status, text = post(server, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": f"{folder}/peft-{name}"})
        if status != 200:
            sys.exit(f"{name} was not loaded: {text}")
    for (name, which), want in expected.items():
        found = scores(server, prompts[which], base if name == "base" else name)
        worst = max(worst, max(abs(a - b) for a, b in zip(found, want)))
        if name != "base":
            least = max(abs(a - b) for a, b in zip(found, expected["base", which]))
            changed = least if changed == 0 else min(changed, least)
    server.end()
    print(f"PEFT {peft.__version__}: log-probabilities of {len(kinds)} adapters differ by {worst:.2g} at most from those of transformers "
          f"{transformers.__version__}, {PEFT_ERROR:g} allowed; each adapter changes one by {changed:.2g} or more", flush=True)
    return worst <= PEFT_ERROR and changed > 0.01


def requests_of(names, tokens):
    rng = random.Random(5)
    prompt = [rng.randrange(250) for _ in range(100)]  # of all: pages would be found if adapters shared them
    return [{"prompt": prompt, "max_tokens": tokens, "temperature": 0.8, "seed": 11, "ignore_eos": True, "logprobs": 2, "model": name}
            for name in names]


def check_bits(options, run, adapters):
    """All adapters and the model alone in the same steps, and each alone."""
    base = run.rstrip("/").split("/")[-1]
    named = [word for name, folder in adapters.items() for word in ("--adapter", f"{name}={folder}")]
    bodies = requests_of([*adapters, base], 40)
    mixed = Server(options.program, run, *named)
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        found = list(pool.map(mixed.completion, bodies))
    mixed.end()
    differ, texts = 0, set()
    for body, answer in zip(bodies, found):
        own = [] if body["model"] == base else ["--adapter", f"{body['model']}={adapters[body['model']]}"]
        alone = Server(options.program, run, *own)
        expected = alone.completion(body)
        alone.end()
        texts.add(tuple(answer["logprobs"]))
        differ += any(answer[key] != expected[key] for key in expected)
    print(f"{len(bodies)} requests of {len(adapters)} adapters and of none in the same steps: {differ} differ in a bit from those alone; "
          f"{len(texts)} different texts", flush=True)
    return differ == 0 and len(texts) == len(bodies)


def check_speed(options, run, adapters):
    base = run.rstrip("/").split("/")[-1]
    named = [word for name, folder in adapters.items() for word in ("--adapter", f"{name}={folder}")]
    servers = [Server(options.program, run), Server(options.program, run, *named)]
    names = [[base] * len(adapters), list(adapters)]

    def tokens_per_second(which, seed):
        bodies = requests_of(names[which], options.tokens)
        for body in bodies:
            body["seed"] = seed
        begun = time.time()
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            count = sum(len(answer["tokens"]) for answer in pool.map(servers[which].completion, bodies))
        return count / (time.time() - begun)

    for which in (0, 1):
        tokens_per_second(which, 0)  # warms up
    rates = [[tokens_per_second(which, turn) for which in (0, 1)] for turn in range(1, options.rounds + 1)]
    for server in servers:
        server.end()
    ratio = statistics.median(b / a for a, b in rates)
    print(f"{len(adapters)} texts at once: {statistics.median(a for a, _ in rates):.1f} tokens/s without slots, "
          f"{statistics.median(b for _, b in rates):.1f} with an adapter each of rank {options.rank} for every Linear: {ratio:.3f} times, "
          f"at least {SPEED} wanted", flush=True)
    return ratio >= SPEED


def check_loading(options, run, adapters):
    """Requests of one adapter keep their bits while others are loaded, replaced and unloaded."""
    server = Server(options.program, run, "--max-loras", "3")
    names = list(adapters)
    if post(server, "/v1/load_lora_adapter", {"lora_name": "stays", "lora_path": adapters[names[0]]})[0] != 200:
        sys.exit("an adapter was not loaded")
    body = requests_of(["stays"], 12)[0]
    expected = server.completion(body)
    stop, failed, done = threading.Event(), [], [0, 0]

    def ask(model):
        while not stop.is_set():
            try:
                answer = server.completion({**body, "model": model})
            except urllib.error.HTTPError as error:
                failed.append(f"{model}: {error.code} {error.read().decode()}")
                continue
            done[0] += 1
            if model == "stays" and any(answer[key] != expected[key] for key in expected):
                failed.append("an adapter's bits changed")

    if post(server, "/v1/load_lora_adapter", {"lora_name": "changes", "lora_path": adapters[names[1]]})[0] != 200:
        sys.exit("an adapter was not loaded")
    threads = [threading.Thread(target=ask, args=(model,)) for model in ("stays", "stays", "changes")]
    for thread in threads:
        thread.start()
    begun = time.time()
    slowest = 0.0
    while time.time() - begun < options.seconds:
        turn = time.time()
        for path, more in (("/v1/load_lora_adapter", {"lora_name": "changes", "lora_path": adapters[names[done[1] % len(names)]],
                                                      "load_inplace": True}),
                           ("/v1/load_lora_adapter", {"lora_name": "comes", "lora_path": adapters[names[2]]}),
                           ("/v1/unload_lora_adapter", {"lora_name": "comes"})):
            status, text = post(server, path, more)
            if status != 200:
                failed.append(f"{path}: {status} {text}")
            done[1] += 1
        slowest = max(slowest, time.time() - turn)
    stop.set()
    for thread in threads:
        thread.join()
    for line in failed[:5]:
        print("  " + line)
    print(f"{done[1]} loads and unloads beside {done[0]} requests: {len(failed)} failed; three took {slowest:.1f} s at most", flush=True)
    return not failed and done[0] > 0 and server, server


def check_hostile(server, shapes, folder):
    """What is wrong with an adapter's files is said in a line, and the server goes on."""
    some = dict(list(shapes.items())[:4])
    first = next(iter(some))

    def cut(path, keep):
        with open(path, "r+b") as file:
            file.truncate(keep)

    def case(name, **how):
        write_adapter(f"{folder}/bad-{name}", some, 4, 1, **how)
        return f"{folder}/bad-{name}"

    def renamed(tensors):
        tensors[0][0] = "base_model.model.lm_head.lora_A.weight"

    def reshaped(tensors):
        tensors[0][1] = list(reversed(tensors[0][1]))

    def not_finite(tensors):
        tensors[1][2] = struct.pack("<f", float("nan")) + tensors[1][2][4:]

    folders = [folder + "/nothing", folder, "/dev/null", "x" * 5000,
               case("dora", config={"use_dora": True}), case("bias", config={"bias": "all"}),
               case("save", config={"modules_to_save": ["lm_head"]}), case("rank", config={"r": 10**9}),
               case("alpha", config={"lora_alpha": "16"}), case("pissa", config={"init_lora_weights": "pissa"}),
               case("regex", config={"rank_pattern": {"(a+)+$": 4}}), case("type", config={"peft_type": "LOHA"}),
               case("unknown", config={"new_way": {"x": 1}}), case("other-rank", config={"r": 8}),
               case("name", change=renamed), case("shape", change=reshaped), case("nan", change=not_finite),
               case("pair", change=lambda tensors: tensors.pop()), case("empty", change=lambda tensors: tensors.clear())]
    write_adapter(f"{folder}/bad-large", some, 17, 1)
    folders.append(f"{folder}/bad-large")
    cut(case("cut") + "/adapter_model.safetensors", 1000)
    cut(case("no-json") + "/adapter_config.json", 20)
    folders += [f"{folder}/bad-cut", f"{folder}/bad-no-json"]
    short = False
    for path in folders:
        status, text = post(server, "/v1/load_lora_adapter", {"lora_name": "bad", "lora_path": path})
        message = json.loads(text)["error"]["message"]
        if status != 400 or "\n" in message or len(message) > 1000:
            print(f"  {path[:60]}: {status} {message}")
            short = True
    for body in ({}, {"lora_name": "x"}, {"lora_name": 3, "lora_path": "x"}, {"lora_name": "a b", "lora_path": f"{folder}/0"},
                 {"lora_name": "stays", "lora_path": f"{folder}/0"}):
        short |= post(server, "/v1/load_lora_adapter", body)[0] != 400
    short |= post(server, "/v1/unload_lora_adapter", {"lora_name": "none"})[0] != 404
    status, text = post(server, "/v1/completions", {"model": "bad", "prompt": [1, 2], "max_tokens": 2})
    short |= status != 404 or "stays" not in text
    models = [model["id"] for model in json.load(urllib.request.urlopen(server.url + "/v1/models"))["data"]]
    short |= "stays" not in models or "bad" in models
    alive = server.completion({"prompt": [1, 2, 3], "max_tokens": 2, "logprobs": 0, "model": "stays"})["tokens"]
    print(f"{len(folders)} hostile adapters: " + ("NOT " if short else "") + f"each refused in a line; {first} and others served on",
          flush=True)
    return not short and len(alive) == 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--recipe", default="smollm2-135m")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--without-peft", action="store_true")
    options = parser.parse_args()
    folder = "build/serving"
    run = model_of(options.program, options.recipe, options.dtype, folder)
    exported = f"{folder}/{options.recipe}-{options.dtype}-hf"
    if not os.path.isdir(exported):
        subprocess.run([options.program, "export", "--checkpoint", run, "--out", exported], check=True)
    shapes = shapes_of(exported)
    adapters = {f"adapter-{i}": f"{folder}/adapters/{options.recipe}-{i}" for i in range(COUNT)}
    for i, path in enumerate(adapters.values()):
        write_adapter(path, shapes, options.rank, i)
    held = options.without_peft or options.dtype != "f32" or check_peft(options, run, exported, f"{folder}/adapters")
    held &= check_bits(options, run, adapters)
    held &= check_speed(options, run, adapters)
    loads, server = check_loading(options, run, adapters)
    held &= bool(loads)
    held &= check_hostile(server, shapes, f"{folder}/adapters")
    if server.end() != 0:
        sys.exit("a server did not exit with 0")
    print("lora: " + ("holds" if held else "FALLS SHORT"))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
