"""Our PyTorch definition against the reference's golden files: check_fixtures.py FIXTURES_DIR. Exits 1 if one differs."""
import sys

import torch

import checkpoint
import safetensors_file
from layout import Layout


def ratio(a, b):
    a, b = a.double(), b.double()
    return float((a - b).pow(2).mean().sqrt() / b.pow(2).mean().sqrt())


def text(folder, name):
    gold = safetensors_file.load(f"{folder}/golden/{name}_forward.safetensors")
    model = checkpoint.load(f"{folder}/models/{name}")
    layout, streams = Layout([0, len(gold["input_ids"])]), []
    h, _, _ = model(model.embed(gold["input_ids"].long()), layout, "rows", keep=streams)
    yield f"{name} streams", ratio(torch.stack(streams), gold["layers"]) if "layers" in gold else 0.0
    yield f"{name} logits", ratio(h @ model.lm_head.T, gold["logits"])


def drafts(folder):
    gold = safetensors_file.load(f"{folder}/golden/tiny_mtp.safetensors")
    model = checkpoint.load(f"{folder}/models/tiny")
    layout = Layout([0, len(gold["next_ids"])])
    h, _, _ = model.draft(gold["prev_hidden"], model.embed(gold["next_ids"].long()), layout, "rows")
    yield "mtp hidden", ratio(h, gold["mtp_hidden"])
    yield "mtp logits", ratio(h @ model.lm_head.T, gold["mtp_logits"])


def vision(folder):
    gold = safetensors_file.load(f"{folder}/golden/vision_tower.safetensors")
    model, at, got = checkpoint.load(f"{folder}/models/tiny"), 0, []
    for t, r, c in gold["grid_thw"].tolist():
        x = gold["pixels"][at:at + t * r * c].view(t, r * c, -1)
        at += t * r * c
        got.append(model.visual(x, r, c, torch.float32).flatten(0, 1))
    yield "vision features", ratio(torch.cat(got), gold["merged"])


def main():
    folder, bad = sys.argv[1], 0
    torch.set_num_threads(1)
    with torch.no_grad():
        checks = [c for name in ("tiny", "realdims_bf16") for c in text(folder, name)]
        checks += list(drafts(folder)) + list(vision(folder))
    for name, r in checks:
        print(f"{name:32s} {r:.2e}")
        bad += r > 1e-4
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
