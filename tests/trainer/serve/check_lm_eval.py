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

from serving import Server, exported, model_with_tokenizer

ERROR = 1e-4  # of a log-likelihood, for each of its tokens
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
    """Tasks over one file of random questions, which are returned. The first text is longer than the model, so that it is cut into windows."""
    rng = random.Random(2)

    def words(count):
        return " ".join(rng.choice(WORDS) for _ in range(count))

    made = [{"question": words(rng.randrange(1, 60)) + "?", "choices": [words(rng.randrange(1, 8)) for _ in range(4)], "answer": rng.randrange(4),
             "text": words(1500) if i == 0 else words(rng.randrange(3, 200)) + " Déjà vu, 你好 & 1234.\n"} for i in range(documents)]
    with open(f"{folder}/documents.jsonl", "w", encoding="utf-8") as out:
        out.writelines(json.dumps(each) + "\n" for each in made)
    for name, fields in TASKS.items():
        task = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": f"{folder}/documents.jsonl"}},
                "test_split": "test", "num_fewshot": 0, "metadata": {"version": 1.0}, **fields}
        with open(f"{folder}/{name}.yaml", "w", encoding="utf-8") as out:
            json.dump(task, out)  # which is YAML
    return made


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
    run = model_with_tokenizer(options.program, options.recipe)
    folder = exported(options.program, run)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as tasks:
        documents = write_tasks(tasks, options.documents)
        # Of a server's length lm-eval leaves one for the token that it asks for and ignores, and another where it cuts texts into windows.
        wanted, theirs = results(tasks, "hf", {"pretrained": folder, "dtype": "float32", "device": "cpu", "max_length": LENGTH - 2}, 1)
        server = Server(options.program, run)
        found, ours = results(tasks, "local-completions",
                              {"model": os.path.basename(run), "base_url": server.url + "/v1/completions", "tokenizer": folder,
                               "max_length": LENGTH, "num_concurrent": 4, "max_retries": 1}, 4)
        short = bool(server.end())
    for name in ("local_choice", "local_last_word", "local_text"):
        worst, greedy = 0.0, True
        for document, answers in theirs[name].items():
            # Of whole texts lm-eval adds up to a thousand log-probabilities in f32, whose sum is in the thousands.
            tokens = len(tokenizer(documents[document]["text"])["input_ids"]) if name == "local_text" else 1
            for their, our in zip(answers, ours[name][document], strict=True):
                their, our = (each if isinstance(each, (list, tuple)) else (each, None) for each in (their, our))
                worst = max(worst, abs(float(their[0]) - float(our[0])) / tokens)
                greedy &= str(their[1]) == str(our[1])
        print(f"{name}: log-likelihoods differ by {worst:.2g} at most{' a token' if name == 'local_text' else ''} from those of transformers "
              f"{transformers.__version__}, {ERROR:g} allowed; {'the same' if greedy else 'OTHERS'} are greedy")
        short |= not worst <= ERROR or not greedy
    equal = sum(theirs["local_writing"][document] == ours["local_writing"][document] for document in theirs["local_writing"])
    print(f"local_writing: {equal} of {options.documents} texts are equal")
    for name in TASKS:
        for metric, value in wanted[name].items():
            if isinstance(value, float) and "stderr" not in metric:
                print(f"  {name} {metric}: {found[name][metric]:.6g}, with transformers {value:.6g}")
    print(f"lm-eval {lm_eval.__version__}: " + ("FALLS SHORT" if short else "holds"))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
