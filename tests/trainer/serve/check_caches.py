"""Whether a server's texts have the same bits with each cache, what codecs of fewer bits cost, and whether kernels are held to their
reference (scripts/check-serving caches)."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

from check_exact import requests_of
from serving import Server, model_of

MOST = {"Int8Rows{}": 0.003, "Nf4Rows{}": 0.03}  # of the loss, that a codec may add
FAULTS = ["page_boundary", "stale_page", "neighbours_pages", "offset_of_a_chunk", "scales_of_a_head", "end_of_the_ring", "values_behind"]


def with_cache(cache):
    return ["--modify", f'Replace{{class=PagedCache with="{cache}"}}']


def answers(program, run, bodies, *arguments, at_once=8):
    server = Server(program, run, "--max-sequences", "8", *arguments)
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(server.completion, bodies))
    if server.end() != 0:
        sys.exit("the server did not exit with 0")
    return found


def same_bits(what, than, expected, found):
    differ = sum(a["tokens"] != b["tokens"] for a, b in zip(expected, found))
    bits = sum(x != y for a, b in zip(expected, found) for x, y in zip(a["logprobs"], b["logprobs"]))
    print(f"{what}: {differ} of {len(expected)} texts and {bits} log-probabilities differ from {than}", flush=True)
    return differ == 0 and bits == 0


def check_bits(program, recipe, count):
    """Pages of every size, rings and contiguous rows, and pages of latent vectors, each with one text at a time and with many."""
    bodies = requests_of(count)
    attention = "model.decoder.stack.layer.attention"
    window = model_of(program, recipe, "f32", "build/serving", "-window", [f"{attention}.mask=SlidingWindow{{window=128}}"])
    plain = model_of(program, recipe, "f32", "build/serving")
    latent = model_of(program, recipe, "f32", "build/serving", "-latent",
                      [f"{attention}=LatentAttention{{num_heads=4 kv_rank=48 head_dim=32 rotary_dim=16}}"])
    right = True
    for run, name, of_pages, caches in ((window, "a window of 128", "PagedCache{}", ["WindowCache{}", "ContiguousCache{}"]),
                                        (plain, "all tokens", "PagedCache{}", ["ContiguousCache{}"]),
                                        (latent, "latent vectors", "LatentCache{}", [])):
        pages = with_cache(of_pages) if of_pages != "PagedCache{}" else []
        expected = answers(program, run, bodies, "--page-size", "16", *pages)
        ways = [(f"pages of {size}", ["--page-size", str(size), *pages]) for size in (64, 256)]
        ways += [(cache, with_cache(cache)) for cache in caches]
        ways += [(f"{cache} and guesses", [*with_cache(cache), "--draft-tokens", "7", "--step-tokens", "64"]) for cache in caches[:1]]
        for way, arguments in ways:
            right &= same_bits(f"{recipe}, {name}, {way}", "pages of 16", expected, answers(program, run, bodies, *arguments))
    return right


def check_sources(program, count):
    """Texts of a model with an encoder, alone and with others, with each form of what is kept of their sources."""
    run = pathlib.Path("build/serving/tiny-pairs")
    if not run.is_dir():
        run.parent.mkdir(parents=True, exist_ok=True)
        pairs = run.parent / "pairs.jsonl"
        words = ["the", "sea", "was", "light", "and", "day"]
        pairs.write_text("".join(json.dumps({"prompt": words[i % 6], "completion": words[i // 6 % 6]}) + "\n" for i in range(600)))
        subprocess.run([program, "train", "tiny-pairs", "--device", "cpu", "--data", pairs, "--out", run, "--steps", "1", "--quiet",
                        "--sample", "0", "--set", "sequence=64"], check=True)
    bodies = [{**body, "prompt": body["prompt"][:64], "max_tokens": min(body["max_tokens"], 60)} for body in requests_of(count)]
    right = True
    for codec in ("Plain{}", "Plain{dtype=bf16}", "Int8Rows{}", "Nf4Rows{}"):
        cache = ["--max-length", "64"]
        if codec != "Plain{}":
            cache += ["--modify", f'Replace{{class=SourceCache with="SourceCache{{codec={codec}}}"}}']
        alone = answers(program, str(run), bodies, *cache, at_once=1)
        for way, arguments in (("8 at once", []), ("few pages", ["--pages", "8", "--page-size", "16"])):
            right &= same_bits(f"tiny-pairs, sources as {codec}, {way}", "each alone", alone,
                               answers(program, str(run), bodies, *cache, *arguments))
    return right


def check_loss(program):
    """The loss of held-out text through the cache, of a model trained on the documents of this repository."""
    folder = pathlib.Path("build/serving")
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(pathlib.Path("docs").glob("*.md")))
    text = text.encode("ascii", "replace").decode()
    cut = len(text) * 9 // 10
    held_out = [list(text[at:at + 256].encode()) for at in range(cut, len(text) - 256, 256)][:48]
    right = True
    for cache, suffix, edits in (("PagedCache", "", []),
                                 ("LatentCache", "-latent", ["--replace", "Attention=LatentAttention{kv_rank=32 head_dim=16 rotary_dim=16}"])):
        run = folder / ("tiny-of-docs" + suffix)
        if not run.is_dir():
            (folder / "docs.txt").write_text(text[:cut], encoding="utf-8")
            subprocess.run([program, "train", "tiny", "--device", "cpu", "--data", folder / "docs.txt", "--out", run, "--steps", "600",
                            "--quiet", "--sample", "0", "--set", "batch=16", "--set", "sequence=256", *edits], check=True)
        right &= check_losses(program, str(run), cache, held_out)
    return right


def check_losses(program, run, cache, held_out):
    """What codecs add to the loss."""
    def loss(codec):
        server = Server(program, run, *with_cache(f"{cache}{{codec={codec}}}"))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda ids: server.completion({"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0}), held_out))
        if server.end() != 0:
            sys.exit("the server did not exit with 0")
        scores = [-score for each in found for score in each["logprobs"] if score is not None]
        return sum(scores) / len(scores), len(scores)

    plain, count = loss("Plain{dtype=f32}")
    print(f"tiny on the documents, {cache}, {count} held-out tokens: loss {plain:.4f}", flush=True)
    right = 0 < plain < 3.5
    for codec, most in MOST.items():
        more = loss(codec)[0] / plain - 1
        print(f"{codec}: {100 * more:+.3f} % of loss, at most {100 * most:.1f} % allowed", flush=True)
        right &= more <= most
    return right


def run_tests(binary, filter, **environment):
    done = subprocess.run([binary, f"--gtest_filter={filter}"], env={**os.environ, **environment}, capture_output=True, text=True)
    return done.returncode == 0, done.stdout


def check_kernels(calls, backends):
    kernels = "build/tests/test_kernels"
    right = True
    for backend in backends:
        for op, variant in [("paged_attention", "pages"), ("nf4_pack", "simd" if backend == "cpu" else "simt"),
                            ("index_copy", "simd" if backend == "cpu" else "simt")]:
            passed, said = run_tests(kernels, f"*EqualTheReference/{op}_{variant}_{backend}", MESHLOOM_FUZZ_ROUNDS=str(calls))
            ran = re.search(r"(\d+) cases ran", said)
            print(f"{op} '{variant}' on {backend}: {ran[1] if ran else 'no'} calls, {'equal the reference' if passed else 'FALSE'}", flush=True)
            right &= passed and ran is not None and int(ran[1]) >= calls
    for fault in FAULTS:
        passed, said = run_tests(kernels, f"*AreFoundByTheDefaultRun/paged_attention_{fault}")
        found = passed and "[       OK ]" in said
        print(f"planted fault {fault}: {'found' if found else 'NOT FOUND'}", flush=True)
        right &= found
    return right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--backends", default="cpu", help="whose kernels get random calls, such as cpu,opencl,vulkan")
    parser.add_argument("--only", choices=["kernels", "loss", "bits", "sources"])
    options = parser.parse_args()
    parts = {"kernels": lambda: check_kernels(options.calls, options.backends.split(",")),
             "loss": lambda: check_loss(options.program),
             "sources": lambda: check_sources(options.program, options.requests),
             "bits": lambda: check_bits(options.program, "tiny", options.requests)
             & check_bits(options.program, "smollm2-135m", options.requests)}
    right = all([part() for name, part in parts.items() if options.only in (None, name)])
    print("caches: " + ("holds" if right else "FALLS SHORT"))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
