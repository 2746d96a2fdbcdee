"""Norms and the clamped SwiGLU, with the roundings of the specification."""
import torch
import torch.nn.functional as F


def linear(x, w, b=None):
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
