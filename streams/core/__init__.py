"""Pure memory: no clock, no randomness, no environment, no IO. Same events, same state, byte for byte."""
