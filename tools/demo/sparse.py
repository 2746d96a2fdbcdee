"""Attention of the sparse layers: dense and causal, over what the indexer selects, and the indexer's own loss.

Packed form: q, k, v [N, heads, D]. Row form, for documents of one length: [B, T, heads, D]."""
import torch
import torch.nn.functional as F

from norms import layer_norm, linear

BLOCK = 1024                              # queries at a time in the row form


def dense(q, k, v, cu, longest):
    """Causal attention inside each document: the flash kernel on a GPU, document by document elsewhere."""
    scale = q.shape[-1] ** -0.5
    if q.is_cuda:
        return torch.ops.aten._flash_attention_forward(q, k, v, cu, cu, longest, longest, 0.0, True, False, scale=scale)[0]
    out, edges = [], cu.tolist()
    for a, b in zip(edges, edges[1:]):
        s = torch.einsum("qhd,khd->hqk", q[a:b], k[a:b]) * scale
        later = torch.ones(b - a, b - a, dtype=torch.bool).triu(1)
        out.append(torch.einsum("hqk,khd->qhd", torch.softmax(s.masked_fill(later, float("-inf")), -1), v[a:b]))
    return torch.cat(out)


def dense_parts(q, k, v, layout):
    """dense() for the short documents and for the long ones, apart: a launch is as large as its longest document."""
    parts = layout.parts()
    if len(parts) == 1:
        return dense(q, k, v, *parts[0][2:])
    cut = [parts[0][1], layout.n - parts[0][1]]
    pieces = zip(*(t.split(cut) for t in (q, k, v)))
    return torch.cat([dense(*piece, *part[2:]) for piece, part in zip(pieces, parts)])


def pool_keys(ik, ig, ape, pool):
    """[B, T, D] -> [B, T // pool, D]: a softmax over the members of a pool, a channel at a time."""
    b, t, d = ik.shape
    p = t // pool
    ik, ig = ik[:, :p * pool].view(b, p, pool, d), ig[:, :p * pool].view(b, p, pool, d)
    alpha = torch.softmax(ig.float() + ape.float(), 2)
    return (alpha * ik.float()).sum(2).to(ik.dtype)


def project(x, qr, p, c):
    """The indexer's inputs for tokens x [..., H] and query latents qr: iq, ik, ig, head weights."""
    iq = linear(qr, p["wq_b.weight"]).unflatten(-1, (c.index_heads, c.index_dim))
    ik = layer_norm(linear(x, p["wk.weight"]), p["k_norm.weight"], p["k_norm.bias"], 1e-6)
    ig = linear(x, p["index_kpool_compress_gate"])
    w = F.linear(x.float(), p["weights_proj.weight"].float()) * c.index_heads ** -0.5
    return iq, ik, ig, w


def scores(iq, w, pk):
    """[B, Q, heads, D], [B, Q, heads], [B, P, D] -> [B, Q, P] fp32."""
    total = None
    for h in range(iq.shape[2]):
        part = w[:, :, h, None].float() * F.relu((iq[:, :, h] @ pk.transpose(1, 2)).float() * iq.shape[-1] ** -0.5)
        total = part if total is None else total + part
    return total


def allowed(iq, w, pk, at, length, topk, pool):
    """Which tokens the queries at positions `at` may attend to: bool [B, Q, length]."""
    pools = pk.shape[1]
    mask = torch.zeros(iq.shape[0], len(at), length, dtype=torch.bool, device=iq.device)
    last = torch.arange(pools, device=iq.device) * pool + pool - 1
    visible = last[None] <= at[:, None]
    if pools:
        s = scores(iq, w, pk).masked_fill(~visible[None], float("-inf"))
        keep = min(topk // pool, pools)
        best = torch.zeros_like(s, dtype=torch.bool).scatter_(-1, s.topk(keep, -1).indices, True) & visible[None]
        mask[:, :, :pools * pool] = best[..., None].expand(*best.shape, pool).flatten(-2)
    token = torch.arange(length, device=iq.device)
    n = at + 1
    tail = (token[None] >= (n - n % pool)[:, None]) & (token[None] <= at[:, None])
    return mask | tail[None]


def selected(q, k, v, iq, w, pk, topk, pool, choose="indexer"):
    """Row form of sparse attention. choose: indexer, recent (the last topk tokens) or all: what the selection is worth."""
    b, t, h, d = q.shape
    out = []
    for r in range(0, t, BLOCK):
        end = min(t, r + BLOCK)
        at = torch.arange(r, end, device=q.device)
        token = torch.arange(end, device=q.device)
        if choose == "indexer" and end > topk:
            with torch.no_grad():
                mask = allowed(iq[:, r:end], w[:, r:end], pk[:, :end // pool], at, end, topk, pool)
        else:
            mask = (token[None] <= at[:, None])[None]
            if choose == "recent":
                mask = mask & (token[None] > (at - topk)[:, None])[None]
        s = torch.einsum("bqhd,bkhd->bhqk", q[:, r:end], k[:, :end]).float() * d ** -0.5
        p = torch.softmax(s.masked_fill(~mask[:, None], float("-inf")), -1).to(v.dtype)
        p = p.masked_fill(~mask[:, None], 0)
        out.append(torch.einsum("bhqk,bkhd->bqhd", p, v[:, :end]))
    return torch.cat(out, 1)


def distill(q, k, iq, ik, ig, w, ape, at, pool):
    """KL from the attention's mass over pools to the indexer's softmax, for the queries at `at`, one row [T, ...] each.

    q [B, Q, heads, D] and iq, w are those of the queries; k, ik, ig of the whole rows; at [B, Q]."""
    b, t = k.shape[:2]
    pools = t // pool
    with torch.no_grad():
        s = torch.einsum("bqhd,bkhd->bhqk", q, k).float() * q.shape[-1] ** -0.5
        s = s.masked_fill((torch.arange(t, device=q.device)[None, None] > at[..., None])[:, None], float("-inf"))
        mass = torch.softmax(s, -1).mean(1)[..., :pools * pool].unflatten(-1, (pools, pool)).sum(-1)
        visible = (torch.arange(pools, device=q.device) * pool + pool - 1)[None, None] <= at[..., None]
        mass = mass * visible
        total = mass.sum(-1, keepdim=True)
        target = mass / total.clamp(min=1e-9)
    guess = scores(iq, w, pool_keys(ik, ig, ape, pool)).masked_fill(~visible, float("-inf"))
    guess = torch.log_softmax(guess, -1).masked_fill(~visible, 0)
    kl = (target * (target.clamp(min=1e-9).log() - guess)).sum(-1)
    weight = (total[..., 0] > 1e-3) & (at >= pool)
    return (kl * weight).sum() / weight.sum().clamp(min=1)
