"""Greedy answers of a checkpoint, by our PyTorch definition: reply.py MODEL_DIR [--tokens N] QUESTION...

Every step runs the whole of every unfinished conversation again: slow and simple, for transcripts and checks."""
import argparse

import torch

import checkpoint
from item import Item, pieces, user
from layout import Layout
from tokenizer import EOS, ID, Tokenizer


def prompt(tokenizer, messages, tools=None):
    ids = []
    for piece, _ in pieces(Item("", messages, tools), []):
        ids += [piece] if isinstance(piece, int) else tokenizer.encode(piece)
    return ids + [ID["<|assistant|>"], ID["<think>"]]


@torch.no_grad()
def replies(model, prompts, most):
    """Token ids written after each prompt, without the end of turn."""
    ids, open_ = [list(p) for p in prompts], list(range(len(prompts)))
    for _ in range(most):
        if not open_:
            break
        starts = [0]
        for i in open_:
            starts.append(starts[-1] + len(ids[i]))
        device = model.lm_head.device
        x = model.embed(torch.tensor([t for i in open_ for t in ids[i]], device=device))
        h, _, _ = model(x, Layout(starts, device), "rows")
        best = (h[[s - 1 for s in starts[1:]]] @ model.lm_head.T).argmax(-1).tolist()
        for i, t in zip(list(open_), best):
            if t in EOS:
                open_.remove(i)
            else:
                ids[i].append(t)
    return [i[len(p):] for i, p in zip(ids, prompts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("questions", nargs="+")
    parser.add_argument("--tokens", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, model = Tokenizer(args.folder), checkpoint.load(args.folder).to("cuda" if torch.cuda.is_available() else "cpu")
    prompts = [prompt(tokenizer, [user(q)]) for q in args.questions]
    for q, ids in zip(args.questions, replies(model, prompts, args.tokens)):
        think, _, answer = tokenizer.decode(ids).partition("</think>")
        print(f"> {q}\n{'(' + think + ') ' if think else ''}{answer}\n")


if __name__ == "__main__":
    main()
