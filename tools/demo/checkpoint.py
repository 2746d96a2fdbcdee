"""The checkpoint in the released layout: names on disk, dtypes, shards, config files."""
import glob
import json
import os

import torch

import config
import safetensors_file
from model import Model

SHARD_BYTES = 7_500_000
FP32 = ("A_log", "dt_bias", "conv1d.weight", "e_score_correction_bias", "hc_attn_base", "hc_ffn_base", "hc_attn_scale", "hc_ffn_scale")
TEXT, VISION = "model.language_model.", "model.visual."


def on_disk(model):
    """name on disk -> tensor of the model (views for stacked experts)."""
    out = {TEXT + "embed_tokens.weight": model.embed_tokens, TEXT + "norm.weight": model.norm, "lm_head.weight": model.lm_head}
    layers = list(model.layers) + ([model.mtp] if model.mtp is not None else [])
    for i, layer in enumerate(layers):
        for name, attribute in layer.names.items():
            value, prefix = getattr(layer, attribute), f"{TEXT}layers.{i}."
            if name.startswith("mlp.experts."):
                which = name.rsplit(".", 1)[1]
                for e in range(value.shape[0]):
                    out[f"{prefix}mlp.experts.{e}.{which}.weight"] = value[e]
            else:
                out[prefix + name] = value
    if model.visual is not None:
        for name, attribute in model.visual.names.items():
            out[VISION + name] = getattr(model.visual, attribute)
    return out


def as_stored(name, tensor):
    keep = name.endswith(FP32)
    return tensor.detach().to("cpu", torch.float32 if keep else torch.bfloat16)


def save(model, folder, document):
    """Writes config and shards; returns (parameters, bytes)."""
    os.makedirs(folder, exist_ok=True)
    for old in glob.glob(os.path.join(folder, "*.safetensors")):
        os.remove(old)
    shards, size = [{}], 0
    stored = {n: as_stored(n, t) for n, t in on_disk(model).items()}
    for name, t in stored.items():
        n = t.numel() * t.element_size()
        if size + n > SHARD_BYTES and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][name] = t
        size += n
    where = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        safetensors_file.save(os.path.join(folder, file), shard)
        where.update({name: file for name in shard})
    total = sum(t.numel() * t.element_size() for t in stored.values())
    files = {"config.json": document, "processor_config.json": config.processor_config(), "generation_config.json": config.generation_config(),
             "model.safetensors.index.json": {"metadata": {"total_size": total}, "weight_map": where}}
    for file, content in files.items():
        with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
            json.dump(content, f, indent=1)
            f.write("\n")
    return sum(t.numel() for t in stored.values()), total


def load(folder):
    """A model in fp32 with the stored weights."""
    model = Model(config.read(folder))
    tensors = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        tensors.update(safetensors_file.load(path))
    with torch.no_grad():
        for name, target in on_disk(model).items():
            target.copy_(tensors.pop(name).float())
    if tensors:
        raise SystemExit(f"{folder}: not used: {sorted(tensors)[:5]}")
    return model
