"""Held-out accuracy with our PyTorch definition: evaluate.py MODEL_DIR [--json OUT] [--choose indexer|recent|all] [--fake int8|fp8] [--tasks a,b] [--limit N]

Answers are marked teacher-forced: an answer is right when every one of its tokens (think trace, answer, end of turn) is the argmax, which is
when greedy decoding writes exactly this text. An answer that is right after a different trace counts as wrong here, so decoding can only score
higher. The questions about one long context are asked one after the other in one pass; `lathe eval` forks instead.
Drafted: tokens per verification step with three chained drafts, measured at every position of the answers."""
import argparse
import collections
import json

import torch

import checkpoint
import heldout
import norms
import scenes
from item import encode
from layout import Layout
from tokenizer import Tokenizer
from vision import patches

PACK = 32768


def render(shown, device):
    tables = torch.stack([torch.stack([torch.from_numpy(a.table), torch.from_numpy(b.table)]) for a, b in shown]).to(device)
    return patches(scenes.draw(tables.flatten(0, 1), torch).unflatten(0, (-1, 2)))


class Judge:
    def __init__(self, folder, device, choose="indexer"):
        self.tokenizer, self.model, self.device = Tokenizer(folder), checkpoint.load(folder).to(device), device
        self.model.choose = choose
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.model.eval()

    @torch.no_grad()
    def hits(self, ids, shown, layout, mode, drafts=3):
        """hit[d][t]: is token t + 1 + d the argmax, for the model (d = 0) and its chained drafts."""
        model, ids = self.model, torch.tensor(ids, device=self.device)
        features = at = None
        if shown:
            features = model.visual(render(shown, self.device), 8, 8, self.dtype).flatten(0, 1)
            at = (ids == model.c.image_token).nonzero()[:, 0]
        x = model.embed(ids, features, at, self.dtype)
        h, _, _ = model(x, layout, mode)
        zero = torch.zeros(len(ids), device=self.device)
        out = [model.run["losses"](h, model.lm_head, ids.roll(-1), zero)[1]]
        for d in range(1, drafts + 1):
            h, _, _ = model.draft(h, x.roll(-d, 0), layout, mode)
            out.append(model.run["losses"](h, model.lm_head, ids.roll(-1 - d), zero)[1])
        return [o.cpu() for o in out]

    def judge(self, documents):
        """documents: lists of (ids, learned spans to mark, shown). Yields for each its list of (right, drafted lengths)."""
        long = len(documents) == 1 and len(documents[0][0]) > self.model.c.topk
        ids, starts, shown = [], [0], []
        for doc, _, pictures in documents:
            ids += doc
            shown += pictures
            starts.append(len(ids))
        layout = Layout(starts, self.device, 0 if long else None, len(ids) if long else 0)
        mode = "sparse" if long else "dense" if self.device == "cuda" else "rows"
        hit = self.hits(ids, shown, layout, mode)
        for (doc, spans, _), at in zip(documents, starts):
            marks = []
            for a, b in spans:                           # tokens a .. b - 1 are the model's: predicted at a - 1 .. b - 2
                right = bool(hit[0][at + a - 1:at + b - 1].all())
                steps = []
                for t in range(at + a - 1, at + b - 1):
                    n = 1
                    while n < len(hit) and t + n < at + b - 1 and hit[n][t]:
                        n += 1
                    steps.append(n)
                marks.append((right, steps))
            yield marks


def spans(flags):
    """Runs of learned tokens: (first, end)."""
    out, begin = [], None
    for i, f in enumerate(list(flags) + [False]):
        if f and begin is None:
            begin = i
        if not f and begin is not None:
            out.append((begin, i))
            begin = None
    return out


def documents(tokenizer, seed, tasks, limit):
    seen = collections.Counter()
    for task, item, head, asks, context, quick in heldout.draw(seed):
        name = f"{task}-{context // 1024}K" if context else task
        seen[name] += 1
        if (tasks and name not in tasks) or (limit and seen[name] > limit):
            continue
        ids, flags, shown = encode(item, tokenizer)
        runs = spans(flags)
        yield name, ids, runs[1:] if context else runs[-1:], shown


def wilson(right, n):
    p, z = right / n, 1.96
    mid, half = (p + z * z / 2 / n) / (1 + z * z / n), z / (1 + z * z / n) * (p * (1 - p) / n + z * z / 4 / n / n) ** 0.5
    return round(100 * (mid - half), 1), round(100 * (mid + half), 1)


def evaluate(judge, seed=1, tasks=None, limit=0, wrong=0):
    table, drafted, shown_wrong = collections.OrderedDict(), collections.defaultdict(list), collections.Counter()

    def flush(pack):
        for (name, ids, runs, _), marks in zip(pack, judge.judge([(i, r, s) for _, i, r, s in pack])):
            for (right, steps), (a, b) in zip(marks, runs):
                row = table.setdefault(name, [0, 0])
                row[0] += right
                row[1] += 1
                drafted[name] += steps
                if not right and shown_wrong[name] < wrong:
                    shown_wrong[name] += 1
                    print(f"wrong {name}:", judge.tokenizer.decode(ids[max(0, a - 90):b]).replace("<|image|>", ""))

    pack, size = [], 0
    for doc in documents(judge.tokenizer, seed, tasks, limit):
        long = len(doc[1]) > judge.model.c.topk
        if pack and (long or size + len(doc[1]) > PACK):
            flush(pack)
            pack, size = [], 0
        pack.append(doc)
        size += len(doc[1])
        if long:
            flush(pack)
            pack, size = [], 0
    if pack:
        flush(pack)
    out = {}
    for name, (right, n) in table.items():
        out[name] = dict(right=right, of=n, percent=round(100 * right / n, 1), interval=wilson(right, n),
                         drafted=round(sum(drafted[name]) / max(1, len(drafted[name])), 2))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--json")
    parser.add_argument("--choose", default="indexer", choices=("indexer", "recent", "all"))
    parser.add_argument("--fake", choices=("int8", "fp8"), help="round both operands of every linear layer to 8 bits")
    parser.add_argument("--tasks", help="only these, such as stories,recall-16K")
    parser.add_argument("--limit", type=int, default=0, help="items a task")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wrong", type=int, default=0, help="show this many wrong answers a task")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    norms.FAKE = args.fake
    table = evaluate(Judge(args.folder, device, args.choose), args.seed, args.tasks and args.tasks.split(","), args.limit, args.wrong)
    for name, row in table.items():
        low, high = row["interval"]
        print(f"{name:15s} {row['right']:4d} of {row['of']:4d}  {row['percent']:5.1f} %  ({low} to {high})  drafted {row['drafted']}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(dict(choose=args.choose, fake=args.fake, seed=args.seed, tasks=table), f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
