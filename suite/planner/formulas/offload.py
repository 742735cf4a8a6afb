"""States in host memory: what crosses PCIe in a step or an iteration, and how fast a host updates."""

from __future__ import annotations

from suite.planner.formulas.blocks import Numbers

#: A host's Adam is bound by its memory: 16 bytes read and 14 written per parameter at about 100 GB/s a socket pair,
#: shared by eight devices (Ren et al., "ZeRO-Offload", arXiv 2101.06840, section 5.1 and table 4).
HOST_ADAM_BYTES = 30
HOST_MEMORY_BYTES_PER_SECOND = 100e9 / 8
#: Gradients down and weights up in 16 bit (arXiv 2101.06840, section 4.1), or both in fp32 (megatron-core's
#: HybridDeviceOptimizer, which is given fp32 shards).
ZERO_LINK_BYTES, MEGATRON_LINK_BYTES = 4, 8


def optimizer_seconds(parameters: Numbers, link_bytes: Numbers, host_link: Numbers) -> Numbers:
    """Step of an offloaded optimizer on one device's share: gradients down, Adam on the host, weights up."""
    return parameters * (link_bytes / host_link + HOST_ADAM_BYTES / HOST_MEMORY_BYTES_PER_SECOND)


def fetch_seconds(parameters: Numbers, host_link: Numbers) -> Numbers:
    """Fetching offloaded 16-bit weights once (arXiv 2104.07857, section 5.1.2: every device brings its own share)."""
    return 2 * parameters / host_link


#: A reference that waits in host memory (CarperAI/trlx at 3340c2f3, modeling_nemo_ppo.py, lines 182 and 228 to 244):
#: the policy's 16-bit weights go out, the reference's fp32 weights come in, and the policy's come back.
SWAP_BYTES = 2 + 4 + 2
#: Both copies stay in pinned host memory between iterations: the reference in fp32, the policy in 16 bit.
SWAP_HOST_BYTES = 4 + 2
#: Each pass casts the fp32 weights to 16 bit: read and written.
CAST_BYTES = 4 + 2


def swap_seconds(parameters: Numbers, host_link: Numbers) -> Numbers:
    """Moving policy and reference between host and device in one iteration, one copy after the other."""
    return SWAP_BYTES * parameters / host_link
