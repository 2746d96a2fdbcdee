"""Norms and the clamped SwiGLU, with the roundings of the specification."""
import torch
import torch.nn.functional as F


FAKE = None                               # "int8" or "fp8": linear() rounds both operands as W8A8 would, for evaluation only


def rounded(x, kind):
    """Each row scaled to the largest value of the format, rounded, and scaled back."""
    x = x.float()
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / (127 if kind == "int8" else 448)
    y = (x / scale).round().clamp(-127, 127) if kind == "int8" else (x / scale).to(torch.float8_e4m3fn).float()
    return y * scale


def linear(x, w, b=None):
    if FAKE:
        return F.linear(rounded(x, FAKE).to(x.dtype), rounded(w, FAKE).to(x.dtype), None if b is None else b.to(x.dtype))
    return F.linear(x, w.to(x.dtype), None if b is None else b.to(x.dtype))


def rms_norm(x, w, eps):
    v = x.float()
    v = v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + eps)
    return w.to(x.dtype) * v.to(x.dtype)


def layer_norm(x, w, b, eps):
    return F.layer_norm(x.float(), (x.shape[-1],), w.float(), b.float(), eps).to(x.dtype)


def gated_norm(x, gate, w, eps):
    """Over each head, everything fp32, one rounding."""
    v = x.float()
    v = v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + eps)
    return (w.float() * v * torch.sigmoid(gate.float())).to(gate.dtype)


def l2_norm(x):
    v = x.float()
    return v * torch.rsqrt(v.pow(2).sum(-1, keepdim=True) + 1e-6)


def swiglu(gate, up, limit):
    return F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)
