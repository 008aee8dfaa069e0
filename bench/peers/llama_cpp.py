"""Times decoding, prompts and batches beside llama.cpp, in turn, for the same model (scripts/check-serving speed).

    python3 bench/peers/llama_cpp.py build/meshloom [--llama-cpp DIR] [--rounds 5] [--threads 2]

DIR has llama-bench, llama-batched-bench and llama-quantize, as scripts/build-llama-cpp builds them. llama.cpp gets GGUF files of a model of
random weights; q8_0 and q4_0 are files of its own llama-quantize, whose blocks both sides multiply. Ratios are medians over the rounds of
our rate by theirs, and shares of the bandwidth are by the median of what was measured in the round. Prints a line per bar and exits with 1
where one falls short.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tests/trainer/serve"))
from ratio_bars import RatioBars, print_rate
from serving import model_of

PROMPT, BATCH, BATCH_CONTEXT = 512, 32, 256
# The rate of ours, those of llama.cpp of which the best counts, and the least ratio.
BARS = [
    ("decode", "bf16", ["bf16", "f16"], 1.05),
    ("decode", "q8_0", ["q8_0"], 1.0),
    ("decode", "q4_0", ["q4_0"], 1.0),
    ("prompt", "bf16", ["bf16"], 1.3),
    ("prompt", "q8_0", ["q8_0"], 1.0),
    ("batch", "bf16", ["bf16"], 1.3),
    ("batch", "q8_0", ["q8_0"], 1.1),
]
BANDWIDTH = {"f32": 0.75, "bf16": 0.75, "q8_0": 0.75}  # the least share that decoding reads of what the processor reads


def run(*words, **environment):
    ran = subprocess.run([str(word) for word in words], capture_output=True, text=True, env={**os.environ, **environment})
    if ran.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {(ran.stderr or ran.stdout).strip()[-2000:]}")
    return ran.stdout


def files_of(options, folder):
    """GGUF files of llama.cpp, and what `bench decode` is told to run the same."""
    checkpoint = model_of(options.program, options.recipe, "f32", folder)
    ggufs, ours = {}, {}
    for kind in ("f32", "bf16", "f16", "q8_0", "q4_0"):
        ggufs[kind] = f"{folder}/{options.recipe}-{kind}.gguf"
        quantized = kind[0] == "q"
        if not os.path.exists(ggufs[kind]):
            if quantized:
                run(options.tool("llama-quantize"), ggufs["f32"], ggufs[kind] + ".part", kind.upper(), options.threads)
            else:
                run(options.program, "export", "--checkpoint", checkpoint, "--out", ggufs[kind] + ".part", "--format", "gguf", "--dtype",
                    kind)
            os.rename(ggufs[kind] + ".part", ggufs[kind])
        if quantized:
            kept = f"{folder}/{options.recipe}-{kind}-kept"
            if not os.path.isdir(kept):
                run(options.program, "import", ggufs[kind], "--keep-quantized", "--out", kept)
            ours[kind] = ["--config", next(pathlib.Path(kept).glob("step-*/config.txt")), "--set", "dtype=bf16", "--set",
                          f"model.decoder.positions.max_length={max(PROMPT, BATCH_CONTEXT, options.context)}"]
        elif kind != "f16":
            ours[kind] = [options.recipe, "--set", f"dtype={kind}"]
    return ggufs, ours


def their_rates(options, model, only_decode):
    rows = json.loads(run(options.tool("llama-bench"), "-m", model, "-t", options.threads, "-p", 0 if only_decode else PROMPT, "-n",
                          options.context, "-r", "1", "-o", "json"))
    rates = {"prompt" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}
    if not only_decode:
        out = run(options.tool("llama-batched-bench"), "-m", model, "-t", options.threads, "-c", BATCH * (BATCH_CONTEXT + 64), "-npp",
                  BATCH_CONTEXT, "-ntg", options.batch_tokens, "-npl", BATCH, "-pps", "--output-format", "jsonl")
        rates["batch"] = next(json.loads(line)["speed_tg"] for line in out.splitlines() if line.startswith("{"))
    return rates


def our_rates(options, words, only_decode):
    """The rates, the bytes that decoding reads per second, and what the processor reads per second, which each run measures when it begins."""
    reads = []

    def decode(texts, context, prompt, rounds):
        report = json.loads(run(options.program, "bench", "decode", *words, "--device", "cpu", "--quiet", "--json", "--texts", texts,
                                "--context", context, "--prompt", prompt, "--rounds", rounds, MESHLOOM_THREADS=str(options.threads)))
        reads.append(report["read_bytes_per_second"])
        return report, [case["tokens"] / case["seconds"] for case in report["cases"]]

    report, (rate,) = decode(1, options.context, 0, options.context)
    case = report["cases"][0]
    rates = {"decode": rate}
    if not only_decode:
        rates["prompt"] = decode(1, options.context, PROMPT, 3)[1][1]
        rates["batch"] = decode(BATCH, BATCH_CONTEXT, 0, options.batch_tokens)[1][0]
    return rates, case["bytes"] / case["seconds"], reads


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--llama-cpp", default="build/peers/llama.cpp", help="a folder with its programs, or that has them in bin/")
    parser.add_argument("--recipe", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--context", type=int, default=64, help="tokens that are decoded")
    parser.add_argument("--batch-tokens", type=int, default=8, help="tokens that a batch decodes")
    parser.add_argument("--json", help="a file for all rates")
    options = parser.parse_args()
    folder = pathlib.Path(options.llama_cpp)
    folder = folder / "bin" if (folder / "bin").is_dir() else folder
    options.tool = lambda name: folder / name
    ggufs, ours = files_of(options, "build/serving")
    rates = {}  # (what, "llama.cpp" or "meshloom", kind of weights): one of each round
    for _ in range(options.rounds):
        read, bandwidths = {}, []
        for kind, model in ggufs.items():
            only_decode = kind in ("f32", "f16", "q4_0")
            both = {"llama.cpp": their_rates(options, model, only_decode)}
            if kind in ours:
                both["meshloom"], read[kind], measured = our_rates(options, ours[kind], only_decode)
                bandwidths += measured
            for side, found in both.items():
                for what, rate in found.items():
                    rates.setdefault((what, side, kind), []).append(rate)
        # Each is of some milliseconds, in which neighbours may have read much or nothing.
        for kind in BANDWIDTH:
            rates.setdefault(("share", "meshloom", kind), []).append(read[kind] / statistics.median(bandwidths))
        if options.json:
            with open(options.json, "w", encoding="utf-8") as out:
                json.dump([[*key, values] for key, values in rates.items()], out)
    for (what, side, kind), values in sorted(rates.items()):
        if what != "share":
            print_rate(f"{what:6} {side:9} {kind:4}", values)
    bars = RatioBars()
    for what, kind, peers, least in BARS:
        theirs = [max(each) for each in zip(*(rates[what, "llama.cpp", peer] for peer in peers))]
        ratios = [a / b for a, b in zip(rates[what, "meshloom", kind], theirs)]
        bars.bar(f"{what} of {kind} by llama.cpp's {' or '.join(peers)}", ratios, least)
    for kind, least in BANDWIDTH.items():
        bars.bar(f"decode of {kind}, share of the bandwidth of reading", rates["share", "meshloom", kind], least)
    return 1 if bars.short else 0


if __name__ == "__main__":
    sys.exit(main())
