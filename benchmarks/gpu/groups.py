"""Which kernels belong together, by their names; this needs neither a GPU nor Triton."""

from collections.abc import Mapping

GROUPS = {
    "linear": ("fp8_kernel", "nvfp4_kernel", "dense_kernel", "rows_kernel", "block_kernel", "quantise_kernel"),
    "attention": ("attention_kernel", "gather_kernel", "heads_kernel"),
    "recurrence": ("recurrence_kernel", "convolution_kernel", "head_kernel", "gated_norm_kernel"),
    "selector and block convolution": ("selector_kernel", "groups_kernel", "pick_kernel", "block_convolution_kernel"),
    "judging": ("argmax_kernel", "matched_kernel", "judge_kernel", "law_kernel", "draw_kernel"),
    "norms, gates, embedding": ("norm_kernel", "gated_kernel", "embedding_kernel"),
    "copies": ("Memcpy", "Memset"),
}
"""Kernels by parts of their names; the first group that fits, read from the longest name to the shortest."""


def grouped(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Seconds by group; what no group knows is "other"."""
    sums = dict.fromkeys((*GROUPS, "other"), 0.0)
    for name, told in found.items():
        sums[group_of(name)] += told["seconds"]
    return {name: seconds for name, seconds in sums.items() if seconds}


def group_of(kernel: str) -> str:
    """The group with the longest part of a name that fits: block_convolution_kernel is no convolution_kernel."""
    fits = [(len(part), group) for group, parts in GROUPS.items() for part in parts if part in kernel]
    return max(fits)[1] if fits else "other"
