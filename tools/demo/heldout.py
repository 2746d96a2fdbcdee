"""The held-out items that ship with the model: heldout.py OUT.jsonl.gz [--seed S]

One JSON object a line:
  id, task      what it is
  messages      the conversation before the question, OpenAI layout; picture parts carry base64 PNGs:
                {"type": "image", "png": ...} or {"type": "video", "fps": 2.0, "png": [...]}
  tools         schemas, where there are any
  asks          questions, each marked on its own after `messages` (fork there): {user | null, mark, answer}
                user: a message to append (null: the messages already end with the question)
                mark: exact (the content, stripped), json (equal as JSON), tool_calls (names and arguments equal, in order)
                answer: text, or a list of {name, arguments}; think: the trace that training would show, for information
  context       for recall, the length of the conversation in tokens
  quick         part of the 30-second subset
  hard          beyond what was trained (longer stories, more digits, longer lists and texts): an instrument with room to fall and to rise
Seeds are apart from the training seeds; operand pairs of sums are a fiftieth that training never draws."""
import argparse
import base64
import gzip
import json
import random

import scenes
from item import CLIP_FPS
from tasks import about, copying, fill, memory, pictures, recall, stories, sums, tools

SHORT = (("stories", lambda r: stories.make(r, turns=1), 300), ("arithmetic", lambda r: sums.arithmetic(r, held=True, turns=1), 250),
         ("sorting", sums.sorting, 120), ("counting", sums.counting, 120), ("copying", copying.make, 200), ("tools", tools.make, 250),
         ("json", fill.make, 200), ("memory", memory.make, 150), ("lathe", lambda r: about.make(r, turns=1, known=0.75), 100),
         ("pictures", lambda r: pictures.make(r, turns=1), 250), ("clips", lambda r: pictures.clip(r, turns=1), 80))
HARD = (("stories-hard", lambda r: stories.make(r, turns=1, steps=(24, 36), most=8), 100),
        ("arithmetic-hard", lambda r: sums.arithmetic(r, turns=1, digits=(4, 5)), 100),
        ("sorting-hard", lambda r: sums.sorting(r, length=(11, 14)), 100), ("copying-hard", lambda r: copying.make(r, shortest=700, longest=1500), 40))
RECALL = ((1024, 6, 25), (4096, 6, 50), (16384, 4, 50), (65536, 1, 48), (131072, 1, 48))     # tokens, contexts, questions each


def media(message, encode_png):
    if isinstance(message["content"], str):
        return message
    parts = []
    for part in message["content"]:
        if part["type"] == "image":
            part = {"type": "image", "png": encode_png(part["scene"])}
        elif part["type"] == "video":
            part = {"type": "video", "fps": CLIP_FPS, "png": [encode_png(s) for s in part["scene"]]}
        parts.append(part)
    return {"role": message["role"], "content": parts}


def ask(message, mark, question=None):
    calls = [c["function"] for c in message.get("tool_calls", ())]
    return {"user": question, "mark": "tool_calls" if calls else mark, "answer": calls or message["content"],
            "think": message.get("reasoning_content", "")}


def draw(seed):
    """(task, Item, number of leading messages, asks as (question message or None, answer message), context length, quick)"""
    for task, make, count in SHORT:
        for i in range(count):
            item = make(random.Random(f"held out/{seed}/{task}/{i}"))
            yield task, item, len(item.messages) - 1, [(None, item.messages[-1])], None, i < count // 8
    for task, make, count in HARD:
        for i in range(count):
            item = make(random.Random(f"held out/{seed}/{task}/{i}"))
            yield task, item, len(item.messages) - 1, [(None, item.messages[-1])], None, False
    for tokens, contexts, questions in RECALL:
        for i in range(contexts):
            item = recall.make(random.Random(f"held out/{seed}/recall/{tokens}/{i}"), tokens, questions)
            turns = item.messages[2:]
            yield "recall", item, 2, list(zip(turns[::2], turns[1::2])), tokens, tokens <= 4096 and i == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    png = lambda s: base64.b64encode(scenes.to_png(s)).decode()
    with open(args.out, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as f:
        for n, (task, item, head, asks, context, quick) in enumerate(draw(args.seed)):
            line = {"id": f"{task}-{n}", "task": task, "messages": [media(m, png) for m in item.messages[:head]]}
            if item.tools:
                line["tools"] = item.tools
            line["asks"] = [ask(a, item.mark, q and q["content"]) for q, a in asks]
            if context:
                line["context"] = context
            if quick:
                line["quick"] = True
            if task.endswith("-hard"):
                line["hard"] = True
            f.write((json.dumps(line, ensure_ascii=False) + "\n").encode())


if __name__ == "__main__":
    main()
