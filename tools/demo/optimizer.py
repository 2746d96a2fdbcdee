"""Muon for the matrices, AdamW for the rest. Everything that changes from step to step is a tensor, so that a step can be part of a CUDA graph."""
import torch

ADAM_ONLY = ("embed_tokens", "lm_head", "hc_", "conv1d", "mlp_gate_weight", "attn_b_proj", "weights_proj", "ape", "patch_embed", "downsample")
BETAS, EPS = (0.9, 0.98), 1e-10
FUSED = hasattr(torch, "compile")          # old versions have no _foreach operations with a tensor as factor; they only run smoke tests


def is_matrix(name, p):
    return p.dim() >= 2 and not any(s in name for s in ADAM_ONLY)


def times_(tensors, factor):
    if FUSED:
        torch._foreach_mul_(tensors, factor)
    else:
        for t in tensors:
            t.mul_(factor)


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


class Optimizer:
    """step() uses `scale` (of the learning rates) and the bias corrections that set() wrote."""

    def __init__(self, model, muon_lr, adam_lr, momentum=0.95, decay=0.02):
        named = list(model.named_parameters())
        device = named[0][1].device
        self.muon_lr, self.momentum, self.decay = muon_lr, momentum, decay
        self.shapes, self.adam = {}, {}
        for n, p in named:
            if is_matrix(n, p):
                self.shapes.setdefault(tuple(p.shape[-2:]), []).append(p)
            else:
                rate = adam_lr * (0.3 if "_fn" in n else 1.7 if "embed_tokens" in n else 1.0)
                self.adam.setdefault(rate, []).append(p)
        self.decayed = [p for n, p in named if is_matrix(n, p) and "indexer" not in n]     # the indexer waits for its turn undecayed
        self.params = [p for _, p in named]
        self.first = {p: torch.zeros_like(p) for p in self.params}
        self.second = {p: torch.zeros_like(p) for ps in self.adam.values() for p in ps}
        self.scale, self.fix1, self.fix2 = (torch.ones((), device=device) for _ in range(3))

    def set(self, scale, step):
        """Before step number `step` (from 0)."""
        self.scale.fill_(scale)
        self.fix1.fill_(1 / (1 - BETAS[0] ** (step + 1)))
        self.fix2.fill_((1 / (1 - BETAS[1] ** (step + 1))) ** 0.5)

    @torch.no_grad()
    def step(self):
        grads = [p.grad for p in self.params if p.grad is not None]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        times_(grads, 1.0 / norm.clamp(min=1.0))
        for rate, params in self.adam.items():
            self.adam_step([p for p in params if p.grad is not None], rate)
        times_(self.decayed, 1 - self.scale * (self.muon_lr * self.decay))
        for shape, params in self.shapes.items():
            self.muon_step([p for p in params if p.grad is not None], shape)
        for p in self.params:
            p.grad = None
        return norm

    def adam_step(self, params, rate):
        if not params:
            return
        grads, m, v = [p.grad for p in params], [self.first[p] for p in params], [self.second[p] for p in params]
        torch._foreach_mul_(m, BETAS[0])
        torch._foreach_add_(m, grads, alpha=1 - BETAS[0])
        torch._foreach_mul_(v, BETAS[1])
        torch._foreach_addcmul_(v, grads, grads, 1 - BETAS[1])
        below = torch._foreach_sqrt(v)
        times_(below, self.fix2)
        torch._foreach_add_(below, EPS)
        update = torch._foreach_div(m, below)
        times_(update, self.scale * self.fix1 * rate)
        torch._foreach_sub_(params, update)

    def muon_step(self, params, shape):
        if not params:
            return
        grads, m = [p.grad for p in params], [self.first[p] for p in params]
        torch._foreach_mul_(m, self.momentum)
        torch._foreach_add_(m, grads)
        ahead = torch._foreach_mul(m, self.momentum)
        torch._foreach_add_(ahead, grads)
        update = orthogonalise(torch.cat([u.view(-1, *shape) for u in ahead])).float() * (self.scale * (self.muon_lr * 0.2 * max(shape) ** 0.5))
        parts = update.split([p.numel() // (shape[0] * shape[1]) for p in params])
        torch._foreach_sub_(params, [u.reshape(p.shape) for u, p in zip(parts, params)])

    def state_dict(self):
        return {"first": [self.first[p] for p in self.params], "second": [self.second[p] for ps in self.adam.values() for p in ps]}

    def load_state_dict(self, saved):
        for p, s in zip(self.params, saved["first"]):
            self.first[p].copy_(s)
        for p, s in zip([p for ps in self.adam.values() for p in ps], saved["second"]):
            self.second[p].copy_(s)
