"""Our PyTorch definition against transformers on one checkpoint: logits with and without pictures and a clip, patches, token ids, template.

check_transformers.py MODEL_DIR [--tokens 900]. Runs in fp32 where transformers 5.17 is installed; exits 1 if something differs.
--random DIR first writes a checkpoint with untrained weights there and checks that one."""
import argparse
import os
import random
import shutil
import sys

import numpy as np
import torch

import checkpoint
import config
import mix
import scenes
from item import encode, pieces
from layout import Layout
from model import Model
from tasks import pictures, recall
from tokenizer import ADDED, BASE_VOCAB, Tokenizer
from vision import patches


def write_random(folder):
    torch.manual_seed(3)
    document = config.demo_config()
    model = Model(config.shape(document))
    for layer in list(model.layers) + [model.mtp]:
        if layer.sparse_ffn:
            layer.mlp_gate_e_score_correction_bias.normal_(0, 0.1)
    print("random weights: %d parameters, %d bytes" % checkpoint.save(model, folder, document))
    here = os.path.join(os.path.dirname(__file__), "../../models/demo")
    for f in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(os.path.join(here, f), folder)


def ratio(a, b):
    a, b = a.double().flatten(), b.double().flatten()
    return float((a - b).pow(2).mean().sqrt() / b.pow(2).mean().sqrt())


def ours(model, ids, flat):
    feats, at = None, None
    ids = torch.tensor(ids)
    if flat is not None:
        feats = model.visual(flat, 8, 8, torch.float32).flatten(0, 1)
        at = (ids == model.c.image_token).nonzero()[:, 0]
    h, _, _ = model(model.embed(ids, feats, at), Layout([0, len(ids)]), "rows")
    return h @ model.lm_head.T


def pixels(item_scenes):
    tables = np.stack([np.stack([a.table, b.table]) for a, b in item_scenes])
    return torch.from_numpy(scenes.draw(tables.reshape(-1, *tables.shape[2:])).astype(np.uint8)).view(len(tables), 2, scenes.SIZE, scenes.SIZE, 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=900)
    parser.add_argument("--random", action="store_true")
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    from transformers import Glm5NextForConditionalGeneration, Glm5NextImageProcessor, Glm5NextVideoProcessor, PreTrainedTokenizerFast
    torch.set_grad_enabled(False)
    if args.random:
        write_random(args.folder)
    tokenizer, model = Tokenizer(args.folder), checkpoint.load(args.folder)
    theirs = Glm5NextForConditionalGeneration.from_pretrained(args.folder, dtype=torch.float32, attn_implementation="eager").eval()
    results = []

    rng = random.Random(5)
    ids, _, _ = encode(recall.make(rng, args.tokens), tokenizer)
    results.append(("logits, text, %d tokens" % len(ids), ratio(ours(model, ids, None), theirs(input_ids=torch.tensor([ids])).logits[0])))

    ids, _, shown = encode(pictures.make(rng), tokenizer)
    image = pixels(shown)[:, 0]
    out = Glm5NextImageProcessor()(images=[i.numpy() for i in image], return_tensors="pt", input_data_format="channels_last")
    flat = patches(pixels(shown))
    results.append(("patches, picture", ratio(flat.flatten(0, 1), out["pixel_values"])))
    logits = theirs(input_ids=torch.tensor([ids]), pixel_values=out["pixel_values"], image_grid_thw=out["image_grid_thw"]).logits[0]
    results.append(("logits, picture", ratio(ours(model, ids, flat), logits)))

    ids, _, shown = encode(pictures.clip(rng), tokenizer)
    frames = pixels(shown).flatten(0, 1).numpy()
    out = Glm5NextVideoProcessor()(frames, video_metadata=[{"fps": 2, "duration": 4, "total_num_frames": 8}], return_tensors="pt", do_sample_frames=False)
    flat = patches(pixels(shown))
    results.append(("patches, clip", ratio(flat.flatten(0, 1), out["pixel_values_videos"])))
    logits = theirs(input_ids=torch.tensor([ids]), pixel_values_videos=out["pixel_values_videos"], video_grid_thw=out["video_grid_thw"]).logits[0]
    results.append(("logits, clip", ratio(ours(model, ids, flat), logits)))

    fast = PreTrainedTokenizerFast(tokenizer_file=os.path.join(args.folder, "tokenizer.json"))
    fast.chat_template = open(os.path.join(args.folder, "chat_template.jinja"), encoding="utf-8").read()
    wrong = 0
    for _ in range(400):
        item = mix.draw_short(rng)
        text = "".join(ADDED[p - BASE_VOCAB] if isinstance(p, int) else p for p, _ in pieces(item, []))
        wrong += fast(text)["input_ids"] != encode(item, tokenizer)[0]
    results.append(("conversations whose ids differ, of 400", wrong))
    item = mix.draw_short(random.Random(1))
    print(fast.apply_chat_template(item.messages[:1], tokenize=False, add_generation_prompt=True)[:300])

    for name, r in results:
        print(f"{name:40s} {r:.2e}" if isinstance(r, float) else f"{name:40s} {r}")
    sys.exit(any(r > 1e-4 for _, r in results))


if __name__ == "__main__":
    main()
