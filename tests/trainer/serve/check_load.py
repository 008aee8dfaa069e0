"""A server under load (scripts/check-serving load): beside its own engine and llama.cpp's server, while long prompts come, with a prefix that
repeats itself, idle, starting, and with as many texts as its memory holds. One line for each bar."""
import argparse
import asyncio
import atexit
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

from serving import Server, exported, model_of, model_with_tokenizer

TEXTS, PROMPT, TOKENS = 32, 256, 128
ENGINE, LLAMA = 0.93, 1.3        # the least tokens/s beside the engine alone, and beside llama-server
EXACT = 0.95                     # the least tokens/s of the batch-invariant engine beside one that is not
BETWEEN = 4                      # the most of the 99th percentile between tokens, in medians, while long prompts come
LONG, EVERY, DECODING = 3000, 2, 8
PREFIX, REPEATED = 1024, 0.15    # the most of the time to the first token where the prefix is found again
IDLE, READY = 0.01, 5            # the most of a core, and seconds until requests are answered
LETTERS = {str(byte): 100 for byte in range(97, 123)}  # that random weights write, so that each token has a text, which is sent at once
CONTIGUOUS, MORE = 8, 5          # texts whose contiguous caches have the bytes, and how many times as many pages must hold


class Bars:
    def __init__(self):
        self.short = False

    def bar(self, name, holds, said):
        self.short |= not holds
        print(f"{'ok   ' if holds else 'SHORT'} {name}: {said}", flush=True)


class Client:
    """Streams completions over connections of its own."""

    def __init__(self, url, model, vocabulary, extra=None):
        self.host, port = re.match(r"http://([^:/]+):(\d+)", url).groups()
        self.port, self.model, self.vocabulary, self.extra = int(port), model, vocabulary, extra or {}

    def prompt(self, rng, count):
        return [rng.randrange(5, self.vocabulary) for _ in range(count)]

    async def complete(self, prompt, tokens, seed=0):
        """The times of the request and of each of its tokens."""
        body = json.dumps({"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 1, "seed": seed, "ignore_eos": True,
                           "logit_bias": LETTERS, "stream": True, "stream_options": {"include_usage": True}, **self.extra}).encode()
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 20)
        begun = time.perf_counter()
        writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        times, counted, status = [], 0, await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError((status + await reader.read()).decode())
        while line := await reader.readline():
            if not line.startswith(b"data: {"):
                continue
            if b'"choices":[]' not in line:
                times.append(time.perf_counter())
            if b'"completion_tokens"' in line:
                counted = int(re.search(rb'"completion_tokens":(\d+)', line)[1])
        writer.close()
        if counted != tokens or len(times) < tokens:
            raise RuntimeError(f"{counted} of {tokens} tokens came, in {len(times)} parts")
        return begun, times


async def at_once(client, rng, texts, prompt, tokens):
    """Tokens per second of so many texts, from the first byte sent to the last received."""
    prompts = [client.prompt(rng, prompt) for _ in range(texts)]
    begun = time.perf_counter()
    await asyncio.gather(*(client.complete(each, tokens, seed) for seed, each in enumerate(prompts)))
    return texts * tokens / (time.perf_counter() - begun)


def engine_rate(options, *more):
    report = json.loads(subprocess.run(
        [options.program, "bench", "serve", options.recipe, "--device", "cpu", "--set", f"dtype={options.dtype}", "--texts", str(TEXTS),
         "--prompt", str(PROMPT), "--tokens", str(TOKENS), "--rounds", "1", "--quiet", "--json", "-", *more],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout)
    return report["cases"][0]["tokens_per_second"]


class LlamaServer:
    def __init__(self, folder, model):
        self.port = 18080 + os.getpid() % 1000
        self.url = f"http://127.0.0.1:{self.port}"
        # The run was trained on shorter rows than texts are here, and llama-server keeps to them.
        self.process = subprocess.Popen(
            [f"{folder}/llama-server", "-m", model, "--port", str(self.port), "-t", str(os.cpu_count()), "-np", str(TEXTS), "-c",
             str(TEXTS * 512), "--no-webui", "--override-kv", "llama.context_length=int:1024"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        atexit.register(self.process.kill)
        for _ in range(600):
            time.sleep(0.1)
            if answers(self.url):
                return
        sys.exit("llama-server does not answer")

    def end(self):
        self.process.terminate()
        self.process.wait()


def answers(url):
    import urllib.request
    try:
        return urllib.request.urlopen(url + "/health", timeout=1).status == 200
    except OSError:
        return False


def throughput(options, run, bars):
    server = Server(options.program, run, "--max-sequences", str(TEXTS), "--pages", "0")
    client = Client(server.url, os.path.basename(run), options.vocabulary)
    llama = None
    if options.llama_cpp:
        file = f"{run}.gguf"
        if not os.path.exists(file):
            subprocess.run([options.program, "export", "--checkpoint", run, "--out", file, "--format", "gguf", "--dtype", options.dtype],
                           check=True, stdout=subprocess.DEVNULL)
        llama = LlamaServer(options.llama_cpp, file)
        their_client = Client(llama.url, "llama", options.vocabulary, {"cache_prompt": False})
    rng = random.Random(1)
    ours, engine, inexact, theirs = [], [], [], []
    asyncio.run(at_once(client, rng, 2, 32, 4))  # warms up
    for _ in range(options.rounds):
        ours.append(asyncio.run(at_once(client, rng, TEXTS, PROMPT, TOKENS)))
        engine.append(engine_rate(options))
        inexact.append(engine_rate(options, "--no-batch-invariant"))
        if llama:
            theirs.append(asyncio.run(at_once(their_client, rng, TEXTS, PROMPT, TOKENS)))
    server.end()

    def compare(others, least, what):
        ratio = statistics.median(a / b for a, b in zip(ours, others))
        bars.bar(f"{TEXTS} at once, {PROMPT} tokens in, {TOKENS} out, beside {what}", ratio >= least,
                 f"{ratio:.2f} times, at least {least} wanted; {statistics.median(ours):.0f} and {statistics.median(others):.0f} tokens/s")

    compare(engine, ENGINE, "the engine alone")
    cost = statistics.median(a / b for a, b in zip(engine, inexact))
    bars.bar("the engine alone, with the same bits whatever else runs", cost >= EXACT,
             f"{cost:.2f} of the tokens/s without that promise, at least {EXACT} wanted; {statistics.median(engine):.0f} and "
             f"{statistics.median(inexact):.0f} tokens/s")
    if llama:
        llama.end()
        compare(theirs, LLAMA, "llama-server")
    else:
        print("      llama-server: not measured, as MESHLOOM_LLAMA_CPP names no folder with it")


def guidellm(options, bars):
    """What guidellm measures, whose own processes take a part of the machine."""
    run = model_with_tokenizer(options.program, options.recipe)
    server = Server(options.program, run, "--max-sequences", str(TEXTS))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.guidellm, "run", "--backend", f"kind=openai_http,target={server.url}", "--profile",
                        f"kind=concurrent,streams={TEXTS}", "--constraint", f"kind=max_requests,count={2 * TEXTS}", "--tokenizer",
                        f"kind=huggingface_auto,model={exported(options.program, run)}", "--data",
                        f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={TOKENS}", "--output", f"kind=json,path={folder}/report.json",
                        "--disable-console"], check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        with open(f"{folder}/report.json", encoding="utf-8") as file:
            report = json.load(file)["benchmarks"][0]
    server.end()
    totals, tokens = report["metrics"]["request_totals"], report["metrics"]["output_token_count"]["successful"]["total_sum"]
    bars.bar(f"guidellm, {TEXTS} at once, {PROMPT} tokens in, {TOKENS} out", totals["successful"] == 2 * TEXTS == totals["total"],
             f"{totals['successful']} of {totals['total']} requests succeed, {tokens / report['duration']:.0f} tokens/s")


def long_prompts(options, run, bars):
    server = Server(options.program, run, "--max-length", "4096", "--max-sequences", "16")
    client = Client(server.url, os.path.basename(run), options.vocabulary)
    rng = random.Random(2)

    async def mixed():
        texts, long, ended = [], [], False
        begun = time.perf_counter()

        async def text(seed):
            while time.perf_counter() - begun < options.seconds:
                texts.append(await client.complete(client.prompt(rng, 64), 128, seed))

        async def prompts():
            while not ended:
                long.append(asyncio.create_task(client.complete(client.prompt(rng, LONG), 1)))
                await asyncio.sleep(EVERY)
        sending = asyncio.create_task(prompts())
        await asyncio.gather(*(text(seed) for seed in range(DECODING)))
        ended = True
        sending.cancel()
        done = sum(task.done() for task in long)
        for task in long:
            task.cancel()
        await asyncio.gather(*long, return_exceptions=True)
        return texts, len(long), done

    texts, sent, done = asyncio.run(mixed())
    server.end()
    between = sorted(b - a for _, times in texts for a, b in zip(times, times[1:]))
    p50, p99 = between[len(between) // 2], between[len(between) * 99 // 100]
    bars.bar(f"{DECODING} texts while a prompt of {LONG} tokens comes every {EVERY} s", p99 <= BETWEEN * p50,
             f"p99 between tokens {1e3 * p99:.0f} ms, {p99 / p50:.1f} times p50 of {1e3 * p50:.0f} ms, at most {BETWEEN} wanted; {len(between)} "
             f"tokens, {done} of {sent} long prompts done")


def repeated_prefix(options, run, bars):
    server = Server(options.program, run, "--max-length", "2048")
    client = Client(server.url, os.path.basename(run), options.vocabulary)
    rng = random.Random(3)
    ratios, firsts = [], []

    def first_token(prompt):
        begun, times = asyncio.run(client.complete(prompt, 1))
        return times[0] - begun

    first_token(client.prompt(rng, 64))
    for _ in range(options.rounds):
        prefix = client.prompt(rng, PREFIX)
        new, again = (first_token(prefix + client.prompt(rng, 16)) for _ in range(2))
        ratios.append(again / new)
        firsts.append((new, again))
    server.end()
    ratio = statistics.median(ratios)
    bars.bar(f"a prefix of {PREFIX} tokens again", ratio <= REPEATED,
             f"first token in {ratio:.3f} of the time, at most {REPEATED} wanted; {1e3 * firsts[-1][0]:.0f} and {1e3 * firsts[-1][1]:.0f} ms")


def idle_and_ready(options, run, bars):
    def ticks(pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    seconds, busy = [], []
    for _ in range(options.rounds):
        begun = time.perf_counter()
        server = Server(options.program, run)
        while not answers(server.url):
            time.sleep(0.01)
        seconds.append(time.perf_counter() - begun)
        busy.append(ticks(server.process.pid))
        if len(seconds) < options.rounds:
            server.end()
    client = Client(server.url, os.path.basename(run), options.vocabulary)
    asyncio.run(client.complete([5, 6, 7], 4))
    time.sleep(1)
    before = ticks(server.process.pid)
    time.sleep(10)
    used = (ticks(server.process.pid) - before) / 10
    server.end()
    bars.bar("idle", used < IDLE, f"{100 * used:.1f} % of a core, less than {100 * IDLE:.0f} % wanted")
    ready = statistics.median(seconds)
    bars.bar("ready", ready <= READY, f"after {ready:.1f} s, at most {READY} wanted; {statistics.median(busy):.1f} s of a core")


def capacity(options, bars):
    """Pages of as many bytes as contiguous caches of 8 texts, and texts of mixed length whose prompts are all computed and kept."""
    run = model_of(options.program, "tiny", "f32", "build/serving")
    length, page = 2048, 16

    def memory(*more):
        return json.loads(subprocess.run(
            [options.program, "plan", "tiny", "--serve", "--device", "cpu", "--max-length", str(length), "--page-size", str(page), "--json", *more],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout)

    contiguous = memory("--max-sequences", str(CONTIGUOUS), "--modify", 'Replace{class=PagedCache with="ContiguousCache{}"}')
    pages = CONTIGUOUS * contiguous["bytes_per_text"] // memory()["bytes_per_page"]
    server = Server(options.program, run, "--max-length", str(length), "--page-size", str(page), "--pages", str(pages), "--max-sequences", "128",
                    "--step-tokens", "2048")
    client = Client(server.url, os.path.basename(run), 250)
    rng = random.Random(5)
    # Half of the texts have up to 128 tokens, a few fill the model's length: as with chats.
    lengths = [rng.choice([rng.randrange(48, 128)] * 10 + [rng.randrange(128, 512)] * 8 + [rng.randrange(512, 1024)] * 2) for _ in range(6 * CONTIGUOUS)]
    lengths[7] = length
    tokens, most, ended = 40, 0, False

    async def all_at_once():
        nonlocal most, ended

        async def watch():
            nonlocal most
            while not ended:
                most = max(most, int(await asyncio.to_thread(server.metric, "num_requests_running")))
                await asyncio.sleep(0.002)
        watching = asyncio.create_task(watch())
        await asyncio.gather(*(client.complete(client.prompt(rng, count - tokens), tokens, seed) for seed, count in enumerate(lengths)))
        ended = True
        await watching

    asyncio.run(all_at_once())
    preempted = int(server.metric("num_preemptions_total"))
    server.end()
    bars.bar("texts of mixed length at once", most >= MORE * CONTIGUOUS and preempted == 0,
             f"{most} in {pages} pages of {page} tokens, {most / CONTIGUOUS:.1f} times the {CONTIGUOUS} whose contiguous caches of {length} tokens "
             f"have as many bytes, at least {MORE} times wanted; {sum(lengths) / len(lengths):.0f} tokens on average, {preempted} preempted")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--recipe", default="smollm2-135m")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--llama-cpp", help="a folder with llama-server")
    parser.add_argument("--guidellm", help="the program of the package guidellm, to send requests as well")
    parser.add_argument("--only", choices=["throughput", "guidellm", "long", "prefix", "idle", "capacity"])
    options = parser.parse_args()
    run = model_of(options.program, options.recipe, options.dtype, "build/serving")
    options.vocabulary = 250  # bytes are tokens
    bars = Bars()
    for name, part in {"throughput": lambda: throughput(options, run, bars),
                       "guidellm": lambda: options.guidellm and guidellm(options, bars), "long": lambda: long_prompts(options, run, bars),
                       "prefix": lambda: repeated_prefix(options, run, bars), "idle": lambda: idle_and_ready(options, run, bars),
                       "capacity": lambda: capacity(options, bars)}.items():
        if options.only in (None, name):
            part()
    print("load: " + ("FALLS SHORT" if bars.short else "holds"))
    return 1 if bars.short else 0


if __name__ == "__main__":
    sys.exit(main())
