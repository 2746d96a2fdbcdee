"""Muon for the matrices, AdamW for the rest. Matrices of one shape are orthogonalised together."""
import torch

ADAM_ONLY = ("embed_tokens", "lm_head", "hc_", "conv1d", "mlp_gate_weight", "attn_b_proj", "weights_proj", "ape", "patch_embed", "downsample")


def is_matrix(name, p):
    return p.dim() >= 2 and not any(s in name for s in ADAM_ONLY)


def orthogonalise(g, steps=5):
    """Newton-Schulz of a stack [N, a, b] in bf16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    wide = x.shape[-2] > x.shape[-1]
    if wide:
        x = x.transpose(-1, -2)
    x = x / (x.flatten(1).float().norm(dim=1)[:, None, None].to(x.dtype) + 1e-7)
    for _ in range(steps):
        s = x @ x.transpose(-1, -2)
        x = a * x + (b * s + c * (s @ s)) @ x
    return x.transpose(-1, -2) if wide else x


class Muon:
    def __init__(self, params, lr, momentum=0.95, decay=0.02):
        self.lr, self.momentum, self.decay = lr, momentum, decay
        self.groups = {}
        for p in params:
            self.groups.setdefault(tuple(p.shape[-2:]), []).append(p)
        self.state = {id(p): torch.zeros_like(p) for p in params}

    @torch.no_grad()
    def step(self, scale):
        lr = self.lr * scale
        for shape, params in self.groups.items():
            params = [p for p in params if p.grad is not None]
            if not params:
                continue
            moments, grads = [self.state[id(p)] for p in params], [p.grad for p in params]
            torch._foreach_mul_(moments, self.momentum)
            torch._foreach_add_(moments, grads)
            nesterov = torch._foreach_mul(moments, self.momentum)
            torch._foreach_add_(nesterov, grads)
            update = orthogonalise(torch.cat([u.view(-1, *shape) for u in nesterov])) * (0.2 * max(shape) ** 0.5)
            parts = [u.reshape(p.shape).to(p.dtype) for u, p in zip(update.split([p.numel() // (shape[0] * shape[1]) for p in params]), params)]
            torch._foreach_mul_(params, 1 - lr * self.decay)
            torch._foreach_add_(params, parts, alpha=-lr)

    def state_dict(self):
        return [self.state[id(p)] for ps in self.groups.values() for p in ps]

    def load_state_dict(self, saved):
        for p, s in zip([p for ps in self.groups.values() for p in ps], saved):
            self.state[id(p)].copy_(s)


class Optimizer:
    def __init__(self, model, muon_lr=5e-3, adam_lr=3e-3):
        named = [(n, p) for n, p in model.named_parameters()]
        self.muon = Muon([p for n, p in named if is_matrix(n, p)], muon_lr)
        rest = [(n, p) for n, p in named if not is_matrix(n, p)]
        rate = lambda n: adam_lr * (0.3 if "_fn" in n else 1.7 if "embed_tokens" in n else 1.0)
        groups = [dict(params=[p], lr=rate(n), base=rate(n)) for n, p in rest if rate(n) != adam_lr]
        groups.append(dict(params=[p for n, p in rest if rate(n) == adam_lr], lr=adam_lr, base=adam_lr))
        cuda = next(model.parameters()).is_cuda
        self.adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-10, weight_decay=0.0, **(dict(fused=True) if cuda else {}))
        self.params = [p for _, p in named]

    def step(self, scale):
        grads = [p.grad for p in self.params if p.grad is not None]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        torch._foreach_mul_(grads, (1.0 / norm.clamp(min=1.0)))
        for g in self.adam.param_groups:
            g["lr"] = g["base"] * scale
        self.adam.step()
        self.muon.step(scale)
        for p in self.params:
            p.grad = None
        return norm

    def state_dict(self):
        return {"adam": self.adam.state_dict(), "muon": self.muon.state_dict()}

    def load_state_dict(self, saved):
        self.adam.load_state_dict(saved["adam"])
        self.muon.load_state_dict(saved["muon"])
