"""The front door of facts by rules: what a turn states, what it says about memory, and when two values are the same."""

from __future__ import annotations

from streams.core.facts.extractor import Statement, extract
from streams.core.facts.feedback import Denial, Feedback, feedback
from streams.core.facts.values import normalise, same_value

__all__ = ["Denial", "Feedback", "Statement", "extract", "feedback", "normalise", "same_value"]
