"""Kimi delta attention over packed documents: a chunked form in plain torch, and FLA's Triton kernels where they are installed."""
import torch

try:
    import fla.ops.kda.chunk as chunk_module
    from fla.ops.kda.chunk import chunk_kda
    listed = chunk_module.prepare_chunk_indices
except ImportError:
    chunk_kda = None

CHUNK, SUB = 64, 16


def chunked(q, k, v, g, beta, state=None):
    """q, k normalised (q scaled), g the log decay in (-5, 0): all [B, T, H, D] fp32, beta [B, T, H] -> ([B, T, H, V], state [B, H, K, V]).

    A chunk's products need exp(G_i - G_j) with i >= j only. Between sub-blocks of 16 both factors are anchored at the first row of the
    later block, so neither exceeds 1; inside one they are anchored at its middle row, so neither exceeds e^40."""
    b, t, h, d = q.shape
    pad = -t % CHUNK
    if pad:
        q, k, v, g = (torch.cat([x, x.new_zeros(b, pad, *x.shape[2:])], 1) for x in (q, k, v, g))
        beta = torch.cat([beta, beta.new_zeros(b, pad, h)], 1)
    n = (t + pad) // CHUNK
    q, k, v, g = (x.view(b, n, CHUNK, h, -1).permute(0, 3, 1, 2, 4) for x in (q, k, v, g))     # [B, H, n, C, D]
    beta = beta.view(b, n, CHUNK, h).permute(0, 3, 1, 2)[..., None]
    gc = g.cumsum(-2)
    lower = torch.ones(SUB, SUB, dtype=torch.bool, device=q.device).tril()
    kk, qk = [], []
    for a in range(0, CHUNK, SUB):
        rows = slice(a, a + SUB)
        first, middle = gc[..., a:a + 1, :], gc[..., a + SUB // 2:a + SUB // 2 + 1, :]
        left, inner = (gc[..., rows, :] - first).exp(), (gc[..., rows, :] - middle).exp()
        before = k[..., :a, :] * (first - gc[..., :a, :]).exp()
        inside = k[..., rows, :] / inner
        zeros = q.new_zeros(b, h, n, SUB, CHUNK - a - SUB)
        for x, out in ((k, kk), (q, qk)):
            block = x[..., rows, :]
            diag = ((block * inner) @ inside.transpose(-1, -2)).masked_fill(~lower, 0)
            out.append(torch.cat([(block * left) @ before.transpose(-1, -2), diag, zeros], -1))
    kk, p = torch.cat(kk, -2), torch.cat(qk, -2)
    eye = torch.eye(CHUNK, device=q.device)
    system = (beta * kk).tril(-1) + eye
    kg = k * gc.exp()
    u, w = torch.linalg.solve_triangular(system, torch.cat([beta * v, beta * kg], -1), upper=False, unitriangular=True).split([v.shape[-1], d], -1)
    qg, last = q * gc.exp(), gc[..., -1:, :]
    kl = k * (last - gc).exp()
    s = q.new_zeros(b, h, d, v.shape[-1]) if state is None else state
    out = []
    for i in range(n):
        fresh = u[:, :, i] - w[:, :, i] @ s
        out.append(qg[:, :, i] @ s + p[:, :, i] @ fresh)
        s = last[:, :, i].exp().transpose(-1, -2) * s + kl[:, :, i].transpose(-1, -2) @ fresh
    o = torch.stack(out, 2).permute(0, 2, 3, 1, 4).reshape(b, t + pad, h, -1)[:, :t]
    return o, s


def recurrent(q, k, v, g, beta):
    """The definition, token by token, for checks."""
    b, t, h, d = q.shape
    s, out = q.new_zeros(b, h, d, v.shape[-1]), []
    for i in range(t):
        s = g[:, i].exp()[..., None] * s
        seen = (s * k[:, i][..., None]).sum(-2)
        s = s + k[:, i][..., None] * (beta[:, i][..., None] * (v[:, i] - seen))[..., None, :]
        out.append((s * q[:, i][..., None]).sum(-2))
    return torch.stack(out, 1)


def attend(q, k, v, g, beta, layout, plain=False):
    """[N, H, D] of packed documents -> [N, H, V]; q not yet scaled by D^-1/2."""
    scale = q.shape[-1] ** -0.5
    if chunk_kda is not None and q.is_cuda and not plain:
        chunk_module.prepare_chunk_indices = lambda cu, size, cu_seqlens_cpu=None: (
            listed(cu, size, cu_seqlens_cpu=cu_seqlens_cpu) if layout.chunks is None else layout.chunks)
        o, _ = chunk_kda(q=q[None], k=k[None], v=v[None], g=g[None], beta=beta[None], scale=scale, safe_gate=True,
                         disable_recompute=True,
                         cu_seqlens=layout.cu, cu_seqlens_cpu=layout.cpu)
        return o[0]
    rows = [layout.to_rows(x.float()) for x in (q * scale, k, v, g, beta)]
    return layout.from_rows(chunked(*rows)[0]).to(v.dtype)
