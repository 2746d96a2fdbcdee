"""Reading and writing safetensors with nothing but torch, so that the tools run where the library is missing."""
import json
import struct

import torch

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8,
          "I16": torch.int16, "BOOL": torch.bool}
NAMES = {v: k for k, v in DTYPES.items()}


def load(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        data = bytearray(f.read())
    out = {}
    for name, e in header.items():
        if name != "__metadata__":
            a, b = e["data_offsets"]
            flat = torch.frombuffer(data[a:b], dtype=DTYPES[e["dtype"]]) if b > a else torch.empty(0, dtype=DTYPES[e["dtype"]])
            out[name] = flat.view(e["shape"]).clone()
    return out


def save(path, tensors):
    header, at, blobs = {"__metadata__": {"format": "pt"}}, 0, []
    for name, t in tensors.items():
        t = t.detach().cpu().contiguous()
        blob = t.view(torch.uint8).numpy().tobytes() if t.dim() else t.view(1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            f.write(blob)
