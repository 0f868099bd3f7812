"""Chinese turns: who each clause is about, and what its predicate states.

A sentence is read clause by clause. A clause is about the speaker, about somebody of the speaker's family, or about
whom the clause before it was about, where it names nobody; clauses about others, wishes, guesses and questions say
nothing.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from streams.core.facts import chinese_people as people
from streams.core.facts import chinese_reading as reading
from streams.core.facts import words
from streams.core.facts.chinese_meant import HEDGE, OTHERS_ZH, meant
from streams.core.facts.chinese_reading import END, NAME, PARTICLES
from streams.core.facts.chinese_rules import COMPILED
from streams.core.facts.dates import date_of
from streams.core.facts.found import Find, Kind, Plain, Sentence
from streams.core.facts.predicate import Predicate
from streams.core.facts.rule import Rule, found_by
from streams.core.facts.values import normalise
from streams.core.facts.vocabulary import ATTRIBUTES_ZH, MEMBERS, key_of
from streams.core.facts.words import HEALTH_ZH, PERSONS_ZH, alternatives, listed

SPEAKS = re.compile(r"我|爱好|家里|养了|咱|俺|本人|生日|过敏|\d岁|[一二三四五六七八九十]岁|坐标|迷上|戒了|[住搬辞离退]")
"""What a turn without which states nothing."""
GREETS = re.compile(r"你好|您好|大家好|嗨|哈喽|初次见面")
_HAN = re.compile(r"[\u4e00-\u9fff]")


@dataclass(slots=True)
class Turn:
    """What one sentence of a turn tells the next: nobody has been spoken of before the first."""

    begun: bool = False


_FILLER = re.compile(
    r"(?:对了|其实|话说|那个|嗯+|哦+|噢|啊+|哈+|嘿+|哎+呀?|唉|诶|跟你说(?:个|一下|件)?(?:好消息|坏消息|事)?|告诉你"
    r"(?:个|一个)?(?:好消息|坏消息)?|说起来"
    r"|(?:请|帮我|麻烦|你要|你|要|一定要?)*(?:记住|记得|记下来?|记一下|记好|记着)(?:一下|了|哦|哈)?|(?:你|您"
    r"|大家)好[呀啊]?|嗨|另外|还有|而且|因为|由于|所以|但是?|不过|可是|可(?=我)"
    r"|不对|不是的|错了|更正(?:一下)?|纠正(?:一下)?|(?:之前|刚才|上次|刚刚)?(?:我)?(?:说|讲|记|打)错了|你(?:记|搞"
    r"|弄|说)错了|说真的|老实说|坦白说|说实话|顺便(?:说一下|一提)?|ps|然后|那|就是|虽然"
    r"|总之|反正|我跟你说|我告诉你|你知道吗|补充(?:一下|一点)?|自我介绍(?:一下)?|先|事实上|实际上|是这样的|没错"
    r"|是的|对|好的?|行|嗨喽|哈喽|hi|hello|btw|ok)[:~ ]?"
)
_TIME = (
    r"(?:(?:19|20)\d\d年(?:\d{1,2}月(?:份|\d{1,2}[日号])?)?|[今去前明后]年(?:的)?(?:年初|年底|[春夏秋冬]天"
    r"|[一二三四五六七八九十\d]{1,2}月份?)?"
    r"|(?:上上|上|下下|下|这|本)个?(?:月|周|星期|礼拜)[一二三四五六日天末]?|[今昨前明后][天晚日]|"
    r"(?:[一二三四五六七八九十]{1,2}|\d{1,2})月(?:份|[底初]|(?:\d{1,2}|[一二三四五六七八九十]{1,3})[日号])?"
    r"|(?:几|[一二两三四五六七八九十]{1,2}|\d{1,2}|半)(?:天|周|个?星期|个月|年)(?:之?前|后)|最近|现在|目前|如今"
    r"|从小|以前|之前|曾经|过去|原来|原先|早年|年底|月底|周末|暑假|国庆|春节"
    r"|(?:大学|高中|硕士|本科|研究生|博士)毕业(?:以后|之后|后|就)?|毕业(?:以后|之后|后|就)?|后来|随后|接着|之后|从"
    r"(?:19|20)\d\d年(?:起|开始)?|周[一二三四五六日](?:晚上|早上)?)"
)
_ADVERB = (
    r"(?:一直|转行|只(?=是|会|有)|都|也|还|就|已经|刚刚?|才|又|平时|特别|超级?|很|真的|非常|比较|挺|确实|倒是|本来|好(?=喜欢|讨厌)|蛮"
    r"|巨|其实|总是?|经常|通常|一般|从来|终于|正式|正|早就?|全家|跟|特|比较|可"
    r"|完全|根本|压根|并|绝对|主要|基本上?|平常|目前|(?:跟|和)(?:父母|爸妈|老公|老婆|家人|朋友|爷爷奶奶)(?:一起)?"
    r"(?=住)|一个人(?=住))"
)
_PRIOR = re.compile(rf"(?:{_TIME}|{_ADVERB}|,)*")
_SUBJECT = re.compile(
    rf"(?:(?P<mine>(?:我|咱|俺)们?(?:家)?的?)(?P<person>{alternatives(PERSONS_ZH)})(?!的(?!生日|名字|小名|英文名))"
    rf"(?![\u4e00-\u9fff]?(?:家的|们))|(?P<other>(?:我|咱|俺)们?(?:家)?的?{OTHERS_ZH})"
    r"|(?P<pet>(?:我|咱|俺)们?(?:家)?的?(?:那[只条]|小)?(?=" + alternatives(words.SPECIES_ZH) + r"))"
    r"|(?P<i>我们一家人?|我们?全家|我一家|我们家?|家里|家中|我家里?|咱们?家?|我自己|我|俺|本人)|(?P<they>他|她|它"
    r"|你|您|这|那|谁|有人|别人|大家|人家|(?:小|老|阿)(?!家)[\u4e00-\u9fff](?=[在是有住说叫]|家)))"
)
_NEGATION = re.compile(
    r"不再|不太|不怎么|不大(?=喜欢|爱|会)|不是很(?=喜欢|爱)|没那么(?=喜欢|爱)|从来?不|并?不|没有?(?=[去来]过)|从没"
    r"|没|未"
)
_USED = re.compile(r"以前|之前|曾经|过去|原来|原先|早年")
_CHANGED = re.compile(r"现在|如今|其实|改|换|刚满|终于|更正|纠正|错了|不对|升职|跳槽|从今|开始")
_NOT_TAIL = re.compile(
    rf"人?,?(?:而|并|可)?不是(?:在|叫|住在?|一?[名个位])?(?P<o>[^\s,;:!?()\"]{{1,10}}?)(?=人?{PARTICLES}*(?:[,;:!?"
    rf"()]|$))"
)
_ATTRIBUTE = re.compile(
    rf"(?:的)?(?P<k>{alternatives(ATTRIBUTES_ZH)})(?P<is>(?:现在|其实)?(?:不是|是|叫做?|为|:|就是))\"?"
    rf"(?P<v>[^\s,;!?()\"]{{1,20}}?)\"?{END}"
)
_SOMEBODY_CALLED = re.compile(
    rf"(?:我|咱)们?的?(?P<k>老板|领导|上司|导师|房东|室友|闺蜜|班主任)(?:姓.,)?(?:名字)?叫做?{NAME}{END}"
)
_CALL_ME = re.compile(
    r"(?:^|[,;])(?P<p>[^,;]{1,6}都|朋友们?都?|同事们?都?|你?可以|以后|就|你|请|家里?人都?|别人都?)*叫我"
    r"(?P<v>[\u4e00-\u9fffa-z]{1,6}?)(?P<s>就行|就好|就可以|吧|好了|即可)?了?(?=[,;!?()]|$)"
)
_DIED = re.compile(
    rf"(?P<s>{alternatives(words.SPECIES_ZH)})(?P<n>[\u4e00-\u9fffa-z]{{1,4}}?)??(?:{_TIME}|{_ADVERB}|,|早上|晚上"
    rf"|因病)*(?:死|走|去世|过世|没|离开|离世|病逝|老死|去汪星|去喵星|去了汪星|去了喵星)(?:球|我们)?了"
)
_DIED_KIN = re.compile(rf"(?:{_TIME}|{_ADVERB}|因病)*(?:去世|过世|走|病逝|离世)了")
_ROUTINE = re.compile(
    r"(?P<v>(?:每天|每日|每晚|每早|每周[一二三四五六日天末]?|每个?(?:周末|月|星期[一二三四五六日天]?"
    r"|礼拜[一二三四五六日天]?)|每年|每隔[一两二三]天|天天|周末)(?:[早晚中][上午]|下午|清晨|晚饭后|睡前|上午)?"
    r"(?:我们?|咱)?(?:都|会|要|就|固定|坚持|必须|一定)*(?P<b>[^\s,;!?()\"]{2,18}?))" + END
)
_DOES = re.compile(
    r"起床|跑|走|游|去|吃|喝|看|读|写|练|打|做|健身|睡|泡|学|上|遛|冥想|锻炼|瑜伽|骑|爬|买|给|和|跟|陪|弹|画|拉|吹"
    r"|唱|背|接|送|开车|坐|散步|运动|喂|扫|洗|听|记|聚|回|钓|种|浇|抄|祷|站桩|跳舞|跳绳|跳操|滑|吃药|打针|复习"
)
_NOT_ROUTINE = re.compile(r"被|失败|报错|脚本|代码|你|程序|累|烦|气|好|很|在想|难|面对|崩溃|心情|失眠到")
_SOMEBODY = re.compile(rf"[他她你]|{OTHERS_ZH}|(?:我|咱)们?家?的?(?:{alternatives(PERSONS_ZH)})")
_DIAGNOSED = re.compile(rf"医生说我(?:得了|有|患了|患有|是|得的是)(?P<v>{HEALTH_ZH})")
_BIRTHDAY = re.compile(
    r"(?P<v>今天|昨天|明天)(?:就)?是我的?(?P<n>[\d一二三四五六七八九十]{1,3}岁?)?生日(?!派对|会|礼|蛋糕)"
)


def finds(
    plain: Plain, text: str, sentence: Sentence, said_on: dt.date, turn: Turn, *, greeted: bool
) -> Iterator[Find]:
    """Facts that a sentence states.

    Parameters
    ----------
    text : str
        The plain text of the turn without quotations.
    turn : Turn
        What the sentences before it tell; changed.
    """
    body = text[sentence.start : sentence.end]
    if not SPEAKS.search(body) or not _HAN.search(body):
        return
    said = Predicate(plain, body, sentence.start, said_on, greeted=greeted)
    diagnosed = _DIAGNOSED.search(body)
    if diagnosed and not sentence.asks:
        yield _find(said, "health", diagnosed.span("v"), "assert", diagnosed.start(), "diagnosed", 0.8)
    body = meant(body)
    if sentence.asks:
        body = body[: max(body.rfind(","), body.rfind(";"), 0)]
    if not body.strip(" ,;"):
        return
    said = replace(said, sentence=body)
    for find in _walk(said, first=not turn.begun):
        _judge_change(said, find)
        if sentence.asks:
            find.confidence -= 0.1
        yield find
    turn.begun = True


def _find(
    said: Predicate, key: str, span: tuple[int, int], kind: Kind, begin: int, rule: str, confidence: float
) -> Find:
    """A find whose value is the text at ``span``."""
    return said.find(key, said.original(*span), kind, begin, span[1], f"zh.{rule}", confidence)


_PARTICLES = re.compile(rf"{PARTICLES}*")


def _judge_change(said: Predicate, find: Find) -> None:
    """Whether a sentence says that something else held before: then the find corrects it."""
    if find.kind == "retract":
        return
    text, begin, end = said.sentence, find.start - said.offset, find.end - said.offset
    single = not key_of(find.key).multi
    tail = _PARTICLES.match(text, end)
    tail_not = _NOT_TAIL.match(text, tail.end() if tail else end)
    if tail_not and (single or find.key in ("child", "pet", "sibling")):
        first, last = tail_not.span("o")
        old = said.original(first, last)
        if find.key in ("birthday", "anniversary"):
            old = date_of(text[first:last], said.said_on) or old
        find.kind, find.old, find.confidence = "correct", normalise("age", old) if find.key == "age" else old, 0.95
    elif single and (_CHANGED.search(text, max(0, begin - 8), end) or re.search(r"错了|更正|纠正", text[:begin])):
        find.kind = "correct"


_CLAUSE = re.compile(r"[^,;:()!? ]+(?: (?=[a-z0-9])[^,;:()!? ]+)*")


def _walk(said: Predicate, *, first: bool) -> Iterator[Find]:
    text = said.sentence
    yield from _whole(said)
    subject, person, done = "", "", 0
    for clause in _CLAUSE.finditer(text):
        start, end = clause.span()
        if start < done:
            continue
        at = start
        filler = _FILLER.match(text, at, end)
        while filler and filler.end() > at and filler.end() < end:
            at = filler.end()
            filler = _FILLER.match(text, at, end)
        if HEDGE.search(text, at, end):
            if not text.startswith(("我", "本"), at):
                subject = ""
            continue
        prior = _PRIOR.match(text, at, end)
        whom = _SUBJECT.match(text, prior.end() if prior else at, end)
        if whom is None:
            own = subject or ("bare" if first and start == 0 else "")
            if own or _BARE.match(text, at, end):
                found = list(
                    _predicate(
                        said,
                        at,
                        end,
                        at,
                        person if subject == "person" else "",
                        "carried" if own == "i" else own or "bare",
                    )
                )
                yield from found
                subject = subject or ("i" if found else "")
            continue
        subject, person = _whom(whom)
        if whom["pet"] is not None:
            yield from _pet_died(said, whom)
            continue
        if subject == "person":
            found = list(_kin(said, whom, at))
            yield from found
            if found:
                continue
        if subject:
            found = list(_predicate(said, whom.end(), end, at, person, subject, before=text[at : whom.start()]))
            yield from found
            done = max([done, *(find.end - said.offset for find in found)])
            tail = _NOT_TAIL.match(text, done) if found else None
            done = tail.end() if tail and found[-1].kind != "retract" else done


_OWN_SUBJECT = frozenset(("name", "surname", "home_in"))
"""Rules that need a subject in their own clause: 有个姐姐,叫晓月 is not the speaker's name."""
_BARE = re.compile(
    r"(?:最近)?(?:迷上|爱上)|对.{1,8}过敏|坐标|身高|体重|老家|血型|籍贯|属[鼠牛虎兔龙蛇马羊猴鸡狗猪]|职业|"
    r"(?:平时的?|业余的?)?爱好|刚?从.{1,6}搬[来到]"
)


def _whom(whom: re.Match[str]) -> tuple[str, str]:
    if whom["person"]:
        return "person", PERSONS_ZH[whom["person"]]
    return ("i", "") if whom["i"] else ("", "")


def _whole(said: Predicate) -> Iterator[Find]:
    """Finds of sentences whose clauses don't begin with their subject."""
    text = said.sentence
    if "叫我" in text:
        call = _CALL_ME.search(text)
        if call and (call["p"] or call["s"]) and not re.match(r"[你他她来去别快做滚怎什何那哪]", call["v"]):
            yield _find(said, "nickname", call.span("v"), "assert", call.start("v") - 2, "call_me", 0.85)
    if "生日" in text:
        day = _BIRTHDAY.search(text)
        date = date_of(day["v"], said.said_on) if day else None
        if day and date:
            find = _find(said, "birthday", day.span("v"), "assert", day.start(), "birthday_today", 0.85)
            find.value = date
            yield find
    if "每" in text or "天天" in text or "周末" in text:
        for routine in _ROUTINE.finditer(text):
            before = text[: routine.start()]
            if _SOMEBODY.search(before):
                continue
            ours = re.search(r"(?:^|[,;])(?:我们?|咱们?|平时|一般|我平时|我一般|[^,;]{0,6}我)?$", before)
            if (
                ours
                and _DOES.search(routine["b"])
                and not _NOT_ROUTINE.search(routine["v"])
                and (not routine["v"].startswith("周末") or "都" in routine["v"])
                and ("我" in text or "咱" in text)
            ):
                yield _find(said, "routine", routine.span("v"), "assert", routine.start(), "routine", 0.8)
    for called in _SOMEBODY_CALLED.finditer(text):
        yield _find(said, ATTRIBUTES_ZH[called["k"]], called.span("v"), "assert", called.start(), "somebody", 0.85)


_PET_CALLED = re.compile(rf"(?P<s>{alternatives(words.SPECIES_ZH)})(?:名字)?(?:叫做?|是叫){NAME}{END}")


def _pet_died(said: Predicate, whom: re.Match[str]) -> Iterator[Find]:
    died = _DIED.match(said.sentence, whom.end())
    if died:
        find = _find(said, "pet", died.span("s"), "retract", whom.start(), "pet_died", 0.85)
        find.end = died.end() + said.offset
        if died["n"]:
            find.value = f"{said.original(*died.span('n'))} ({find.value})"
        yield find
        return
    named = _PET_CALLED.match(said.sentence, whom.end())
    if named:
        find = _find(said, "pet", named.span("v"), "assert", whom.start(), "pet_named", 0.85)
        find.value = f"{find.value} ({said.original(*named.span('s'))})"
        yield find


_KIN_CALLED = re.compile(rf"(?:的)?(?:名字|小名|大名|英文名)?(?:叫做?|名叫|是叫){NAME}{END}")


def _kin(said: Predicate, whom: re.Match[str], begin: int) -> Iterator[Find]:
    """Finds about somebody of the family as such: their name, their death."""
    text, word = said.sentence, said.original(*whom.span("person"))
    member = MEMBERS[PERSONS_ZH[whom["person"]]]
    called = _KIN_CALLED.match(text, whom.end())
    if called and people.is_name(called["v"]):
        find = _find(said, member, called.span("v"), "assert", begin, "member_named", 0.9)
        find.value = f"{find.value} ({word})"
        yield find
    died = _DIED_KIN.match(text, whom.end())
    if died and text[died.end() - 2 : died.end()] != "走了":
        find = _find(said, member, whom.span("person"), "retract", begin, "member_died", 0.8)
        find.end = died.end() + said.offset
        yield find


def _predicate(
    said: Predicate, at: int, end: int, begin: int, person: str, subject: str, before: str = ""
) -> Iterator[Find]:
    """Finds of the first rule that reads something in the predicate of a clause."""
    text = said.sentence
    attribute = _ATTRIBUTE.match(text, at, end) if not person else None
    if attribute:
        found = list(_attribute(said, attribute, begin))
        if found:
            yield from found
            return
    starts = [at]
    prior = _PRIOR.match(text, at, end)
    if prior and prior.end() > at and not _BORN.match(text, at, end):
        starts.insert(0, prior.end())
    for start in starts:
        negation = _NEGATION.match(text, start, end)
        head = before + text[at:start]
        forms = [(start, False)] if negation is None else [(negation.end(), True), (start, False)]
        if negation and text.startswith("没有", start):
            forms.insert(1, (start + 2, True))
        for place, negated in forms:
            about = replace(said, family=bool(person), negated=negated)
            found = list(_match(about, place, end, begin, person, subject, negated, head))
            if found:
                yield from found
                return


_BORN = re.compile(
    r"(?:(?:19|20)?\d\d年)?(?:[\d一二三四五六七八九十]{1,2}月)?(?:[\d一二三四五六七八九十]{1,3}[日号])?出?生"
)


def _match(
    said: Predicate, place: int, end: int, begin: int, person: str, subject: str, negated: bool, head: str
) -> Iterator[Find]:
    used = bool(_USED.search(head))
    carried = subject == "carried"
    for rule, pattern in COMPILED:
        if (
            (person and not rule.family)
            or (subject == "bare" and not rule.bare)
            or (carried and rule.name in _OWN_SUBJECT and "姓" not in said.sentence[:begin])
        ):
            continue
        if not rule.speaks(negated=negated):
            continue
        match = pattern.match(said.sentence, place, end)
        if match is None:
            continue
        found = list(_read(said, rule, match, begin, person, negated, used, head))
        if found:
            for find in found:
                if subject == "bare":
                    find.confidence -= 0.1
            yield from found
            return


def _read(
    said: Predicate, rule: Rule, match: re.Match[str], begin: int, person: str, negated: bool, used: bool, head: str
) -> Iterator[Find]:
    """A rule's values as finds, with the kind that negation and tense give them."""
    if person and used:
        return
    coming = reading.COMING.search(head) if rule.kind else None
    if coming and not negated and not person:  # "下个月入职X" is a plan yet.
        yield _find(said, "plan", match.span(), "assert", begin, f"{rule.name}_to_come", 0.8)
        return
    for about, value, end in rule.read(said, match):
        key, kind = about, _kind(said, rule, match, about, negated=negated, used=used, head=head)
        if rule.name == "age" and kind == "correct" and not person:
            yield from _birthday_reached(said, match, begin, head)
        if negated and rule.negated == "opposite":
            if "不再" in said.sentence[begin:end] or said.sentence.startswith("了", end):
                kind = "retract"
            else:
                key = "dislikes"
        find = found_by(said, f"zh.{rule.name}", key, value, kind, begin, end, person=person)
        if find is not None:
            yield find


def _kind(said: Predicate, rule: Rule, match: re.Match[str], key: str, *, negated: bool, used: bool, head: str) -> Kind:
    """What negation, tense and the particle of a change make of a value."""
    if rule.kind == "retract" or used or (negated and rule.negated == "retract"):
        return "retract"
    changed = rule.kind == "event" and not key_of(key).multi
    if rule.name == "marital":
        changed = "的婚" in match["v"] or said.sentence.startswith(("了", "啦"), match.end("v"))
    elif rule.name == "age":
        changed = bool(match["m"]) or "刚" in head
    return "correct" if changed or match[0].startswith("当上") else "assert"


def _birthday_reached(said: Predicate, match: re.Match[str], begin: int, head: str) -> Iterator[Find]:
    """The birthday of "昨天满三十岁了"."""
    day = re.search(r"今天|昨天", head)
    date = date_of(day[0], said.said_on) if day else None
    if date:
        find = _find(said, "birthday", match.span("v"), "assert", begin, "birthday_reached", 0.8)
        find.value = date
        yield find


_NAMES = listed("name surname nickname english_name boss roommate supervisor landlord best_friend")


_HOBBIES = re.compile(r"(?P<v>[^\s,;:!?()\"]{1,40}?)" + END)


def _attribute(said: Predicate, match: re.Match[str], begin: int) -> Iterator[Find]:
    """ "我的血型是AB型"."""
    key = ATTRIBUTES_ZH[match["k"]]
    kind: Kind = "retract" if "不是" in match["is"] else "assert"
    start, end = match.span("v")
    value = said.sentence[start:end]
    if re.match(r"(?:什么|谁|哪|怎|多|你|这|那|很|不|非常|最|为了|个|一个|秘密|真的)", value) and key != "nickname":
        return
    if key in _NAMES and not people.is_name(value):
        return
    if key in ("birthday", "anniversary"):
        date = date_of(value, said.said_on)
        if date:
            find = _find(said, key, (start, end), kind, begin, f"my_{key}", 0.9)
            find.value = date
            yield find
        return
    if key == "employer" and not re.match(reading.ORGANISATION_ZH, value):
        return
    if key == "age":
        value = normalise("age", value)
        if not value.isdecimal():
            return
        find = _find(said, key, (start, end), kind, begin, "my_age", 0.9)
        find.value = value
        yield find
        return
    if key == "occupation" and not re.search(rf"{words.OCCUPATION_ZH}$", value):
        return
    if key == "hobby":
        listed = _HOBBIES.match(said.sentence, start)
        for _, found, stop in reading.many("hobby")(said, listed) if listed else ():
            find = _find(said, key, (start, stop), kind, begin, "my_hobby", 0.9)
            find.value = found
            yield find
        return
    yield _find(said, key, (start, end), kind, begin, f"my_{key}", 0.9)
