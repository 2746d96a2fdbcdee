"""glm5_next in PyTorch: text tower, MTP block and vision tower over packed documents, for training and for checks.

A layer is cut where a kernel of its own runs (KDA, attention, Sinkhorn): what lies between are pure functions of tensors,
the same code for every layer, so that torch.compile builds each of them once."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import hyper
import kda
import sparse
from norms import gated_norm, l2_norm, linear, rms_norm, swiglu
from vision import Vision, weight


# --- the functions between the kernels -----------------------------------------------------------------------------

def enter(state, hc, norm, eps, hc_eps):
    """Leaves the last site and enters the next: (streams, what the sub-layer sees, post, comb logits)."""
    streams = hyper.expand(*state)
    pre, post, comb = hyper.maps(streams, *hc, eps, hc_eps)
    return streams, rms_norm(hyper.collapse(streams, pre), norm, eps), post, comb


def kda_in(state, pos, hc, norm, q_proj, k_proj, v_proj, q_conv, k_conv, v_conv, f_a, f_b, dt_bias, a_log, b_proj, g_a, g_b,
           heads, bound, eps, hc_eps):
    streams, x, post, comb = enter(state, hc, norm, eps, hc_eps)
    n = x.shape[0]
    u = linear(x, torch.cat([q_proj, k_proj, v_proj]))
    taps = torch.cat([q_conv, k_conv, v_conv])[:, 0]
    width = taps.shape[1]
    padded = F.pad(u, (0, 0, width - 1, 0))
    y = 0
    for j in range(width):
        back = width - 1 - j
        tap = padded[j:j + n].float() * taps[:, j].float()
        y = y + (tap if back == 0 else tap * (pos >= back)[:, None])
    y = F.silu(y).to(x.dtype)
    q, k, v = y.view(n, 3, heads, -1).unbind(1)
    q, k = l2_norm(q).to(x.dtype), l2_norm(k).to(x.dtype)
    beta = torch.sigmoid(linear(x, b_proj)).float()
    a = linear(linear(x, f_a), f_b).float() + dt_bias
    g = bound * torch.sigmoid(a_log.exp()[:, None] * a.view(n, heads, -1))
    gate = linear(linear(x, g_a), g_b).view(n, heads, -1)
    return streams, post, comb, q, k, v.contiguous(), g, beta, gate


def dense_ffn(x, gate, up, down, limit):
    return linear(swiglu(linear(x, gate), linear(x, up), limit), down)


def route(x, router, bias, per_token, scale):
    """(weights [N, experts] fp32 with zeros where not chosen, chosen mask)"""
    s = torch.sigmoid(F.linear(x.float(), router.float()))
    c = (s + bias).detach()
    chosen = (c[:, None, :] > c[:, :, None]).sum(-1) < per_token          # rank by counting: fuses, and 16 experts are few
    w = s * chosen
    return w / (w.sum(-1, keepdim=True) + 1e-20) * scale, chosen


def moe(x, router, bias, gate, up, down, shared_gate, shared_up, shared_down, per_token, scale, limit):
    """Every expert computes every token: with 16 experts of 80 that is cheaper than sorting. Weights enter before down_proj."""
    w, chosen = route(x, router, bias, per_token, scale)
    e, width, h = gate.shape
    act = swiglu(linear(x, torch.cat([gate.reshape(-1, h), shared_gate])), linear(x, torch.cat([up.reshape(-1, h), shared_up])), limit)
    routed = (act[:, :e * width].view(-1, e, width).float() * w[..., None]).to(x.dtype).view(-1, e * width)
    all_down = torch.cat([down.permute(1, 0, 2).reshape(h, -1), shared_down], 1)
    return linear(torch.cat([routed, act[:, e * width:]], 1), all_down), chosen.float().sum(0)


def kda_out(o, gate, streams, post, comb, o_norm, o_proj, hc, norm, ffn, sparse_ffn, options, eps, hc_eps):
    z = linear(gated_norm(o, gate, o_norm, eps).flatten(1), o_proj)
    return ffn_site((streams, z, post, comb), hc, norm, ffn, sparse_ffn, options, eps, hc_eps)


def ffn_site(state, hc, norm, ffn, sparse_ffn, options, eps, hc_eps):
    streams, x, post, comb = enter(state, hc, norm, eps, hc_eps)
    if sparse_ffn:
        y, load = moe(x, *ffn, *options)
    else:
        y, load = dense_ffn(x, *ffn, options[-1]), None
    return streams, y, post, comb, load


def attention_inputs(x, q_a, q_a_norm, q_b, kv_a, kv_a_norm, kv_b, heads, qk, eps):
    qr = rms_norm(linear(x, q_a), q_a_norm, eps)
    q = linear(qr, q_b).unflatten(-1, (heads, -1))
    k, v = linear(rms_norm(linear(x, kv_a), kv_a_norm, eps), kv_b).unflatten(-1, (heads, -1)).split([qk, kv_b.shape[0] // heads - qk], -1)
    return q, k.contiguous(), v.contiguous(), qr


def dsa_in(state, hc, norm, attention, heads, qk, eps, hc_eps):
    streams, x, post, comb = enter(state, hc, norm, eps, hc_eps)
    return (streams, post, comb, x) + attention_inputs(x, *attention, heads, qk, eps)


def dsa_out(o, streams, post, comb, o_proj, hc, norm, ffn, sparse_ffn, options, eps, hc_eps):
    z = linear(o.flatten(1), o_proj)
    return ffn_site((streams, z, post, comb), hc, norm, ffn, sparse_ffn, options, eps, hc_eps)


def leave(state, norm, eps):
    streams = hyper.expand(*state)
    return rms_norm(streams.float().mean(1).to(streams.dtype), norm, eps)


def mtp_in(e, h, keep, enorm, hnorm, eh_proj, norm, attention, heads, qk, eps):
    e = rms_norm(e * keep[:, None].to(e.dtype), enorm, eps)
    x = linear(torch.cat([e, rms_norm(h, hnorm, eps)], -1), eh_proj)
    y = rms_norm(x, norm, eps)
    return (x, y) + attention_inputs(y, *attention, heads, qk, eps)


def mtp_out(x, o, o_proj, norm, ffn, options, head_norm, eps):
    x = x + linear(o.flatten(1), o_proj)
    y, load = moe(rms_norm(x, norm, eps), *ffn, *options)
    return rms_norm(x + y, head_norm, eps), load


def losses(h, lm_head, targets, weights):
    """Sum of weighted cross entropies, and whether each argmax is right."""
    logits = linear(h, lm_head).float()
    top = logits.detach().argmax(-1)
    peak = logits.detach().amax(-1, keepdim=True)
    lse = (logits - peak).exp().sum(-1).log() + peak[:, 0]
    ce = lse - logits.gather(1, targets[:, None])[:, 0]
    return (ce * weights).sum(), top == targets


FUNCTIONS = dict(kda_in=kda_in, kda_out=kda_out, dsa_in=dsa_in, dsa_out=dsa_out, leave=leave, mtp_in=mtp_in, mtp_out=mtp_out, losses=losses)


# --- the model -----------------------------------------------------------------------------------------------------

INDEXER = ("wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight", "index_kpool_compress_gate",
           "index_kpool_compress_ape")


class Lookup(torch.autograd.Function):
    """An embedding whose backward pass adds in fp32 and never asks the host for a size."""

    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table.index_select(0, ids)

    @staticmethod
    def backward(ctx, grad):
        ids, = ctx.saved_tensors
        return torch.zeros(ctx.shape, device=grad.device).index_add_(0, ids, grad.float()), None


class Layer(nn.Module):
    """Parameters under the checkpoint's names; experts stacked."""

    def __init__(self, c, dsa, sparse_ffn, mtp=False):
        super().__init__()
        h = c.hidden
        ones = lambda n: nn.Parameter(torch.ones(n))
        p = {"input_layernorm.weight": ones(h), "post_attention_layernorm.weight": ones(h)}
        a = "self_attn."
        if dsa:
            p.update({a + "q_a_proj.weight": weight(c.q_rank, h), a + "q_a_layernorm.weight": ones(c.q_rank),
                      a + "q_b_proj.weight": weight(c.heads * c.qk, c.q_rank), a + "kv_a_proj_with_mqa.weight": weight(c.kv_rank, h),
                      a + "kv_a_layernorm.weight": ones(c.kv_rank), a + "kv_b_proj.weight": weight(c.heads * (c.qk + c.v), c.kv_rank),
                      a + "o_proj.weight": weight(h, c.heads * c.v, gain=0.3)})
            i = a + "indexer."
            p.update({i + "wq_b.weight": weight(c.index_heads * c.index_dim, c.q_rank), i + "wk.weight": weight(c.index_dim, h),
                      i + "k_norm.weight": ones(c.index_dim), i + "k_norm.bias": nn.Parameter(torch.zeros(c.index_dim)),
                      i + "weights_proj.weight": weight(c.index_heads, h), i + "index_kpool_compress_gate": weight(c.index_dim, h),
                      i + "index_kpool_compress_ape": nn.Parameter(torch.zeros(c.pool, c.index_dim))})
        else:
            n = c.kda_heads * c.kda_dim
            for x in "qkv":
                p[f"{a}{x}_proj.weight"] = weight(n, h)
                p[f"{a}{x}_conv1d.weight"] = nn.Parameter(torch.randn(n, 1, c.conv) * 0.1 + torch.tensor([0.0] * (c.conv - 1) + [0.7]))
            # half of the channels of a head keep for thousands of tokens, the other half for one to a hundred
            low, high = torch.empty(c.kda_heads, c.kda_dim // 2).uniform_(-9.2, -5.3), torch.empty(c.kda_heads, c.kda_dim // 2).uniform_(-4.6, 0)
            rate = torch.cat([low, high], 1).exp() / 5
            p.update({a + "f_a_proj.weight": weight(c.kda_dim, h), a + "f_b_proj.weight": weight(n, c.kda_dim, gain=0.3),
                      a + "dt_bias": nn.Parameter((rate / (1 - rate)).log().flatten()), a + "A_log": nn.Parameter(torch.zeros(c.kda_heads)),
                      a + "b_proj.weight": weight(c.kda_heads, h), a + "g_a_proj.weight": weight(c.kda_dim, h),
                      a + "g_b_proj.weight": weight(n, c.kda_dim), a + "o_norm.weight": ones(c.kda_dim),
                      a + "o_proj.weight": weight(h, n, gain=0.3)})
        m = "mlp."
        if sparse_ffn:
            p.update({m + "gate.weight": weight(c.experts, h), m + "experts.gate_proj": weight(c.experts, c.expert_width, h, gain=c.expert_width ** 0.5),
                      m + "experts.up_proj": weight(c.experts, c.expert_width, h, gain=c.expert_width ** 0.5),
                      m + "experts.down_proj": weight(c.experts, h, c.expert_width, gain=0.3 * h ** 0.5)})
            w = c.expert_width * c.shared
            p.update({m + "shared_experts.gate_proj.weight": weight(w, h), m + "shared_experts.up_proj.weight": weight(w, h),
                      m + "shared_experts.down_proj.weight": weight(h, w, gain=0.3)})
            self.register_buffer("mlp_gate_e_score_correction_bias", torch.zeros(c.experts))
        else:
            p.update({m + "gate_proj.weight": weight(c.dense_width, h), m + "up_proj.weight": weight(c.dense_width, h),
                      m + "down_proj.weight": weight(h, c.dense_width, gain=0.3)})
        if mtp:
            p.update({"eh_proj.weight": weight(h, 2 * h), "enorm.weight": ones(h), "hnorm.weight": ones(h), "shared_head.norm.weight": ones(h)})
        else:
            s = c.hc
            for site in ("attn", "ffn"):
                near_identity = torch.where(torch.eye(s) > 0, torch.tensor(3.0), torch.tensor(-1.0)) + 0.2 * torch.randn(s, s)
                base = torch.cat([-1.1 + 0.3 * torch.randn(s), 0.3 * torch.randn(s), near_identity.flatten()])
                p.update({f"hc_{site}_fn": nn.Parameter(torch.randn(2 * s + s * s, s * h) * 0.01), f"hc_{site}_base": nn.Parameter(base),
                          f"hc_{site}_scale": nn.Parameter(torch.full((3,), 0.5))})
        self.names = {n: n.replace(".", "_") for n in p}
        if sparse_ffn:
            self.names[m + "gate.e_score_correction_bias"] = "mlp_gate_e_score_correction_bias"
        for n, v in p.items():
            self.register_parameter(self.names[n], v)
        self.dsa, self.sparse_ffn = dsa, sparse_ffn

    def get(self, *names):
        return [getattr(self, self.names[n]) for n in names]

    def hc(self, site):
        return self.get(f"hc_{site}_fn", f"hc_{site}_base", f"hc_{site}_scale")

    def attention(self):
        return self.get(*("self_attn." + n for n in ("q_a_proj.weight", "q_a_layernorm.weight", "q_b_proj.weight", "kv_a_proj_with_mqa.weight",
                                                     "kv_a_layernorm.weight", "kv_b_proj.weight")))

    def indexer(self):
        return {n: getattr(self, self.names["self_attn.indexer." + n]) for n in INDEXER}

    def ffn(self):
        if not self.sparse_ffn:
            return self.get("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight")
        return self.get("mlp.gate.weight", "mlp.gate.e_score_correction_bias", "mlp.experts.gate_proj", "mlp.experts.up_proj",
                        "mlp.experts.down_proj", "mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight",
                        "mlp.shared_experts.down_proj.weight")


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Parameter(torch.randn(c.vocab, c.hidden) * 0.3)
        self.norm = nn.Parameter(torch.ones(c.hidden))
        self.lm_head = nn.Parameter(torch.randn(c.vocab, c.hidden) * 0.02)
        self.layers = nn.ModuleList([Layer(c, c.dsa[i], c.sparse[i]) for i in range(c.layers)])
        self.mtp = Layer(c, True, True, mtp=True) if c.mtp else None
        self.visual = Vision(c.vision) if c.vision else None
        self.run = dict(FUNCTIONS)
        self.choose = "indexer"              # or recent, all: see sparse.selected

    def compile(self):
        """Compiles what lies between the kernels."""
        make = lambda f: torch.compile(f, dynamic=False)
        self.run = {k: make(f) for k, f in FUNCTIONS.items()}
        if self.visual is not None:
            self.visual.run = {k: make(f) for k, f in self.visual.run.items()}

    def embed(self, ids, features=None, at=None, dtype=torch.float32):
        """features [M, H] overwrite the rows `at` (N and beyond: padding, dropped)."""
        x = Lookup.apply(self.embed_tokens, ids).to(dtype)
        if features is None:
            return x
        spare = torch.cat([x, x.new_zeros(1, x.shape[1])])
        return spare.index_copy(0, at.clamp(max=len(ids)), features.to(dtype))[:len(ids)]

    def options(self):
        return (self.c.per_token, self.c.expert_scale, self.c.limit)

    def attend(self, layer, q, k, v, x, qr, layout, mode, want=None):
        """mode: dense; sparse (documents from layout.long_start on, all of one length, attend to what is selected); rows (every document,
        padded to the longest, plain torch). want: (at [rows, Q]) asks for the indexer's loss at these positions of the long rows."""
        c, kl = self.c, None
        rows = lambda y: y[layout.long_start:].unflatten(0, (-1, layout.long_len))
        if want is not None:
            p = layer.indexer()
            batch = torch.arange(want.shape[0], device=want.device)[:, None]
            xd, qd = rows(x.detach()), rows(qr.detach())[batch, want]
            iq, _, _, w = sparse.project(xd[batch, want], qd, p, c)
            ik = sparse.layer_norm(linear(xd, p["wk.weight"]), p["k_norm.weight"], p["k_norm.bias"], 1e-6)
            ig = linear(xd, p["index_kpool_compress_gate"])
            kl = sparse.distill(rows(q.detach())[batch, want], rows(k.detach()), iq, ik, ig, w, p["index_kpool_compress_ape"], want, c.pool)
        if mode == "dense":
            return sparse.dense_parts(q, k, v, layout), kl
        with torch.no_grad():
            p = layer.indexer()
            if mode == "sparse":
                parts = [rows(t) for t in (x, qr)]
            else:
                parts = [layout.to_rows(t) for t in (x, qr)]
            iq, ik, ig, w = sparse.project(*parts, p, c)
            pk = sparse.pool_keys(ik, ig, p["index_kpool_compress_ape"], c.pool)
        if mode == "sparse":
            s = layout.long_start
            (qs, ql), (ks, kk), (vs, vl) = (t.split([s, layout.n - s]) for t in (q, k, v))
            long = [t.unflatten(0, (-1, layout.long_len)) for t in (ql, kk, vl)]
            tail = sparse.selected(*long, iq, w, pk, c.topk, c.pool, self.choose).flatten(0, 1)
            return (tail if s == 0 else torch.cat([sparse.dense(qs, ks, vs, *layout.parts()[0][2:]), tail])), kl
        o = sparse.selected(*(layout.to_rows(t) for t in (q, k, v)), iq, w, pk, c.topk, c.pool, self.choose)
        return layout.from_rows(o), kl

    def forward(self, x, layout, mode="dense", want=None, keep=None):
        """x [N, H] embeddings -> (h [N, H] after the final norm, expert loads, indexer losses). keep: list that receives the streams."""
        c, run, n = self.c, self.run, x.shape[0]
        options, loads, kls = self.options(), [], []
        mixing = torch.eye(c.hc, device=x.device).expand(n, c.hc, c.hc).contiguous()
        nothing = [torch.zeros_like(x), torch.zeros(n, c.hc, device=x.device), mixing]
        if torch.is_grad_enabled():
            nothing = [t.requires_grad_() for t in nothing]          # as in the other layers, so that one compiled function serves all
        state = (x[:, None].expand(n, c.hc, c.hidden).contiguous(), *nothing)
        for layer in self.layers:
            norm1, norm2 = layer.get("input_layernorm.weight", "post_attention_layernorm.weight")
            if layer.dsa:
                streams, post, comb, y, q, k, v, qr = run["dsa_in"](state, layer.hc("attn"), norm1, layer.attention(), c.heads, c.qk, c.eps, c.hc_eps)
                mixing = hyper.sinkhorn(comb, c.sinkhorn, c.hc_eps)
                o, kl = self.attend(layer, q, k, v, y, qr, layout, mode, want)
                kls.append(kl)
                out = run["dsa_out"](o, streams, post, mixing, *layer.get("self_attn.o_proj.weight"), layer.hc("ffn"), norm2, layer.ffn(),
                                     layer.sparse_ffn, options, c.eps, c.hc_eps)
            else:
                a = "self_attn."
                streams, post, comb, q, k, v, g, beta, gate = run["kda_in"](
                    state, layout.pos, layer.hc("attn"), norm1, *layer.get(*(a + s for s in (
                        "q_proj.weight", "k_proj.weight", "v_proj.weight", "q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight",
                        "f_a_proj.weight", "f_b_proj.weight", "dt_bias", "A_log", "b_proj.weight", "g_a_proj.weight", "g_b_proj.weight"))),
                    c.kda_heads, c.bound, c.eps, c.hc_eps)
                mixing = hyper.sinkhorn(comb, c.sinkhorn, c.hc_eps)
                o = kda.attend(q, k, v, g, beta, layout)
                out = run["kda_out"](o, gate, streams, post, mixing, *layer.get(a + "o_norm.weight", a + "o_proj.weight"), layer.hc("ffn"), norm2,
                                     layer.ffn(), layer.sparse_ffn, options, c.eps, c.hc_eps)
            *state, load = out
            state[3] = hyper.sinkhorn(state[3], c.sinkhorn, c.hc_eps)
            state = tuple(state)
            if load is not None:
                loads.append(load)
            if keep is not None:
                keep.append(hyper.expand(*state))
        return run["leave"](state, self.norm, c.eps), loads, kls

    def draft(self, h, following, layout, mode="dense", want=None):
        """The MTP block on rows t with the embeddings of the next tokens: (h' [N, H], expert load, indexer loss)."""
        c, layer = self.c, self.mtp
        norm1, norm2 = layer.get("input_layernorm.weight", "post_attention_layernorm.weight")
        x, y, q, k, v, qr = self.run["mtp_in"](following, h, layout.pos > 0, *layer.get("enorm.weight", "hnorm.weight", "eh_proj.weight"), norm1,
                                               layer.attention(), c.heads, c.qk, c.eps)
        o, kl = self.attend(layer, q, k, v, y, qr, layout, mode, want)
        h, load = self.run["mtp_out"](x, o, *layer.get("self_attn.o_proj.weight"), norm2, layer.ffn(), self.options(),
                                      *layer.get("shared_head.norm.weight"), c.eps)
        return h, load, kl
