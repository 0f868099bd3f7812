"""Facts that users state about themselves, found by rules in Chinese and English; pure functions of text and time."""
