"""Extraction by a chat model: asked once, repaired once, else the rules; within a budget of each owner and day.

Invariant: never raises but for cancellation, so a model can neither block nor poison a segment. What it costs, how long
it took and why the rules had to step in are in the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from connectors.ports import ChatModel, Clock, Completion
from connectors.settings import Settings
from schemas.memories import FactStatement, Judgement
from streams.asking import FALLBACK_CHARACTERS_MAX, Asker, Unanswered
from streams.core import extracting, modelfacts
from streams.core.budget import DAY_MS, Budget
from streams.core.conversation import OwnerKey
from streams.core.extracting import Extraction
from streams.core.facts.values import normalise
from streams.core.summaries import CHARACTERS_MIN, Utterance
from streams.core.text import language
from streams.extraction import Extracted, Job, known_of

log = structlog.get_logger("memory")

EXTRACTION_S_MAX = 20.0
"""For an answer and as much again for a repair: facts are there 5 to 30 s after a segment closes (PME)."""
AWAY_MS = 30_000
"""How long the rules do all once the model could not be reached, before it is asked again."""
RULE = "model"


class ModelExtraction:
    """``extraction.Model`` over a chat model."""

    def __init__(self, model: ChatModel, settings: Settings, clock: Clock) -> None:
        self._model = model
        self._settings = settings
        self._clock = clock
        self.budget = Budget(settings.model_tokens_per_owner_day)
        self._asker = Asker(model, settings, self.budget)
        self.in_flight = 0
        self._away_until_ms = 0
        """Until when the model is taken to be away: every segment would wait for it in vain."""

    def spent(self, key: OwnerKey, at_ms: int, tokens: int) -> None:
        """Enter tokens that were spent before a restart or by another worker."""
        if tokens and at_ms // DAY_MS == self._clock.now_ms() // DAY_MS:
            self.budget.spent(repr(key), at_ms, tokens)

    def status(self) -> dict[str, Any]:
        """What ``status`` tells of the model."""
        return {
            "model": self._model.name,
            "in_flight": self.in_flight,
            "concurrency": self._settings.model_concurrency,
            "tokens_per_owner_day": self._settings.model_tokens_per_owner_day,
        }

    async def __call__(self, job: Job, found: Extraction) -> Extracted:
        """Ask the model; ``found`` is what the rules found, and stands where it fails."""
        self.in_flight += 1
        try:
            return await self._ask(job, found)
        finally:
            self.in_flight -= 1

    async def _ask(self, job: Job, found: Extraction) -> Extracted:
        at_ms = self._clock.now_ms()
        if at_ms < self._away_until_ms:
            return self._by_rules(found, [], "the model was away just before")
        utterances = [Utterance(view.speaker, view.name, view.text, view.occurred_at) for view in job.views]
        tongue = language(" ".join(utterance.text[:200] for utterance in utterances))
        messages = modelfacts.request(utterances, tongue=tongue)
        recalled = [fact.text for fact in known_of(job.shard.state.owners[job.key].memory)]
        spent: list[Completion] = []
        fallback = "the answer could not be read"
        for attempt in range(2):
            try:
                completion = await self._asker.ask(
                    job.key,
                    at_ms,
                    messages,
                    max_tokens=modelfacts.ANSWER_TOKENS_MAX,
                    response_schema=modelfacts.SCHEMA,
                    timeout_s=min(EXTRACTION_S_MAX, self._settings.model_timeout_s),
                )
            except Unanswered as error:
                if error.away:
                    self._away_until_ms = self._clock.now_ms() + AWAY_MS
                fallback = str(error)
                break
            spent.append(completion)
            answer = modelfacts.read(completion.text, utterances, recalled=recalled)
            if not isinstance(answer, modelfacts.Fault):
                return Extracted(answer_of(answer, job, found), method=self._asker.method, **self._asker.cost(spent))
            fallback = f"{answer.code}: {answer.message}"
            log.warning("extraction_unreadable", segment_id=job.segment.id, attempt=attempt, fault=fallback)
            messages = modelfacts.repair_messages(messages, completion.text, answer)
        log.warning("extraction_by_rules", segment_id=job.segment.id, reason=fallback)
        return self._by_rules(found, spent, fallback)

    def _by_rules(self, found: Extraction, spent: Sequence[Completion], fallback: str) -> Extracted:
        return Extracted(found, fallback=fallback[:FALLBACK_CHARACTERS_MAX], **self._asker.cost(spent))


def answer_of(answer: modelfacts.Extraction, job: Job, found: Extraction) -> Extraction:
    """A model's answer as an extraction. Its summary counts if it is one; else that of the rules stands."""
    facts = tuple(_statement(fact, job) for fact in answer.facts)
    judgements = tuple(judgement for judged in answer.judgements for judgement in _judgements(judged, job))
    summary = found.summary
    if len(answer.summary) >= CHARACTERS_MIN or (answer.summary and summary is not None):
        summary = extracting.summary_of(job.segment.id, answer.summary, facts=bool(facts))
    return Extraction(facts=facts, judgements=judgements, summary=summary, redacted=answer.redacted)


def _judgements(judged: modelfacts.ModelJudgement, job: Job) -> list[Judgement]:
    """What a judgement is about: the fact that it names, else those that the assistant named just before."""
    view = job.views[judged.turn]
    if judged.key:
        about = [(judged.key, normalise(judged.key, judged.value) if judged.value else "")]
    else:
        before = job.views[judged.turn - 1] if judged.turn else None
        about = extracting.named_before(before, known_of(job.shard.state.owners[job.key].memory))
    return extracting.judgements(judged.kind, view, about)


def _statement(fact: modelfacts.ModelFact, job: Job) -> FactStatement:
    norm = normalise(fact.key, fact.value) if fact.value else ""
    old_norm = normalise(fact.key, fact.old_value) if fact.old_value else None
    return extracting.stated(fact, job.views[fact.turn], value=fact.value, norm=norm, old_norm=old_norm, rule=RULE)
