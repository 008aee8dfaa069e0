"""What guessing tokens by prompt lookup gains and costs (scripts/check-serving speculation)."""
import argparse
import statistics
import sys
import time

from serving import Server, model_of

REPEATING, OTHER = 1.8, 0.97  # the least ratios


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--recipe", default="smollm2-135m")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    options = parser.parse_args()
    run = model_of(options.program, options.recipe, options.dtype, "build/serving")
    servers = [Server(options.program, run, "--draft-tokens", tokens) for tokens in ("0", "7")]
    prompt = [(7 * i) % 251 for i in range(200)]
    # Without temperature the model soon repeats itself; with it random weights hardly ever write three tokens alike.
    texts = {"text that repeats itself": {"temperature": 0}, "other text": {"temperature": 1}}
    seconds = {name: ([], []) for name in texts}
    counts = {}
    tokens = {}
    for turn in range(options.rounds + 1):
        for name, sampling in texts.items():
            for which in ((0, 1), (1, 0))[turn % 2]:  # whatever changes with time counts for both
                server = servers[which]
                before = [server.metric(f"spec_decode_num_{kind}_tokens_total") for kind in ("draft", "accepted")]
                begun = time.time()
                answer = server.completion({"prompt": prompt, "max_tokens": options.tokens, "seed": turn, "ignore_eos": True,
                                            "logprobs": 0, **sampling})
                if turn > 0:  # the first warms up and fills the prefix cache
                    seconds[name][which].append(time.time() - begun)
                if tokens.setdefault((name, turn), answer["tokens"]) != answer["tokens"]:
                    sys.exit(f"{name}: the guesses changed the text")
                after = [server.metric(f"spec_decode_num_{kind}_tokens_total") for kind in ("draft", "accepted")]
                if which == 1:
                    counts[name] = [a - b for a, b in zip(after, before)]
    short = False
    for name, least in zip(texts, (REPEATING, OTHER)):
        plain, guessing = seconds[name]
        ratio = statistics.median(a / b for a, b in zip(plain, guessing))
        drafted, accepted = counts[name]
        print(f"{name}: {ratio:.2f} times as fast as without guesses, at least {least} wanted; {accepted:.0f} of {drafted:.0f} "
              f"guesses right; {options.tokens / statistics.median(plain):.1f} -> "
              f"{options.tokens / statistics.median(guessing):.1f} tokens/s")
        short |= ratio < least
    if any([server.end() for server in servers]):
        sys.exit("a server did not exit with 0")
    print("speculation: " + ("FALLS SHORT" if short else "holds"))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
