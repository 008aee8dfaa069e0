"""What lm-eval gets of a server, beside what it computes with transformers (scripts/check-serving lm-eval)."""
import argparse
import json
import os
import random
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import lm_eval
import transformers
from lm_eval.tasks import TaskManager

from serving import Server, exported, model_of

ERROR = 1e-4  # of a log-likelihood, for each of its tokens
TOKENIZER = "tests/trainer/interop/tokenizers/smollm.json"
LENGTH = 1024
WORDS = "the sea was light and day of a night over water when they came back from far away in long winter".split()
TASKS = {
    "local_choice": {"output_type": "multiple_choice", "doc_to_text": "{{question}}", "doc_to_choice": "{{choices}}",
                     "doc_to_target": "{{answer}}", "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]},
    "local_last_word": {"output_type": "loglikelihood", "doc_to_text": "{{question}}", "doc_to_target": " {{choices[0]}}",
                        "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}]},
    "local_text": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
                   "metric_list": [{"metric": "word_perplexity"}]},
    "local_writing": {"output_type": "generate_until", "doc_to_text": "{{question}}", "doc_to_target": "{{choices[0]}}",
                      "generation_kwargs": {"until": ["\n\n"], "do_sample": False, "temperature": 0, "max_gen_toks": 24},
                      "metric_list": [{"metric": "exact_match"}]},
}


def write_tasks(folder, documents):
    """Tasks over one file of random questions; texts of 1,500 words are longer than the model, so that they are cut into windows."""
    rng = random.Random(2)

    def words(count):
        return " ".join(rng.choice(WORDS) for _ in range(count))

    with open(f"{folder}/documents.jsonl", "w", encoding="utf-8") as out:
        for i in range(documents):
            text = words(1500) if i == 0 else words(rng.randrange(3, 200)) + " Déjà vu, 你好 & 1234.\n"
            out.write(json.dumps({"question": words(rng.randrange(1, 60)) + "?", "choices": [words(rng.randrange(1, 8)) for _ in range(4)],
                                  "answer": rng.randrange(4), "text": text}) + "\n")
    for name, fields in TASKS.items():
        task = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": f"{folder}/documents.jsonl"}},
                "test_split": "test", "num_fewshot": 0, "metadata": {"version": 1.0}, **fields}
        with open(f"{folder}/{name}.yaml", "w", encoding="utf-8") as out:
            json.dump(task, out)  # which is YAML


def results(folder, model, arguments, batch):
    found = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=list(TASKS), batch_size=batch, bootstrap_iters=0,
                                    log_samples=True, task_manager=TaskManager(include_path=folder, include_defaults=False))
    samples = {name: {sample["doc_id"]: [answer[0] for answer in sample["resps"]] for sample in found["samples"][name]} for name in TASKS}
    return found["results"], samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--recipe", default="smollm2-135m")
    options = parser.parse_args()
    run = model_of(options.program, options.recipe, "f32", "build/serving", "-smollm",
                   [f'input.tokenizer=TokenizerJson{{file="{os.path.abspath(TOKENIZER)}"}}'])
    folder = exported(options.program, run)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    counts = {}
    with tempfile.TemporaryDirectory() as tasks:
        write_tasks(tasks, options.documents)
        wanted, theirs = results(tasks, "hf", {"pretrained": folder, "dtype": "float32", "device": "cpu", "max_length": LENGTH}, 1)
        server = Server(options.program, run)
        found, ours = results(tasks, "local-completions",
                              {"model": os.path.basename(run), "base_url": server.url + "/v1/completions", "tokenizer": folder,
                               "max_length": LENGTH, "num_concurrent": 4, "max_retries": 1}, 4)
        short = bool(server.end())
    worst, greedy = 0.0, True
    for name in ("local_choice", "local_last_word", "local_text"):
        for document, answers in theirs[name].items():
            for their, our in zip(answers, ours[name][document], strict=True):
                pair = [each if isinstance(each, (list, tuple)) else (each, None) for each in (their, our)]
                worst = max(worst, abs(float(pair[0][0]) - float(pair[1][0])) / max(1, counts.get((name, document), 1)))
                greedy &= str(pair[0][1]) == str(pair[1][1])
    texts = sum(theirs["local_writing"][document] == ours["local_writing"][document] for document in theirs["local_writing"])
    print(f"lm-eval {lm_eval.__version__}, {options.documents} documents: log-likelihoods differ by {worst:.2g} at most from those of "
          f"transformers {transformers.__version__}, {ERROR:g} allowed; greedy {'equal' if greedy else 'DIFFERS'}; "
          f"{texts} of {options.documents} texts equal")
    for name in TASKS:
        for metric, value in wanted[name].items():
            if isinstance(value, float) and "stderr" not in metric:
                print(f"  {name} {metric}: {found[name][metric]:.6g}, with transformers {value:.6g}")
    short |= not worst <= ERROR or not greedy
    print("lm-eval: " + ("FALLS SHORT" if short else "holds"))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
