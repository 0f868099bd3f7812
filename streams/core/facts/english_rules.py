"""Rules of English: what a predicate after "I" (or after "my sister") states.

A rule is matched where a predicate begins, never searched for, so it is read with the subject that the walk through
the sentence (``streams.core.facts.english``) knows. Patterns are written with ``{s}`` where the third person takes an
s, and with ``{have}`` for the forms of having.
"""

from __future__ import annotations

import re

from streams.core.facts import english_doing as doing
from streams.core.facts import english_people as people
from streams.core.facts import english_reading as reading
from streams.core.facts import words
from streams.core.facts.dates import DATE_EN, NUMBER_EN
from streams.core.facts.english_reading import END, REST, SPECIES, V
from streams.core.facts.rule import Rule, nothing, whole
from streams.core.facts.words import alternatives

_LANGUAGE = alternatives(word for word in words.LANGUAGES if word.isascii())
_LANGUAGES = (
    rf"(?:fluent |native |a (?:little|bit of|tiny bit of) |some |decent |basic |both |conversational |broken "
    rf"|passable )*"
    rf"(?P<v>{_LANGUAGE})(?!\w)(?: fluently| natively| well| pretty well| quite well)?$"
)
_DIET = alternatives(word for word in words.DIETS if word.isascii() and not word.startswith("a "))
_HAND = alternatives(word for word in words.HANDEDNESS if word.isascii() and len(word) > 5)
_DEGREE = r"(?:phd|ph\.d|doctorate|master'?s(?: degree)?|bachelor'?s(?: degree)?|mba|degree|msc|bsc|law degree|diploma)"
_GAME = (
    r"(?:play (?:the )?(?:piano|guitar|violin|cello|drums|flute|clarinet|trumpet|saxophone|sax|bass|ukulele|harp|viola"
    r"|accordion|banjo|organ|oboe|trombone|chess|tennis|football|soccer|basketball|volleyball|badminton|golf|rugby"
    r"|cricket|hockey|poker|go|squash|table tennis|bridge|handball|baseball|softball)(?! every| on| with| when))"
)
_OFTEN = (
    r"(?:every (?:single |other )?(?:day|morning|evening|night|week|weekend|month|year|lunchtime|(?:mon|tues|wednes"
    r"|thurs|fri"
    r"|satur|sun)day)(?: (?:and|or) (?:mon|tues|wednes|thurs|fri|satur|sun)day| morning| evening| night| afternoon)*"
    r"|(?:on )?(?:mon|tues|wednes|thurs|fri|satur|sun)days(?: and (?:mon|tues|wednes|thurs|fri|satur|sun)days)*"
    r"|(?:once|twice|(?:two|three|four|five|six|\d) times) (?:an?|every|per) (?:day|week|month|year))"
)
_AT_TIME = r"(?:at|around|before|by) (?:\d{1,2}(?::\d\d)?(?: ?[ap]m)?|noon|midnight|six|seven|five|eight|ten|eleven)"
OFTEN_FIRST = re.compile(rf"(?:^ ?|[,;] ?|and )(?P<v>{_OFTEN}),? $")
"""How often, before the subject: "every Friday I ..."."""
_KIN = r"(?:son|daughter|sister|brother|boy|girl|baby boy|baby girl|girlfriend|boyfriend|wife|husband)"
_STATUS = r"(?:married|engaged|divorced|separated|single|widowed|a widow(?:er)?)"
_WORK_STATUS = (
    r"(?:retired|unemployed|self[- ]employed|between jobs|out of work|jobless|semi-retired|on (?:maternity|paternity) "
    r"leave|a stay[- ]at[- ]home (?:mom|mum|dad|parent|mother|father))"
)
_OLD = r"(?: ?(?:years? old|yrs? old|yrs?|y/?o|yo|years? of age|years? young))"
_AFTER_AGE = (
    r"(?=\s*(?:[,;)]|$)| (?:and|but|so|now|btw|from|living|based|with|married|single|this|next|already|today)\b| -)"
)

RULES = (
    # -- I am ---------------------------------------------------------------------------------------------------------
    Rule("age", "b", rf" (?P<v>{NUMBER_EN})(?:{_OLD}{END}|{_AFTER_AGE})", reading.age, family=True),
    Rule("age_years", "b", rf" (?P<v>{NUMBER_EN}){_OLD}(?!\w)", reading.age, family=True),
    Rule("from", "b", rf" (?:originally )?from {V}(?= originally|,| and|{END})", reading.place("origin"), family=True),
    Rule(
        "based", "b", rf" (?:based|living|settled|residing) (?:here |over )?(?:in|near|on) {V}{END}",
        reading.place("home"), family=True,
    ),
    Rule("in_now", "b", rf" in {V}(?= now(?:adays)?\b| these days)", reading.place("home"), kind="event"),
    Rule("work_status", "b", rf" (?P<v>{_WORK_STATUS})(?!\w)", reading.one("occupation"), family=True),
    Rule(
        "headed", "b",
        r" (?:the |an? )?(?P<v>(?:head|director|vp|vice president|chief|co-?founder|founder|ceo|cto|cfo|coo|dean|chair)"
        rf" (?:of|at) [^,;:!?()\"]{{2,50}}?){END}",
        reading.headed, family=True,
    ),
    Rule("occupation", "b", rf" (?:an? |the |one of the ){V}{END}", reading.occupation, family=True),
    Rule(
        "works_as", "bh",
        rf" (?:been )?(?:working|employed|freelancing|training|moonlighting)(?: \w+ly| full[- ]time| part[- ]time)? as "
        rf"(?:an? |the )?{V}{END}",
        reading.role_of, family=True,
    ),
    Rule(
        "working_at",
        "bh",
        rf" (?:been )?(?:working|employed)(?: full[- ]time| part[- ]time)? (?:at|for|by|with) {V}{END}",
        reading.working, family=True,
    ),
    Rule(
        "studying_at", "bh",
        r" (?:been )?(?:studying|doing|reading) (?P<v>[^,;:!?()\"]{2,40} (?:at|from) (?P<school>[^,;:!?"
        r"()\"]{2,40}?))" + END,
        reading.studied,
    ),
    Rule("studies_degree",
        "b",
        rf" (?:doing|finishing|pursuing|working on) (?:an? |my )(?P<v>{_DEGREE}(?: in [^,;:!?()\"]{{2,50}}?)?){END}",
         reading.one("education")),
    Rule("getting", "b", rf" (?P<v>getting (?:married|divorced)|expecting (?:a baby|twins|our \w+)|having a baby){END}",
         doing.planned),
    Rule("marital",
        "bh",
        rf" (?:been )?(?:happily |newly |recently |legally )?(?P<v>{_STATUS})(?={END}| with | for | over | \d| to "
        rf"(?:an? |my (?:wife|husband|best|high|college|childhood|first|second))\w| (?:since|in (?:19|20)))",
         people.marital, family=False),
    Rule("allergic",
        "bh",
        rf" (?:been )?(?:\w+ly )?allergic to {REST}", reading.many("allergy"), family=True, bare=True),
    Rule("diet", "bh",
        rf" (?:been )?(?:an? |on an? |mostly |strictly |a strict )?(?P<v>{_DIET}){END}", reading.one("diet"),
         family=True),
    Rule("health_is",
        "b",
        rf" (?P<v>{words.HEALTH_ADJECTIVES_EN})(?={END}| in my | in one | from birth| with | again)",
        reading.one("health"), family=True),
    Rule("nationality", "b", rf" (?P<v>[a-z]+){END}", people.nationality),
    Rule("learning", "bh", rf" (?:been )?(?:learning|studying|taking) {REST}", reading.many("language", _LANGUAGES)),
    Rule("going_to", "b", rf" going to {V}{END}", doing.going, negated="nothing"),
    Rule("planning", "b", rf" (?:planning|gonna|intending|preparing|training) (?:to|on|for) {V}{END}", doing.planned,
         negated="nothing"),
    Rule(
        "will", "b",
        r" (?P<soft>)(?P<v>(?:moving(?= (?:to|back|abroad|house|out|in with|away|into)\b)|flying|travell?ing"
        r"|starting(?= (?:at|as|a new|my|school|uni|college|work|a job|an?\b))|relocating|retiring|visiting|hosting"
        r"|running|joining|opening"
        rf"|buying|adopting|launching|quitting|graduating) ?[^,;:!?()\"]{{0,50}}?){END}",
        doing.planned, negated="nothing",
    ),
    Rule("handed", "b", rf" (?:an? )?(?P<v>{_HAND})(?!\w)", reading.one("handedness")),
    Rule(
        "fan", "b",
        rf" (?:an? |such an? )?(?:big |huge |massive |lifelong |die-?hard |great |real |enormous )*(?:fan|lover"
        rf"|supporter) of {REST}",
        reading.liked("likes"), negated="opposite",
    ),
    Rule(
        "into", "b",
        rf" (?:really |so |super |very |totally |big |deeply )*(?:into|fond of|crazy about|obsessed with"
        rf"|passionate about|keen on) "
        rf"{REST}",
        reading.liked("likes"), negated="opposite",
    ),
    Rule("introduced", "b", rf" {reading.NAME}(?=\s*(?:[,;:!()\"]|$)| (?:and|from|btw|by the way|here|but) ?)",
         people.introduced),
    # -- I do ---------------------------------------------------------------------------------------------------------
    Rule("lives", "v", rf" (?:live|reside){{s}} (?:\w+ly )?(?:with [^,;:!?()\"]{{2,30}}? )?(?:in|near|on) {V}{END}",
         reading.place("home"), family=True, bare=True),
    Rule("has_lived", "h", rf" (?:been living|lived|been based) (?:here )?in {V}(?=.* (?:since|for|all) ){END}",
         reading.place("home")),
    Rule("never_lived", "h", rf" (?:lived|been living) in {V}{END}", reading.never(reading.place("home"))),
    Rule("moved_from", "vh", rf" (?:moved|relocated) (?:over |back )?from (?P<o>[^,;:!?()\"]{{2,30}}?) to {V}{END}",
         reading.place("home"), kind="event", family=True),
    Rule("moved", "vh", rf" (?:moved|relocated) (?:over |back |out )?(?:in)?to {V}(?= from | with |{END})",
         reading.place("home"), kind="event", family=True, bare=True, negated="nothing"),
    Rule("works_at",
        "v",
        rf" work{{s}} (?:\w+ly |full[- ]time |part[- ]time )?(?:at|for|with) {V}{END}", reading.working,
         family=True, bare=True),
    Rule("works_as_role", "v",
         rf" (?:work|freelance|moonlight){{s}} (?:[^,;:!?()\"]{{1,20}} )?as (?:an? |the |the only )?{V}{END}",
         reading.role_of, family=True, bare=True),
    Rule("new_job", "vh",
         rf" (?:got|found|landed|started|accepted|took|have) (?:an? |my |the )(?:new )?(?:job|position|role) (?:at"
         rf"|with) {V}{END}",
         reading.working, kind="event", bare=True),
    Rule("new_role", "vh",
         rf" (?:got|found|landed|started|accepted|took|have) (?:an? |my |the )(?:new )?(?:job|position|role) as "
         rf"(?:an? )?{V}{END}",
         reading.role_of, kind="event", bare=True),
    Rule("started_at",
        "vh",
        rf" (?:just )?(?:joined|started(?: working)? (?:at|for)) {V}{END}", reading.joined, kind=
        "event"),
    Rule("became", "vh", rf" (?:became|become|been promoted to|got promoted to) (?:an? |the )?{V}{END}", reading.became,
         kind="event", family=True),
    Rule("promoted", "w", rf" promoted to (?:an? |the )?{V}{END}", reading.became, kind="event"),
    Rule("quit_job",
        "vh",
        r" (?:quit|left|lost|resigned from) (?:my|the|that) (?:\w+ )?job(?: (?:at|with) (?P<v>[^,;:!?"
        r"()\"]{2,40}?))?"
         + END, reading.or_nothing("employer"), kind="retract", family=False, bare=True),
    Rule("laid_off",
        "wv",
        r" (?:got )?(?:laid off|fired|let go|made redundant)(?: (?:from|by|at) (?P<v>[^,;:!?()\"]{2,40}?))?"
         + END, reading.or_nothing("employer"), kind="retract", negated="nothing"),
    Rule("retired", "vh", " (?P<v>retired)(?!\\w)(?! the)", reading.one("occupation"), kind="event"),
    Rule("owns", "v", rf" own{{s}} (?:an? |two |three )?{V}{END}", reading.thing, negated="retract"),
    Rule("has_thing", "vh",
         rf" (?:{{have}}|bought|purchased|just got|got)(?: myself| ourselves)? (?:an? |any |the )?(?P<v>"
         rf"(?:[\w'-]+ ){{0,3}}?"
         rf"{words.THINGS_EN})(?=\s*(?:[,;:!?()]|$)| (?:and|but|so|in|for|with|from|that|which|on|now"
         rf"|{reading.TIME_WORDS})\b)",
         reading.thing, bare=True),
    Rule("drives", "v", rf" (?:drive|ride){{s}} (?:an? |my |our ){V}{END}", reading.vehicle),
    Rule("sold", "vh",
        r" (?:sold|got rid of|scrapped|crashed and scrapped) (?:my|our|the) (?P<v>(?:old )?(?:[\w'-]+ ){0,2}?"
         rf"{words.THINGS_EN})(?!\w)", reading.one("possession"), kind="retract", bare=True),
    Rule("pet", "vh", rf" (?:{{have}}|got|just got|adopted|rescued|keep|bought)(?: ourselves| myself)? "
         rf"(?=(?:an? |any |one |two |three |four |five |\d |some )(?:[a-z'-]+ ){{0,3}}?{SPECIES}s?"
         rf"(?!\w)){reading.NO_PET}(?P<v>)",
         people.pets, bare=True),
    Rule("no_pets", "v", " have (?:any )?(?P<v>)pets(?!\\w)", nothing("pet"), negated="only", kind="retract"),
    Rule("no_children", "v", " have (?:any )?(?P<v>)(?:kids|children)(?!\\w)", nothing("child"), negated="only",
         kind="retract"),
    Rule("no_allergies",
        "v",
        " have any (?P<v>)(?:food )?allergies", nothing("allergy"), negated=
        "only", kind=
        "retract"),
    Rule("children_count",
        "v",
        rf" {{have}} (?P<v>{NUMBER_EN}) (?:\w+ )?(?:kids|children)(?!\w)", people.counted_children),
    Rule("kin", "v", rf" {{have}} (?=(?:an?|one|two|three|four) (?:[a-z]+ )?{_KIN}(?!\w))(?P<v>)", people.kin),
    Rule("degree", "vh", rf" {{have}} (?:an? |my )?(?P<v>{_DEGREE}(?: (?:in|from) [^,;:!?()\"]{{2,50}}?)?){END}",
         reading.one("education")),
    Rule("health_has",
        "vh",
        rf" (?:{{have}}|had)(?: \w+ly| severe| mild| chronic| bad| really bad)? (?:an? )?(?P<v>{words.HEALTH_EN})"
        rf"(?={END}| from | for | in my (?!family))",
         reading.one("health"), family=True),
    Rule("suffers", "v", rf" suffer{{s}} from {REST}", reading.many("health"), family=True),
    Rule("diagnosed",
        "wvh",
        rf" (?:been |got )?(?:just |recently |finally )?diagnosed with {V}{END}", reading.one("health"),
         family=True, bare=True),
    Rule("likes", "v",
        rf" (?:like|love|enjoy|adore){{s}} {REST}", reading.liked("likes"), negated=
        "opposite", family=True),
    Rule("prefers", "v", rf" prefer{{s}} {V} (?:to|over|rather than) ", reading.liked("likes"), negated="nothing"),
    Rule("hates", "v", rf" (?:(?:hate|dislike|detest|despise|loathe){{s}}|can(?:'?t|not| not) (?:stand|bear)) {REST}",
         reading.liked("dislikes"), negated="nothing", family=True),
    Rule("eats_not", "v", rf" (?:eat|drink|touch) {REST}", reading.liked("avoids"), negated="only"),
    Rule("stopped", "vh",
         rf" (?:stopped|quit|gave up|given up) (?:(?:eating|drinking|having) (?P<v>[^,;:!?()\"]{{2,30}}?)|"
         rf"(?P<w>smoking|drinking|alcohol|meat"
         rf"|sugar|dairy|coffee|gluten|caffeine)){END}",
         reading.stopped, negated="nothing", bare=True),
    Rule("went_diet", "vh", rf" (?:switched to|changed to|gone|went|turned|become|became) (?:an? )?(?P<v>{_DIET}){END}",
         reading.one("diet"), kind="event", family=True),
    Rule("turned", "v",
        rf" (?:turned|hit) (?P<v>{NUMBER_EN})(?: (?P<d>yesterday|today|on {DATE_EN}))?{END}", reading.turned,
         kind="event", negated="nothing"),
    Rule("born", "w",
        r" born(?P<v>)(?P<rest> (?:and raised )?(?:on|in) .{1,120})", reading.born, bare=True, negated=
        "nothing"),
    Rule("raised", "w",
        rf" (?:born and )?(?:raised|brought up|born & raised) in {V}{END}", reading.place("origin"), bare=True),
    Rule("born_bare", "v", rf" born and raised in {V}{END}", reading.place("origin"), bare=True),
    Rule("grew_up", "v", rf" grew up (?:in|near|on) {V}{END}", reading.place("origin")),
    Rule("comes_from", "v", rf" (?:come{{s}}|hail{{s}}) from {V}{END}", reading.place("origin"), family=True),
    Rule("speaks", "v", rf" (?:can )?speak{{s}} {REST}", reading.many("language", _LANGUAGES), family=False),
    Rule("studied", "vh",
         r" (?:studied|study|read) (?P<v>[^,;:!?()\"]{2,40} at (?P<school>[^,;:!?()\"]{2,40}?))" + END,
         reading.studied),
    Rule("graduated",
        "vh",
        rf" (?:graduated from|went to (?=[^,]*(?:university|college))) ?{V}(?= with | in (?:19|20)|{END})",
         reading.school),
    Rule("majored", "vh", rf" major(?:ed)? in {V}{END}", reading.one("major")),
    Rule("plays", "v", rf" (?P<v>{_GAME})(?!\w)", reading.one("hobby")),
    Rule("routine",
        "v",
        rf" (?P<v>{doing.DOES[1:]}[^;!?()\"]{{0,60}}? {_OFTEN})(?!\w)", doing.routine, negated=
        "nothing"),
    Rule("routine_at",
        "v",
        rf" (?P<v>(?:get up|wake up|go to bed|go running|have dinner|have lunch|have breakfast) {_AT_TIME})(?!\w)",
         doing.usual, negated="nothing"),
    Rule("plans", "v", rf" plan(?:ned)? (?:to|on) {V}{END}", doing.planned, negated="nothing"),
    Rule("got_married", "vh", r" got (?P<v>married|divorced|engaged)(?!\w)", people.marital, kind="event", bare=True),
    Rule("broke_up",
        "vh",
        r" (?:broke up|broken up|split up|split) with my (?:ex-?)?(?P<v>girlfriend|boyfriend|partner|gf|bf"
         r"|fianc[eé]e?)(?!\w)", reading.one("partner"), kind="retract", negated="nothing", bare=True),
    Rule("divorced_who",
        "vh",
        r" (?:divorced|separated from) my (?:husband|wife)(?P<v>)", whole("marital_status",
        "divorced"),
         kind="event", negated="nothing", bare=True),
    Rule("lost_pet", "vh", rf" (?:lost|buried|had to put down) (?:my|our) (?:[a-z]+ )?(?P<v>{SPECIES})(?!\w)",
         reading.one("pet"), kind="retract", negated="nothing", bare=True),
)  # fmt: skip
"""In order of precedence: of the finds that overlap, of one key, the first counts."""


def _compiled(third: bool) -> dict[str, tuple[tuple[Rule, re.Pattern[str]], ...]]:
    table: dict[str, list[tuple[Rule, re.Pattern[str]]]] = {mode: [] for mode in "bvhw"}
    for rule in RULES:
        if third and not rule.family:
            continue
        have = "(?:has|has got)" if third else "(?:have got|have|hav|'?ve got)"
        pattern = rule.pattern.replace("{s}", "s" if third else "").replace("{have}", have)
        for mode in rule.modes:
            table[mode].append((rule, re.compile(pattern)))
    return {mode: tuple(rules) for mode, rules in table.items()}


FIRST_PERSON = _compiled(third=False)
"""Rules by mode, as they stand after "I"."""
THIRD_PERSON = _compiled(third=True)
"""Rules by mode, as they stand after "my sister"."""
