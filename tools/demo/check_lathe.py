"""Our PyTorch definition against the engine: check_lathe.py LATHE_BINARY MODEL_DIR [--pictures]. Exits 1 if logits differ.

Writes token lists, runs `lathe logits --dtype f32`, compares every row: a story, tool schemas, a context beyond index_topk, and a picture."""
import argparse
import json
import os
import random
import subprocess
import tempfile

import numpy as np
import torch

import checkpoint
import safetensors_file
import scenes
from item import encode
from layout import Layout
from tasks import pictures, recall, stories, tools
from tokenizer import Tokenizer
from vision import patches

TOLERANCE = 1e-4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lathe")
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=700, help="of the long context")
    parser.add_argument("--pictures", action="store_true", help="also a picture, through --image")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    tokenizer, model, rng = Tokenizer(args.folder), checkpoint.load(args.folder), random.Random(4)
    items = [stories.make(rng), tools.make(rng), recall.make(rng, args.tokens)] + ([pictures.make(rng)] if args.pictures else [])
    encoded = [encode(i, tokenizer) for i in items]
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        tokens, out = os.path.join(folder, "tokens.json"), os.path.join(folder, "logits.safetensors")
        with open(tokens, "w", encoding="utf-8") as f:
            json.dump([ids for ids, _, _ in encoded], f)
        command = [args.lathe, "logits", "--model", args.folder, "--tokens", tokens, "--out", out, "--dtype", "f32"]
        for _, _, shown in encoded:
            for n, (scene, _) in enumerate(shown):
                png = os.path.join(folder, f"{n}.png")
                with open(png, "wb") as f:
                    f.write(scenes.to_png(scene))
                command += ["--image", png]
        subprocess.run(command, check=True)
        theirs = safetensors_file.load(out)
    for i, (item, (ids, _, shown)) in enumerate(zip(items, encoded)):
        features = at = None
        if shown:
            frames = torch.from_numpy(scenes.draw(np.stack([t.table for pair in shown for t in pair])).astype(np.uint8)).unflatten(0, (-1, 2))
            features, at = model.visual(patches(frames), 8, 8, torch.float32).flatten(0, 1), (torch.tensor(ids) == model.c.image_token).nonzero()[:, 0]
        h, _, _ = model(model.embed(torch.tensor(ids), features, at), Layout([0, len(ids)]), "rows")
        ours, got = (h @ model.lm_head.T).double(), theirs[f"logits.{i}"].double()
        r = float((got - ours).pow(2).mean().sqrt() / ours.pow(2).mean().sqrt())
        agree = int((got.argmax(-1) == ours.argmax(-1)).sum())
        print(f"{item.task:10s} {len(ids):5d} tokens  RMS ratio {r:.2e}  argmax {agree} of {len(ids)}")
        worst = max(worst, r)
    raise SystemExit(worst > TOLERANCE)


if __name__ == "__main__":
    main()
