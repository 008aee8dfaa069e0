"""Whether a request gets the same tokens and log-probabilities of the same bits whatever shares its steps (scripts/check-serving exact)."""
import argparse
import concurrent.futures
import json
import random
import struct
import subprocess
import sys
import time

from serving import LENGTH, PERSON, Server, model_of

NEAR = 1e-4  # the most that another device's log-probabilities are off the CPU's


def requests_of(count, vocabulary=256):
    """Prompts of 1 to 700 tokens, some of which begin alike, and 1 to 200 tokens after them; greedy and sampled, a quarter of them by a grammar."""
    rng = random.Random(7)
    common = [rng.randrange(vocabulary) for _ in range(400)]
    bodies = []
    for i in range(count):
        size = int(700 ** rng.random())
        shared = rng.randrange(min(size, len(common)) + 1) if rng.random() < 0.4 else 0
        prompt = common[:shared] + [rng.randrange(vocabulary) for _ in range(size - shared)]
        body = {"prompt": prompt, "max_tokens": int(200 ** rng.random()), "logprobs": 2, "seed": i, "ignore_eos": True,
                "temperature": 0 if i % 2 else 1}
        if i % 4 == 2:
            body.update(top_p=0.9, top_k=40, repetition_penalty=1.1)
        if i % 8 == 3:
            body["guided_regex"] = r"[a-z]{2,9}( [a-z]{2,9}){5,30}\."
        elif i % 8 == 6:
            body["guided_json"] = PERSON
        bodies.append(body)
    return bodies


def scores_differ(program, run, bodies):
    """How many log-probabilities of prompts differ in bits from those of `meshloom score`, and how many there are."""
    server = Server(program, run)
    differ = count = 0
    for body in bodies:
        served = server.completion({"prompt": body["prompt"], "max_tokens": 0, "echo": True, "logprobs": 0})["logprobs"][1:]
        scored = subprocess.run([program, "score", "--checkpoint", run, "--device", "cpu", "--ids", "--text", "-", "--json",
                                 "--sequence", str(LENGTH)], input=json.dumps(body["prompt"]), capture_output=True, text=True, check=True)
        trained = [token["logprob"] for token in json.loads(scored.stdout)["tokens"][1:]]
        if len(served) != len(trained):
            sys.exit(f"{len(served)} log-probabilities are served, and {len(trained)} scored")
        differ += sum(struct.pack("f", a) != struct.pack("f", b) for a, b in zip(served, trained))
        count += len(served)
    if server.end() != 0:
        sys.exit("the server did not exit with 0")
    return differ, count


def beside_cpu(expected, found):
    """The most that log-probabilities of another device are off those of the CPU, over the tokens that both wrote alike so far, and how many
    texts are the same to their end."""
    most = same = 0
    for a, b in zip(expected, found):
        for one, other, x, y in zip(a["tokens"], b["tokens"], a["logprobs"], b["logprobs"]):
            if one != other:
                break
            most = max(most, abs(x - y))
        else:
            same += 1
    return most, same


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--recipe", default="smollm2-135m")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--device", default="cpu", help="such as opencl:0; in f32 its log-probabilities must be within 1e-4 of the CPU's")
    parser.add_argument("--only", default="", help="the ways that have this in their names")
    options = parser.parse_args()
    run = model_of(options.program, options.recipe, options.dtype, "build/serving")
    bodies = requests_of(options.requests)

    def answers(name, at_once, *arguments, prefill=None, device=options.device):
        begun = time.time()
        if prefill is not None:
            other = Server(options.program, run, "--role", "prefill", "--listen-pages", "127.0.0.1:0", *prefill, device=device)
            arguments = [*arguments, "--role", "decode", "--prefill", other.pages]
        server = Server(options.program, run, *arguments, device=device)
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            found = list(pool.map(server.completion, bodies))
        preempted, cached = server.metric("num_preemptions_total"), server.metric("prefix_cache_hits_total")
        guessed, right = (server.metric(f"spec_decode_num_{kind}_tokens_total") for kind in ("draft", "accepted"))
        if prefill is not None:
            received, fallbacks = (server.metric(f"kv_transfer_{kind}_total") for kind in ("pages_received", "fallbacks"))
            print(f"{name}: {received:.0f} pages received, {server.metric('kv_transfer_bytes_received_total') / 1e6:.0f} MB, "
                  f"{fallbacks:.0f} prompts computed by the decoding side", flush=True)
            # Few pages may be needed for other texts before a prompt uses them.
            if received == 0 or (fallbacks > 0 and "--pages" not in arguments) or server.metric("kv_transfer_refusals_total") > 0:
                sys.exit(f"{name}: every prompt must have got its pages")
            if other.end() != 0:
                sys.exit(f"{name}: the server that computes prompts did not exit with 0")
        if server.end() != 0:
            sys.exit(f"{name}: the server did not exit with 0")
        return found, preempted, cached, (guessed, right), time.time() - begun

    expected, _, cached, _, seconds = answers("alone", 1, "--no-prefix-cache")
    tokens = sum(len(each["tokens"]) for each in expected)
    print(f"{options.recipe} in {options.dtype} on {options.device}: {len(bodies)} requests, {tokens} tokens, alone in {seconds:.0f} s",
          flush=True)
    short = cached > 0
    at_once = ["--max-sequences", "32"]
    if options.device != "cpu":
        most, same = beside_cpu(answers("the CPU", 32, *at_once, device="cpu")[0], expected)
        print(f"beside the CPU: log-probabilities are off by {most:.1e} at most, {same} of {len(bodies)} texts are the same", flush=True)
        short |= (options.dtype == "f32" and most > NEAR) or same == 0
    # Pages of 64 tokens: the longest text has 15 or fewer.
    apart = [("prefill apart", at_once, ["--step-tokens", "512"]),
             ("prefill apart, pages of 16 tokens, few of them", [*at_once, "--page-size", "16", "--pages", "96"], ["--page-size", "16"])]
    ways = [("32 at once", at_once), ("steps of 16 tokens", [*at_once, "--step-tokens", "16"]),
            ("steps of 64 tokens", [*at_once, "--step-tokens", "64"]),
            ("steps of 512 tokens", [*at_once, "--step-tokens", "512"]),
            ("32 at once without the prefix cache", [*at_once, "--no-prefix-cache"]),
            ("few pages", [*at_once, "--pages", "24"]),
            ("pages of 16 tokens", [*at_once, "--page-size", "16"]),
            ("prompt lookup", [*at_once, "--draft-tokens", "7"]),
            ("a draft model", [*at_once, "--draft", run, "--pages", "48"])]
    for name, arguments, prefill in [*((*way, None) for way in ways), *apart]:
        if options.only not in name:
            continue
        found, preempted, cached, (guessed, right), seconds = answers(name, 32, *arguments, prefill=prefill)
        differ = sum(a["tokens"] != b["tokens"] or a["text"] != b["text"] or a["finish"] != b["finish"]
                     for a, b in zip(expected, found))
        bits = sum(x != y for a, b in zip(expected, found) for x, y in zip(a["logprobs"], b["logprobs"]))
        bits += sum(a["top"] != b["top"] for a, b in zip(expected, found))
        print(f"{name}: {differ} requests differ in tokens, {bits} log-probabilities in bits; {preempted:.0f} preemptions, "
              f"{cached:.0f} tokens found in the prefix cache, {right:.0f} of {guessed:.0f} guesses right, {seconds:.0f} s", flush=True)
        short |= differ > 0 or bits > 0
        if ("--draft-tokens" in arguments or "--draft" in arguments) and not 0 < right <= guessed:
            print(f"{name}: no guess was right")
            short = True
        if name == "few pages" and preempted < 20 and len(bodies) >= 300:
            print("few pages: must preempt at least 20 times")
            short = True
    if options.dtype == "f32" and options.device == "cpu" and not options.only:
        longest = sorted(bodies, key=lambda body: -len(body["prompt"]))
        differ, count = scores_differ(options.program, run, [body for body in longest if len(body["prompt"]) > 1][::10])
        print(f"the forward pass without caches: {differ} of {count} log-probabilities of prompts differ in bits", flush=True)
        short |= differ > 0
    print("exact: " + ("FALLS SHORT" if short else "holds"))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
