"""What an English turn doesn't mean as said: reports of others, echoes of a memory, hypotheses, tasks, games, jokes.

Invariant: a part of a turn that isn't meant is put out and states nothing; what was put out keeps its length, so that
places stay.
"""

from __future__ import annotations

import re

_WHO = (
    r"(?:he|she|they|who|it|everyone|everybody|people|someone|somebody|nobody|the \w+|a \w+|my (?:\w+ )?\w+|his \w+|her"
    r" \w+|your \w+|some \w+|others|[a-z]+)"
)
_REPORTS = re.compile(
    rf"(?:^|[ ,;]){_WHO}(?: (?:just|always|once|also|still|never|keeps?|kept|used to|even|really))* (?:said|says?"
    rf"|saying|tells?|told"
    r"|thinks?|thought|believes?|believed|claim(?:s|ed)?|wrote|writes|swears|swore|assum(?:es?|ed)|asks?|asked|insists?"
    r"|insisted|goes \"?;|heard|joked?|jokes|wonders?|suggested|pretends?|dreamt|dreamed|quoted?)\b(?! no\b)"
)
_ECHOES = re.compile(
    r"\b(?:you(?:'ve| have| just| once| already| also)* (?:said|told|mentioned|think|thought|remembered|wrote|noted"
    r"|claimed|believe"
    r"|seem to think|have (?:it )?(?:down|written)|recorded|saved|say|keep saying)|did i (?:ever |already )?(?:tell"
    r"|say|mention)"
    r"|have i (?:ever |already )?(?:told|said|mentioned)|do you (?:still )?(?:remember|know|recall|think)|as you "
    r"(?:know|said)"
    r"|according to|your (?:notes?|memory|records?)|you(?:'re| are) saying|you know)\b"
)
_RESUMES = re.compile(r"[,;.] ?(?:but|actually|no|however|in fact|wrong)\b,?|\bbut\b|\bactually\b| - ")
_UNREAL = re.compile(
    r"\b(?:if i (?:were|was|had|lived|could|would|ever|did|owned|got|didn't|wasn't|weren't|won|worked)|if only"
    r"|imagin\w+|suppos(?:e|ing)"
    r"|what if|as if|let's say|hypothetical\w*|i wish|wishing|i'd|i would|i could|oh sure|yeah right|in another life"
    r"|in my (?:last|past|next|previous) life|in my dreams?|dreamt|i dreamed|let \w be|say i (?:have|had|am)|assume"
    r"|assuming"
    r"|the song|lyrics?|(?:in|from) the (?:movie|film|book|novel|game|show|story|play|song|series)|the protagonist"
    r"|main character|my character|the narrator|quote of|as an? \w+ (?:would|might)|the line|goes \"?;|how do (?:i"
    r"|you) say"
    r"|first[- ]person|when i (?:was|grow)|if my|said every|said no one|like i'm|as though)\b"
)
_TASK = re.compile(
    r"\b(?:translate|rewrite|rephrase|proofread|paraphrase|write|draft|compose|finish|complete|correct|summari[sz]e"
    r"|continue) "
    r"(?:me |this|the|a|an|my|up|in|following|\"|;|it\b|that\b|from|into|sentence|story)|\bhow do (?:i|you) say\b"
)
_ROLES = re.compile(
    r"\b(?:pretend|role-?play(?:ing)?|let's play|act as|you play|i(?:'ll)? play the (?:role|part)|play the (?:role"
    r"|part) of|stay in character"
    r"|in character|make believe|you(?:'re| are) (?:now )?(?:a|an|the|my) (?!\w+ (?:app|ai|bot|assistant)\b)[a-z]+ "
    r"(?:and|who) (?:i|my)\b"
    r"|i'm the (?:suspect|patient|customer|villain|hero|knight)|from now on you are)\b"
)
JOKES = re.compile(
    r"\b(?:just kidding|only kidding|kidding|j/k|jk|just joking|only joking|i'm joking|joking|pulling your leg"
    r"|april fools?|not really)\b"
)
"""Takes back what was said just before."""
HEDGE = re.compile(
    r"\b(?:maybe|perhaps|might|probably|possibly|i think|i guess|i suppose|i feel like|feel like|not sure|i doubt"
    r"|i assume|almost"
    r"|could be|kind of a|sort of a|some kind of|basically a|practically a|like a)\b"
)


def role_play(text: str) -> bool:
    """Whether a plain text asks to play: then "I" is somebody else.

    >>> role_play("let's pretend i'm a pirate"), role_play("i'm a pilot")
    (True, False)
    """
    return bool(_ROLES.search(text))


def meant(sentence: str) -> str:
    """The part of a plain sentence that its speaker means; the rest is put out with semicolons, its length kept.

    >>> meant("you said i like tea, but i prefer rum"), meant("if i were rich i'd live in rome")
    (';;;;;;;;;;;;;;;;;;;;;;;; i prefer rum', '')
    """
    if _UNREAL.search(sentence):
        return ""
    task = _TASK.search(sentence)
    if task:
        sentence = sentence[: task.start()]
    for reports in (_ECHOES, _REPORTS):
        found = reports.search(sentence)
        while found:
            resumes = _RESUMES.search(sentence, found.end())
            if reports is _REPORTS and (_own(found[0]) or _OWN_SAYING.search(found[0])):
                found = reports.search(sentence, found.end())
                continue
            stop = resumes.end() if resumes else len(sentence)
            sentence = sentence[: found.start()] + ";" * (stop - found.start()) + sentence[stop:]
            found = reports.search(sentence, stop)
    return sentence


_OWN_SAYING = re.compile(
    r"(?:^|[ ,;])(?:i|we|to|dog|cat|is|are|was|kid|son|daughter|husband|wife|get|got) (?:just )?(?:called|goes)\b"
)


def _own(report: str) -> bool:
    """Whether it is the speaker who says or thinks; and "my dog is called Rex" reports nothing."""
    words = report.replace(",", " ").replace(";", " ").split()
    return bool(words) and (
        words[0] in ("i", "we", "please")
        or (words[0] == "you" and words[-1] in ("ask", "asked", "wonder", "call"))
        or (words[-1] == "called" and "me" not in words)
    )


_QUESTION_START = re.compile(
    r"^ ?(?:(?:so|and|but|hey|ok|well|or|then|now|also|wait),? )*(?:do|does|did|am|is|are|was|were|can|could|would"
    r"|will|should|shall|have|has|had"
    r"|what|where|when|who|whom|whose|which|why|how|any|isn't|aren't|don't|doesn't|didn't|may|might|what's|who's"
    r"|where's)\b"
)


def before_question(body: str) -> str:
    """The clauses of a question that tell.

    >>> before_question("i live in boston, do you know a good gym"), before_question("do i live in boston")
    ('i live in boston,', '')
    """
    if _QUESTION_START.match(body):
        return ""
    end = 0
    for mark in _CLAUSE.finditer(body):
        end = mark.end()
        if _QUESTION_START.match(body, end):
            break
    return body[:end]


_CLAUSE = re.compile(r",(?= )| - | so(?= )| and(?= )| but(?= )|;+")


def task(sentence: str) -> bool:
    """Whether a sentence asks to write or translate something: what follows is material.

    >>> task("translate this: my name is juan"), task("i write letters")
    (True, False)
    """
    return bool(_TASK.search(sentence))
