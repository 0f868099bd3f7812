"""Benchmarks: ``mnemolog bench NAME``. Each measures something of ours and something bare side by side in one run.

Figures from a shared machine are noisy: every figure is a median over repeats with its spread, and what counts are
the ratios within a run.
"""
