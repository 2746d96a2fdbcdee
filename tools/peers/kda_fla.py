"""Times flash-linear-attention's KDA kernels on the shapes of bench/cuda/kda.cu, for a comparison in the same run.

    python3 tools/peers/kda_fla.py CHECKOUT

CHECKOUT holds that project's package `fla`, with its layers and models left out and the __init__ files of fla, fla/ops and
fla/modules emptied (they import all of it). Log gates and betas are given activated: the gate kernel's time is left out, in
the peer's favour. Decode is the recurrence with the convolution update and the gated norm, captured as one graph.
"""

import statistics
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, sys.argv[1])

from fla.modules.convolution import causal_conv1d_update  # noqa: E402
from fla.modules.fused_norm_gate import rms_norm_gated  # noqa: E402
from fla.ops.kda.chunk import chunk_kda  # noqa: E402
from fla.ops.kda.fused_recurrent import fused_recurrent_kda  # noqa: E402

HEADS, SIZE = 64, 128


def median_us(call, replays=15):
    """Median of replays of a captured graph of one call."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            call()
        times = []
        for i in range(replays + 3):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            if i >= 3:
                times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def rows(count):
    shape = (1, count, HEADS, SIZE)
    make = lambda: torch.randn(shape, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    gate = -5 * torch.sigmoid(torch.randn(shape, device="cuda"))
    beta = torch.sigmoid(torch.randn(shape[:3], device="cuda")).bfloat16()
    return make(), make(), make(), gate, beta


def decode(batch):
    q, k, v, g, beta = (x.view(batch, 1, *x.shape[2:]) for x in rows(batch))
    channels = 3 * HEADS * SIZE
    state = torch.randn(batch, HEADS, SIZE, SIZE, device="cuda")
    raw = torch.randn(batch, 1, channels, device="cuda", dtype=torch.bfloat16)
    cache = torch.randn(batch, channels, 4, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(channels, 4, device="cuda", dtype=torch.bfloat16)
    norm, gate = torch.ones(SIZE, device="cuda"), torch.randn_like(v)

    def recurrence():
        return fused_recurrent_kda(q, k, v, g, beta, initial_state=state, output_final_state=True,
                                   use_qk_l2norm_in_kernel=True)[0]

    def whole():
        causal_conv1d_update(raw, cache, weight=weight, activation="silu")
        rms_norm_gated(recurrence(), gate, norm, None, "sigmoid")

    print(f"fla decode B {batch} H {HEADS}: recurrence {median_us(recurrence):.2f} us, "
          f"with convolution and norm {median_us(whole):.2f} us", flush=True)


def prefill(name, lengths):
    q, k, v, g, beta = rows(sum(lengths))
    starts = F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to("cuda")
    state = torch.zeros(len(lengths), HEADS, SIZE, SIZE, device="cuda")
    several = len(lengths) > 1

    def call():
        chunk_kda(q, k, v, g, beta, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True,
                  cu_seqlens=starts if several else None)

    # Launch parameters come from the host's copy of the lengths, so a ragged call can't be captured: events around calls.
    with torch.no_grad():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        times = []
        for _ in range(15):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1000)
    print(f"fla prefill {name} H {HEADS}: {statistics.median(times):.2f} us", flush=True)


if __name__ == "__main__":
    for batch in (8, 32, 128, 256):
        decode(batch)
    prefill("N 1 T 8192", [8192])
    prefill("20 x 410", [410] * 20)
