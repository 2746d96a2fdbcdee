"""Manifold-constrained hyper-connections: the mapping of a site, its Sinkhorn iterations, and the mixing of streams.

Streams are [N, 4, H] in the model dtype. The Sinkhorn runs as one Triton kernel on a GPU (forward and backward);
in plain torch otherwise."""
import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def maps(streams, fn, base, scale, eps, hc_eps):
    """(pre [N, 4], post [N, 4], comb logits [N, 4, 4]), all fp32."""
    n, s, h = streams.shape
    flat = streams.reshape(n, s * h)
    f = flat.float()
    r = torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + eps)
    # the norm is one number a token, so it may follow the product; in bf16 the product runs on the tensor cores
    m = F.linear(flat, fn.to(flat.dtype)).float() * r if flat.dtype != torch.float32 else F.linear(f * r, fn.float())
    pre = torch.sigmoid(m[:, :s] * scale[0] + base[:s]) + hc_eps
    post = 2 * torch.sigmoid(m[:, s:2 * s] * scale[1] + base[s:2 * s])
    comb = (m[:, 2 * s:] * scale[2] + base[2 * s:]).view(n, s, s)
    return pre, post, comb


def collapse(streams, pre):
    return (pre[..., None] * streams.float()).sum(1).to(streams.dtype)


def expand(streams, out, post, comb):
    """Stream s of the next site: post[s] * out + sum over j of comb[j][s] * stream j; rounded once."""
    mixed = post[..., None] * out.float()[:, None, :]
    x = streams.float()
    for j in range(streams.shape[1]):
        mixed = mixed + comb[:, j, :, None] * x[:, j, None, :]
    return mixed.to(streams.dtype)


def sinkhorn_plain(logits, iters, eps):
    c = torch.softmax(logits, -1) + eps
    c = c / (c.sum(-2, keepdim=True) + eps)
    for _ in range(iters - 1):
        c = c / (c.sum(-1, keepdim=True) + eps)
        c = c / (c.sum(-2, keepdim=True) + eps)
    return c


if triton is not None:
    @triton.jit
    def _forward(logits, out, sums, n, eps, ITERS: tl.constexpr, BLOCK: tl.constexpr):
        # sums keeps every divisor: [n, 2 * ITERS - 1, 4]; the backward pass divides its way back with them
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        i = tl.arange(0, 4)
        cell = t[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        ok3 = (t < n)[:, None, None]
        ok2 = (t < n)[:, None]
        a = tl.load(logits + cell, mask=ok3, other=0.0)
        e = tl.exp(a - tl.max(a, axis=2)[:, :, None])
        c = e / tl.sum(e, axis=2)[:, :, None] + eps
        slot = t[:, None] * ((2 * ITERS - 1) * 4) + i[None, :]
        d = tl.sum(c, axis=1) + eps
        tl.store(sums + slot, d, mask=ok2)
        c = c / d[:, None, :]
        for k in range(ITERS - 1):
            d = tl.sum(c, axis=2) + eps
            tl.store(sums + slot + (2 * k + 1) * 4, d, mask=ok2)
            c = c / d[:, :, None]
            d = tl.sum(c, axis=1) + eps
            tl.store(sums + slot + (2 * k + 2) * 4, d, mask=ok2)
            c = c / d[:, None, :]
        tl.store(out + cell, c, mask=ok3)

    @triton.jit
    def _backward(out, grad, sums, grad_logits, n, eps, ITERS: tl.constexpr, BLOCK: tl.constexpr):
        # y = x / d with d = sum(x) + eps:  dx = (dy - sum(dy * y)) / d  and  x = y * d
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        i = tl.arange(0, 4)
        cell = t[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        ok3 = (t < n)[:, None, None]
        ok2 = (t < n)[:, None]
        y = tl.load(out + cell, mask=ok3, other=0.0)
        g = tl.load(grad + cell, mask=ok3, other=0.0)
        slot = t[:, None] * ((2 * ITERS - 1) * 4) + i[None, :]
        for r in range(ITERS - 1):
            k = ITERS - 2 - r
            d = tl.load(sums + slot + (2 * k + 2) * 4, mask=ok2, other=1.0)
            g = (g - tl.sum(g * y, axis=1)[:, None, :]) / d[:, None, :]
            y = y * d[:, None, :]
            d = tl.load(sums + slot + (2 * k + 1) * 4, mask=ok2, other=1.0)
            g = (g - tl.sum(g * y, axis=2)[:, :, None]) / d[:, :, None]
            y = y * d[:, :, None]
        d = tl.load(sums + slot, mask=ok2, other=1.0)
        g = (g - tl.sum(g * y, axis=1)[:, None, :]) / d[:, None, :]
        p = y * d[:, None, :] - eps
        g = p * (g - tl.sum(g * p, axis=2)[:, :, None])
        tl.store(grad_logits + cell, g, mask=ok3)

    class _Sinkhorn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, iters, eps):
            logits = logits.contiguous()
            n = logits.shape[0]
            out = torch.empty_like(logits)
            sums = torch.empty(n, 2 * iters - 1, 4, device=logits.device, dtype=torch.float32)
            _forward[(triton.cdiv(n, 64),)](logits, out, sums, n, eps, ITERS=iters, BLOCK=64, num_warps=2)
            ctx.save_for_backward(out, sums)
            ctx.iters, ctx.eps = iters, eps
            return out

        @staticmethod
        def backward(ctx, grad):
            out, sums = ctx.saved_tensors
            n = out.shape[0]
            result = torch.empty_like(out)
            _backward[(triton.cdiv(n, 64),)](out, grad.contiguous(), sums, result, n, ctx.eps, ITERS=ctx.iters, BLOCK=64, num_warps=2)
            return result, None, None


def sinkhorn(logits, iters, eps):
    """[N, 4, 4] fp32 logits -> nearly doubly stochastic matrices, columns normalised last."""
    if triton is not None and logits.is_cuda and logits.shape[-1] == 4:
        return _Sinkhorn.apply(logits, iters, eps)
    return sinkhorn_plain(logits, iters, eps)
