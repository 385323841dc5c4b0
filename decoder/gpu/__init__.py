"""Kernels in Triton, each beside its torch twin with the same signature, and the audit that compiles them all.

Nothing in this package but the kernels themselves needs Triton, and nothing outside imports it before a GPU is asked
for. `specqual.decoder.gpu.need.gpu()` says in one line what is missing.
"""
