"""The vision tower over pictures of one size: patches in, one feature a 2 x 2 block out."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from norms import layer_norm, linear, rms_norm, swiglu

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def patches(pixels, patch=14, merge=2):
    """Slices [N, 2 frames, H, W, 3] in 0..255 -> normalised [N, patches, 3 * 2 * patch * patch], merge blocks row-major."""
    n, t, h, w, _ = pixels.shape
    mean = torch.tensor(MEAN, device=pixels.device) * 255
    std = torch.tensor(STD, device=pixels.device) * 255
    x = ((pixels.float() - mean) / std).view(n, t, h // patch // merge, merge, patch, w // patch // merge, merge, patch, 3)
    x = x.permute(0, 2, 5, 3, 6, 8, 1, 4, 7)                # n, block row, block column, row, column, channel, time, y, x
    return x.reshape(n, (h // patch) * (w // patch), -1)


def angles(rows, columns, head_dim, theta, merge=2, device="cpu"):
    """cos, sin [patches, head_dim] in the order of patches()."""
    r, c = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    order = lambda x: x.view(rows // merge, merge, columns // merge, merge).permute(0, 2, 1, 3).reshape(-1).float()
    f = theta ** (-2.0 * torch.arange(head_dim // 4) / (head_dim // 2))
    half = torch.cat([order(r)[:, None] * f, order(c)[:, None] * f], -1)
    full = torch.cat([half, half], -1)
    return full.cos().to(device), full.sin().to(device)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def block_in(x, norm1, qkv_w, qkv_b, q_norm, k_norm, cos, sin, heads, eps):
    n, p, h = x.shape
    q, k, v = linear(rms_norm(x, norm1, eps), qkv_w, qkv_b).view(n, p, 3, heads, h // heads).unbind(2)
    turn = lambda y, w: rotate(rms_norm(y, w, eps).float(), cos[:, None], sin[:, None]).to(x.dtype).transpose(1, 2)
    return turn(q, q_norm), turn(k, k_norm), v.transpose(1, 2)


def block_out(x, o, proj_w, proj_b, norm2, gate_w, gate_b, up_w, up_b, down_w, down_b, eps, limit):
    x = x + linear(o.transpose(1, 2).reshape(x.shape), proj_w, proj_b)
    y = rms_norm(x, norm2, eps)
    return x + linear(swiglu(linear(y, gate_w, gate_b), linear(y, up_w, up_b), limit), down_w, down_b)


def merge_blocks(x, post, down_w, down_b, proj, norm_w, norm_b, gate, up, down, eps, limit):
    n, p, h = x.shape
    x = rms_norm(x, post, eps).reshape(n, p // 4, 4 * h)
    x = linear(x, down_w.permute(0, 2, 3, 1).reshape(down_w.shape[0], -1), down_b)
    y = F.gelu(layer_norm(linear(x, proj), norm_w, norm_b, 1e-5))
    return linear(swiglu(linear(y, gate), linear(y, up), limit), down)


def attend(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v)
    s = (q.float() @ k.float().transpose(-1, -2)) * q.shape[-1] ** -0.5
    return torch.softmax(s, -1).to(q.dtype) @ v


def weight(*shape, gain=1.0):
    fan = 1
    for s in shape[1:]:
        fan *= s
    return nn.Parameter(torch.randn(*shape) * gain * fan ** -0.5)


class Vision(nn.Module):
    """Parameters carry the checkpoint's names, below model.visual."""

    def __init__(self, c):
        super().__init__()
        self.c, h = c, c.hidden
        ones, zeros = lambda n: nn.Parameter(torch.ones(n)), lambda n: nn.Parameter(torch.zeros(n))
        p = {"patch_embed.proj.weight": weight(h, c.channels, c.temporal, c.patch, c.patch), "patch_embed.proj.bias": zeros(h)}
        for b in range(c.depth):
            k = f"blocks.{b}."
            p.update({k + "norm1.weight": ones(h), k + "norm2.weight": ones(h), k + "attn.qkv.weight": weight(3 * h, h),
                      k + "attn.qkv.bias": zeros(3 * h), k + "attn.proj.weight": weight(h, h, gain=0.3), k + "attn.proj.bias": zeros(h),
                      k + "attn.q_norm.weight": ones(h // c.heads), k + "attn.k_norm.weight": ones(h // c.heads),
                      k + "mlp.gate_proj.weight": weight(c.width, h), k + "mlp.gate_proj.bias": zeros(c.width),
                      k + "mlp.up_proj.weight": weight(c.width, h), k + "mlp.up_proj.bias": zeros(c.width),
                      k + "mlp.down_proj.weight": weight(h, c.width, gain=0.3), k + "mlp.down_proj.bias": zeros(h)})
        p.update({"post_layernorm.weight": ones(h), "downsample.weight": weight(c.out, h, c.merge, c.merge), "downsample.bias": zeros(c.out),
                  "merger.proj.weight": weight(c.out, c.out), "merger.post_projection_norm.weight": ones(c.out),
                  "merger.post_projection_norm.bias": zeros(c.out), "merger.gate_proj.weight": weight(c.projection, c.out),
                  "merger.up_proj.weight": weight(c.projection, c.out), "merger.down_proj.weight": weight(c.out, c.projection)})
        self.names = {n: n.replace(".", "_") for n in p}
        for n, v in p.items():
            self.register_parameter(self.names[n], v)
        self.turns = {}
        self.run = {"in": block_in, "out": block_out, "merge": merge_blocks}

    def get(self, *names):
        return [getattr(self, self.names[n]) for n in names]

    def forward(self, x, rows, columns, dtype):
        """x: [N, patches, 1176] -> [N, patches / 4, out]"""
        c = self.c
        if (rows, columns, x.device) not in self.turns:
            self.turns[rows, columns, x.device] = angles(rows, columns, c.hidden // c.heads, c.theta, c.merge, x.device)
        cos, sin = self.turns[rows, columns, x.device]
        w, b = self.get("patch_embed.proj.weight", "patch_embed.proj.bias")
        x = linear(x.to(dtype), w.reshape(c.hidden, -1), b)
        for i in range(c.depth):
            k = f"blocks.{i}."
            q, key, v = self.run["in"](x, *self.get(k + "norm1.weight", k + "attn.qkv.weight", k + "attn.qkv.bias", k + "attn.q_norm.weight",
                                                    k + "attn.k_norm.weight"), cos, sin, c.heads, c.eps)
            x = self.run["out"](x, attend(q, key, v), *self.get(
                k + "attn.proj.weight", k + "attn.proj.bias", k + "norm2.weight", k + "mlp.gate_proj.weight", k + "mlp.gate_proj.bias",
                k + "mlp.up_proj.weight", k + "mlp.up_proj.bias", k + "mlp.down_proj.weight", k + "mlp.down_proj.bias"), c.eps, c.limit)
        return self.run["merge"](x, *self.get(
            "post_layernorm.weight", "downsample.weight", "downsample.bias", "merger.proj.weight", "merger.post_projection_norm.weight",
            "merger.post_projection_norm.bias", "merger.gate_proj.weight", "merger.up_proj.weight", "merger.down_proj.weight"), c.eps, c.limit)
