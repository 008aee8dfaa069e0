#!/usr/bin/env python3
"""Holds training on rewards to TRL: the same steps on the same answers, by its GRPOTrainer.

    python check_rollouts.py MESHLOOM

transformers makes a tiny Llama with a tokenizer and a chat template, which is imported. Meshloom trains it in f32: the
model answers prompts and a program rewards the answers. TRL starts from the same model and is given these answers in place
of those that it would write. It makes the prompts' tokens, rewards what it has decoded, and computes advantages,
log-probabilities and losses. The rewards, advantages, losses, parts that are clipped and gradient norms of every step, and
the trained models' logits, are compared.
"""
import json
import pathlib
import runpy
import shlex
import sys
import tempfile

import datasets
import torch
import transformers
import trl

from check_preferences import BETAS, DECAY, PEOPLE, RATE, make_model, mean, metrics_of, run

STEPS, BATCH, GROUP, SEQUENCE, COMPLETION = 6, 16, 4, 96, 24
# All answers to a prompt begin at the same place, where their gradients may cancel. With a small eps, AdamW makes whole
# steps of what rounding leaves of them.
EPS = 1e-3
# Counts letters, which the answers of random weights have by chance. Rewards are halves, whose sums are exact: equal ones
# have a deviation of 0 in any precision.
PROGRAM = """
import json, sys

def reward(text):
    return 1.0 * sum(map(text.count, "aeiou")) - 0.5 * sum(map(text.count, "xyz"))

if __name__ == "__main__":
    for line in sys.stdin:
        print(reward(json.loads(line)["completion"]))
"""
# A name, whether prompts are conversations, Meshloom's settings beside those of all, and TRL's.
CASES = [
    ("texts", False, {}, {}),
    ("conversations", True, {}, {}),
    ("texts, advantages not scaled", False, {"input.scale_advantages": "false"}, {"scale_rewards": "none"}),
    ("conversations, truncated answers masked", True, {"input.mask_truncated": "true"},
     {"mask_truncated_completions": True}),
    ("texts, in two parts, three answers at once", False, {"accumulation": 2, "input.max_sequences": 3}, {}),
    ("texts, two ranks", False, {"mesh.data": 2}, {}),
    ("texts, learned from twice", False, {"input.num_iterations": 2}, {}),
    ("conversations, answers of two steps at once, learned from twice, clipped early", True,
     {"input.num_iterations": 2, "input.steps_per_generation": 2, "model.loss.clip_low": 0.02, "model.loss.clip_high": 0.05},
     {"epsilon": 0.02, "epsilon_high": 0.05}),
]


def parts_of(settings):
    """How many steps have answers that are written together, and how often each of these steps is done."""
    return settings.get("input.steps_per_generation", 1), settings.get("input.num_iterations", 1)


def make_model_that_ends(folder):
    """So that some answers end and some are cut: the score of the end token is spread more than those of the others."""
    tokenizer = make_model(folder)
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight[tokenizer.eos_token_id] *= 3
    model.save_pretrained(folder)
    return tokenizer


def make_prompts(conversations):
    """Fewer than the steps need: some are answered twice."""
    generator = torch.Generator().manual_seed(17)
    prompts = []
    for i in range(STEPS * BATCH // GROUP - 5):
        count = int(torch.randint(2, 7, (1,), generator=generator))
        words = " ".join(PEOPLE[int(torch.randint(0, len(PEOPLE), (1,), generator=generator))] for _ in range(count))
        messages = [{"role": "user", "content": words}]
        if i % 3 == 0:
            messages.insert(0, {"role": "system", "content": "jump over the box"})
        prompts.append({"prompt": messages if conversations else words, "number": i})
    return prompts


def ours(meshloom, imported, prompts, program, out, more):
    settings = {"model.loss": "GRPOLoss{}", "sequence": SEQUENCE, "batch": BATCH, "dtype": "f32", "eval_every": 0,
                "input.shuffle": "false", "input.eval_fraction": 0, "input.completions_per_prompt": GROUP,
                "input.max_completion_tokens": COMPLETION,
                "learner": f"AdamW{{beta1={BETAS[0]} beta2={BETAS[1]} eps={EPS} weight_decay={DECAY} clip_norm=0 "
                           f"peak_learning_rate={RATE} schedule=ConstantSchedule{{}}}}", **more}
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    run(meshloom, "train", "--init", imported, "--data", prompts, "--out", out, "--steps", STEPS,
        "--reward", f"{shlex.quote(sys.executable)} {shlex.quote(str(program))}", *options)
    run(meshloom, "export", "--checkpoint", out, "--out", out / "exported")
    rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
    answers = [json.loads(line) for line in open(out / "rollouts.jsonl")]
    model = transformers.AutoModelForCausalLM.from_pretrained(out / "exported", torch_dtype=torch.float32)
    parts, repeats = parts_of(more)
    of_steps = []
    for step in range(STEPS):
        first = step - step % (parts * repeats)
        together = [answer for answer in answers if answer["step"] == first + 1]
        assert len(together) == BATCH * parts
        part = (step - first) % parts
        of_steps.append(together[part * BATCH:(part + 1) * BATCH])
    return model, rows, of_steps


def theirs(folder, tokenizer, prompts, answers, program, work, settings, more):
    model = transformers.LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
    reward_of = runpy.run_path(str(program))["reward"]
    seen = []

    def reward(prompts, completions, **kwargs):
        texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
        seen.append((prompts, texts, [reward_of(text) for text in texts]))
        return seen[-1][2]

    # Where it is to pass over the answers twice, it computes the old log-probabilities when it gets them.
    arguments = trl.GRPOConfig(
        output_dir=str(work / "trl"), per_device_train_batch_size=BATCH, num_generations=GROUP, num_iterations=2,
        max_completion_length=COMPLETION, report_to=[], use_cpu=True, bf16=False, disable_tqdm=True,
        gradient_checkpointing=False, **{"loss_type": "dapo", "beta": 0.0, "scale_rewards": "group", **more})
    trainer = trl.GRPOTrainer(model=model, reward_funcs=reward, args=arguments, processing_class=tokenizer,
                              train_dataset=datasets.Dataset.from_list(prompts))
    trainer.current_gradient_accumulation_steps = 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPS, weight_decay=DECAY)
    model.train()
    parts, repeats = parts_of(settings)
    steps, together = [], []
    for step in range(STEPS):
        if step % (parts * repeats) == 0:
            together = []
            for part in range(parts):
                first = (step // repeats + part) * BATCH
                rows = [trainer.train_dataset[(first + i) // GROUP % len(prompts)] for i in range(BATCH)]
                ids = [answer["completion_ids"] for answer in answers[step + part]]
                trainer._generate_single_turn = lambda *_, **__: (ids, None)
                inputs = trainer._generate_and_score_completions(rows)
                assert "old_per_token_logps" in inputs
                together.append((inputs, seen[-1], mean(metrics_of(trainer)["completions/clipped_ratio"][-1])))
        inputs, (asked, texts, rewards), truncated = together[step % parts]
        loss = trainer.compute_loss(model, inputs)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        optimizer.step()
        steps.append({"prompts": asked, "texts": texts, "rewards": rewards, "advantages": inputs["advantages"].tolist(),
                      "tokens": int(inputs["completion_mask"].sum()), "loss": loss.item(), "gradient_norm": norm.item(),
                      "truncated": truncated, "own_answers": step % (parts * repeats) == 0,
                      "clip_fraction": mean(metrics_of(trainer)["clip_ratio/region_mean"][-1])})
    return model, steps


def faults(rows, answers, steps):
    """What differs, as texts; and the largest differences of the advantages, the losses and the gradient norms."""
    found = []
    worst = {"advantages": 0.0, "losses": 0.0, "clipped parts": 0.0, "gradient norms": 0.0}
    for row, of_step, want in zip(rows, answers, steps, strict=True):
        got = {name: [answer[name] for answer in of_step] for name in of_step[0]}
        summaries = row["summaries"]
        for name, a, b in (("prompts", [example["prompt"] for example in got["example"]], want["prompts"]),
                           ("answers", got["completion"], want["texts"]),
                           ("rewards", got["reward"], want["rewards"]),
                           ("mean reward", row["reward"], mean(want["rewards"])),
                           ("tokens", row["tokens"], want["tokens"]),
                           ("truncated", summaries["rollout/truncated"], want["truncated"])):
            if a != b:
                found.append(f"step {row['step']}, {name}: {a}, TRL {b}")
        if want["own_answers"] and not abs(summaries["policy/approx_kl"]) < 1e-6:
            found.append(f"step {row['step']}, approx_kl: {summaries['policy/approx_kl']}")
        for name, a, b in (("advantages", got["advantage"], want["advantages"]),
                           ("losses", [row["loss"]], [want["loss"]]),
                           ("clipped parts", [summaries["policy/clip_fraction"]], [want["clip_fraction"]]),
                           ("gradient norms", [row["gradient_norm"]], [want["gradient_norm"]])):
            worst[name] = max(worst[name], *(abs(x - y) / max(1.0, abs(y)) for x, y in zip(a, b, strict=True)))
    return found + [f"{name} differ by {value:.1e}" for name, value in worst.items() if not value < 1e-4], worst


def main(meshloom):
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        folder, program = work / "model", work / "reward.py"
        tokenizer = make_model_that_ends(folder)
        run(meshloom, "import", folder, "--out", work / "imported")
        program.write_text(PROGRAM)
        for number, (name, conversations, settings, arguments) in enumerate(CASES):
            prompts = work / f"{number}.jsonl"
            lines = make_prompts(conversations)
            prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
            model, rows, answers = ours(meshloom, work / "imported", prompts, program, work / f"run-{number}", settings)
            wanted, steps = theirs(folder, tokenizer, lines, answers, program, work, settings, arguments)
            found, worst = faults(rows, answers, steps)
            tokens = torch.arange(40).reshape(1, -1)
            with torch.no_grad():
                learnt = (model(tokens).logits - wanted.eval()(tokens).logits).abs().max().item()
            if not learnt < 1e-3:
                found.append(f"the trained models' logits differ by {learnt:.1e}")
            failed += bool(found)
            truncated, clipped = (mean([step[what] for step in steps]) for what in ("truncated", "clip_fraction"))
            got, want = ([f"{step['gradient_norm']:.5f}" for step in (side[0], side[-1])] for side in (rows, steps))
            print(f"{name}: {sum(map(len, answers))} answers, {100 * truncated:.0f} % truncated, "
                  f"{100 * clipped:.1f} % of the tokens clipped; gradient norms "
                  f"{' ... '.join(got)}, TRL {' ... '.join(want)}; largest differences: "
                  + ", ".join(f"{what} {value:.1e}" for what, value in worst.items())
                  + f", the trained models' logits {learnt:.1e}{'  FAILED' if found else ''}")
            for fault in found:
                print(f"  {fault}")
    print(f"trl {trl.__version__}, transformers {transformers.__version__}: "
          + ("all agree" if not failed else f"{failed} differ"))
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
