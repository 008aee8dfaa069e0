#!/usr/bin/env python3
"""Holds training on preferences to TRL: the same steps on the same pairs, by its DPOTrainer and its CPOTrainer (SimPO).

    python check_preferences.py MESHLOOM

transformers makes a tiny Llama with a tokenizer and a chat template, which is imported. `meshloom score --preferences` writes the
log-probabilities of the reference model, with which Meshloom trains; TRL computes its own of the same model. Both train in f32 and
in the order of the file, and the losses, accuracies and margins of every step, and the trained models' logits, are compared. (TRL's
sigmoid loss has no label smoothing.)
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import datasets
import tokenizers
import torch
import transformers
import trl

STEPS, BATCH, SEQUENCE = 8, 4, 96
RATE, BETAS, EPS, DECAY = 3e-3, (0.9, 0.95), 1e-8, 0.0
TEMPLATE = ("{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
PEOPLE = "the quick brown fox jumps over a lazy dog while seven wizards pack my box with five dozen liquor jugs".split()


def make_model(folder):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    tokenizer.train_from_iterator([" ".join(PEOPLE)] * 4, tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(fast), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, bos_token_id=None,
        eos_token_id=fast.eos_token_id, pad_token_id=None))
    model.save_pretrained(folder)
    return fast


def make_pairs(conversations):
    generator = torch.Generator().manual_seed(11)

    def words(least, most):
        count = int(torch.randint(least, most + 1, (1,), generator=generator))
        return " ".join(PEOPLE[int(torch.randint(0, len(PEOPLE), (1,), generator=generator))] for _ in range(count))

    pairs = []
    for _ in range(STEPS * BATCH):
        prompt, chosen, rejected = words(2, 6), words(1, 7), words(1, 7)
        if conversations:
            pairs.append({"prompt": [{"role": "user", "content": prompt}],
                          "chosen": [{"role": "assistant", "content": chosen}],
                          "rejected": [{"role": "assistant", "content": rejected}]})
        else:
            pairs.append({"prompt": prompt, "chosen": " " + chosen, "rejected": " " + rejected})
    return pairs


def run(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, errors="replace")
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done.stdout


def ours(meshloom, imported, pairs, out, loss):
    settings = {"model.loss": loss, "sequence": SEQUENCE, "batch": BATCH, "dtype": "f32",
                "input.shuffle": "false", "input.pack": "false", "input.eval_fraction": 0, "eval_every": 0,
                "learner": f"AdamW{{beta1={BETAS[0]} beta2={BETAS[1]} eps={EPS} weight_decay={DECAY} clip_norm=0 "
                           f"peak_learning_rate={RATE} schedule=ConstantSchedule{{}}}}"}
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    run(meshloom, "train", "--init", imported, "--data", pairs, "--out", out, "--steps", STEPS, *options)
    run(meshloom, "export", "--checkpoint", out, "--out", out / "exported")
    rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
    model = transformers.AutoModelForCausalLM.from_pretrained(out / "exported", torch_dtype=torch.float32)
    return model, [(row["loss"], row["summaries"]["preference/accuracy"], row["summaries"]["preference/margin"]) for row in rows]


def theirs(folder, tokenizer, pairs, work, loss):
    model = transformers.LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
    shared = {"output_dir": str(work / "trl"), "per_device_train_batch_size": BATCH, "report_to": [], "use_cpu": True,
              "max_length": None, "bf16": False, "disable_tqdm": True, "gradient_checkpointing": False}
    dataset = datasets.Dataset.from_list(pairs)
    if loss.startswith("SimPO"):
        from trl.experimental.cpo import CPOConfig, CPOTrainer
        arguments = CPOConfig(loss_type="simpo", beta=2.0, simpo_gamma=0.5, cpo_alpha=0.0, **shared)
        trainer = CPOTrainer(model=model, args=arguments, train_dataset=dataset, processing_class=tokenizer)
    else:
        arguments = trl.DPOConfig(beta=0.2, precompute_ref_log_probs=True, **shared)
        trainer = trl.DPOTrainer(model=model, args=arguments, train_dataset=dataset, processing_class=tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPS, weight_decay=DECAY)
    model.train()
    steps = []
    for step in range(STEPS):
        rows = [trainer.train_dataset[step * BATCH + i] for i in range(BATCH)]
        inputs = trainer.data_collator(rows)
        before = {name: list(values) for name, values in metrics_of(trainer).items()}
        loss_value = trainer.compute_loss(model, inputs)
        optimizer.zero_grad()
        loss_value.backward()
        optimizer.step()
        new = {name: values[len(before.get(name, [])):] for name, values in metrics_of(trainer).items()}
        steps.append((loss_value.item(), mean(new["rewards/accuracies"]), mean(new["rewards/margins"])))
    return model, steps


def metrics_of(trainer):
    """What the trainer has kept of its steps, by name: DPOTrainer and CPOTrainer have other names for it."""
    return (trainer._metrics if hasattr(trainer, "_metrics") else trainer._stored_metrics)["train"]


def mean(values):
    return float(torch.as_tensor(values, dtype=torch.float64).mean())


def main(meshloom):
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        folder = work / "model"
        tokenizer = make_model(folder)
        run(meshloom, "import", folder, "--out", work / "imported")
        for form, conversations in (("texts", False), ("conversations", True)):
            pairs, scored = work / f"{form}.jsonl", work / f"{form}-scored.jsonl"
            rows = make_pairs(conversations)
            pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
            run(meshloom, "score", "--checkpoint", work / "imported", "--preferences", pairs, "--out", scored,
                "--sequence", SEQUENCE)
            with_reference = [json.loads(line) for line in open(scored)]
            assert [{k: v for k, v in row.items() if not k.startswith("ref_")} for row in with_reference] == rows
            for loss in ("DPOLoss{beta=0.2}", "SimPOLoss{beta=2 gamma=0.5}"):
                model, got = ours(meshloom, work / "imported", scored, work / f"{form}-{loss[:5]}", loss)
                # Without our references, TRL computes its own of the same model.
                wanted, want = theirs(folder, tokenizer, rows, work, loss)
                if loss.startswith("DPO"):  # the model is its reference: the sign of the first margins is that of a rounding
                    got[0], want[0] = (got[0][0], got[0][2]), (want[0][0], want[0][2])
                worst = max(abs(a - b) / max(1.0, abs(b)) for g, w in zip(got, want) for a, b in zip(g, w))
                tokens = torch.arange(40).reshape(1, -1)
                with torch.no_grad():
                    learnt = (model(tokens).logits - wanted.eval()(tokens).logits).abs().max().item()
                ok = worst < 1e-4 and learnt < 1e-3 and len(got) == STEPS
                failed += not ok
                print(f"{form}, {loss}: losses {got[0][0]:.5f} ... {got[-1][0]:.5f}, TRL {want[0][0]:.5f} ... "
                      f"{want[-1][0]:.5f}; largest difference {worst:.1e}, of the "
                      f"trained models' logits {learnt:.1e}{'' if ok else '  FAILED'}")
    print(f"trl {trl.__version__}, transformers {transformers.__version__}: "
          + ("all agree" if not failed else f"{failed} differ"))
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
