"""Trains the tokenizer on the tasks' own text: make_tokenizer.py OUT_DIR [--documents N]"""
import argparse
import json
import os
import random

import mix
import tokenizer
import words
from item import pieces


def texts(documents, seed):
    rng = random.Random(seed)
    for _ in range(documents):
        for piece, _ in pieces(mix.draw_short(rng), []):
            if isinstance(piece, str):
                yield piece
    for table in (v for v in vars(words).values() if isinstance(v, (list, tuple))):
        for word in table:
            for _ in range(60):                  # every listed word should be one token, alone and inside a sentence
                yield word
                yield "a " + word


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--documents", type=int, default=30000)
    parser.add_argument("--seed", type=int, default=20261130)
    args = parser.parse_args()
    vocab, merges = tokenizer.train(texts(args.documents, args.seed))
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(tokenizer.document(vocab, merges), f, ensure_ascii=False, indent=1)
        f.write("\n")
    with open(os.path.join(args.out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(tokenizer.settings(), f, indent=1)
        f.write("\n")
    print(f"{len(vocab)} base tokens, {len(merges)} merges, {len(tokenizer.ADDED)} added tokens")


if __name__ == "__main__":
    main()
