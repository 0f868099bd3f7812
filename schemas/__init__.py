"""The wire contract of mnemolog, version 1: what a producer or client in any language may rely on.

Types are frozen dataclasses, validated by msgspec and encoded by orjson. Nothing here reads a clock, a
random source or the environment, so the same bytes always decode to the same value.
"""
