"""Times decoding and prompts beside llama.cpp's llama-bench, in turn, for the same model: ours with random parameters.

    python3 bench/peers/llama_cpp.py --llama-bench PATH --checkpoint RUN [--rounds 5] [--prompt 512] [--context 64]

Build llama-bench with GGML_NATIVE, GGML_LLAMAFILE and GGML_OPENMP on. Ratios are medians over the rounds of our rate by theirs.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile


def run(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def theirs(options, model):
    rows = json.loads(run(options.llama_bench, "-m", model, "-t", str(options.threads), "-p", str(options.prompt), "-n",
                          str(options.context), "-r", "1", "-o", "json"))
    return {"prompt" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}


def ours(options, dtype):
    report = json.loads(run(options.meshloom, "bench", "decode", options.recipe, "--device", "cpu", "--set", f"dtype={dtype}", "--texts", "1",
                            "--context", str(options.context), "--prompt", str(options.prompt), "--rounds", "3", "--quiet", "--json"))
    return {"prompt" if "prompt" in case["name"] else "decode": case["tokens"] / case["seconds"] for case in report["cases"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--checkpoint", required=True, help="a run of --recipe, which llama.cpp gets")
    parser.add_argument("--recipe", default="smollm2-135m")
    parser.add_argument("--meshloom", default="build/meshloom")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--context", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = {dtype: f"{folder}/{dtype}.gguf" for dtype in ("f32", "bf16", "q8_0")}
        for dtype, path in files.items():
            run(options.meshloom, "export", "--checkpoint", options.checkpoint, "--out", path, "--format", "gguf", "--dtype", dtype)
        rates = {}
        for _ in range(options.rounds):
            for name, rate in ([("llama.cpp " + dtype, theirs(options, path)) for dtype, path in files.items()] +
                               [("meshloom " + dtype, ours(options, dtype)) for dtype in ("f32", "bf16")]):
                for kind, value in rate.items():
                    rates.setdefault((kind, name), []).append(value)
    for (kind, name), values in sorted(rates.items()):
        print(f"{kind:8} {name:15} {statistics.median(values):8.1f} tokens/s ({min(values):.1f} to {max(values):.1f})")
    for kind in ("decode", "prompt"):
        for dtype in ("f32", "bf16"):
            ratios = [a / b for a, b in zip(rates[kind, f"meshloom {dtype}"], rates[kind, f"llama.cpp {dtype}"])]
            print(f"{kind:8} {dtype}: {statistics.median(ratios):.2f} times llama.cpp's rate ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
