"""Whether a server's texts have the same bits with each cache, what codecs of fewer bits cost, and whether kernels are held to their
reference (scripts/check-serving caches)."""
import argparse
import concurrent.futures
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


def check_bits(program, recipe, count):
    """Pages of every size, rings and contiguous rows, each with one text at a time and with many."""
    bodies = requests_of(count)
    window = model_of(program, recipe, "f32", "build/serving", "-window", ["model.decoder.stack.layer.attention.mask=SlidingWindow{window=128}"])
    plain = model_of(program, recipe, "f32", "build/serving")
    right = True
    for run, caches in ((window, ["WindowCache{}", "ContiguousCache{}"]), (plain, ["ContiguousCache{}"])):
        name = "a window of 128" if run == window else "all tokens"

        def answers(*arguments):
            server = Server(program, run, "--max-sequences", "8", *arguments)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                found = list(pool.map(server.completion, bodies))
            if server.end() != 0:
                sys.exit("the server did not exit with 0")
            return found

        expected = answers("--page-size", "16")
        ways = [(f"pages of {size}", ["--page-size", str(size)]) for size in (64, 256)]
        ways += [(cache, with_cache(cache)) for cache in caches]
        ways += [(f"{cache} and guesses", [*with_cache(cache), "--draft-tokens", "7", "--step-tokens", "64"]) for cache in caches[:1]]
        for way, arguments in ways:
            found = answers(*arguments)
            differ = sum(a["tokens"] != b["tokens"] for a, b in zip(expected, found))
            bits = sum(x != y for a, b in zip(expected, found) for x, y in zip(a["logprobs"], b["logprobs"]))
            print(f"{recipe}, {name}, {way}: {differ} of {len(bodies)} texts and {bits} log-probabilities differ from pages of 16", flush=True)
            right &= differ == 0 and bits == 0
    return right


def check_loss(program):
    """The loss of held-out text through the cache, of a model trained on the documents of this repository."""
    folder = pathlib.Path("build/serving")
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(pathlib.Path("docs").glob("*.md")))
    text = text.encode("ascii", "replace").decode()
    cut = len(text) * 9 // 10
    run = folder / "tiny-of-docs"
    if not run.is_dir():
        (folder / "docs.txt").write_text(text[:cut], encoding="utf-8")
        subprocess.run([program, "train", "tiny", "--device", "cpu", "--data", folder / "docs.txt", "--out", run, "--steps", "600", "--quiet",
                        "--sample", "0", "--set", "batch=16", "--set", "sequence=256"], check=True)
    held_out = [list(text[at:at + 256].encode()) for at in range(cut, len(text) - 256, 256)][:48]

    def loss(codec):
        server = Server(program, str(run), *with_cache(f"PagedCache{{codec={codec}}}"))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda ids: server.completion({"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0}), held_out))
        if server.end() != 0:
            sys.exit("the server did not exit with 0")
        scores = [-score for each in found for score in each["logprobs"] if score is not None]
        return sum(scores) / len(scores), len(scores)

    plain, count = loss("Plain{dtype=f32}")
    print(f"tiny on the documents, {count} held-out tokens: loss {plain:.4f}", flush=True)
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
    parser.add_argument("--only", choices=["kernels", "loss", "bits"])
    options = parser.parse_args()
    parts = {"kernels": lambda: check_kernels(options.calls, options.backends.split(",")),
             "loss": lambda: check_loss(options.program),
             "bits": lambda: check_bits(options.program, "tiny", options.requests)
             & check_bits(options.program, "smollm2-135m", options.requests)}
    right = all([part() for name, part in parts.items() if options.only in (None, name)])
    print("caches: " + ("holds" if right else "FALLS SHORT"))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
