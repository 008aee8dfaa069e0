#!/usr/bin/env python3
"""Rewards answers for `meshloom train --reward`: reads a JSON object from each line, writes a number on a line each.

Of prompts.jsonl, an answer is worth the part of its words that are in it, and a tenth more where it ends by itself. To see what the
program says of answers, feed it a run's own:

    python3 examples/reward.py < out/rewarded/rollouts.jsonl
"""
import json
import sys

for line in sys.stdin:
    answer = json.loads(line)
    words = answer["example"]["words"]
    found = sum(word in answer["completion"] for word in words)
    print(found / len(words) + (0.1 if answer["finish_reason"] == "stop" else 0))
