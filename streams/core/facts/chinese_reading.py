"""How the match of a Chinese rule is read: which values it holds, where they end, and which it had better not take.

Invariant: values are bounded by their clause, so reading takes time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streams.core.facts import words
from streams.core.facts.dates import date_of, number
from streams.core.facts.places import CITIES, GENERIC_ZH, ORGANISATION_ZH, PLACE_ZH
from streams.core.facts.predicate import Predicate
from streams.core.facts.rule import Read, Value, one_of
from streams.core.facts.vocabulary import FAVOURITES_ZH
from streams.core.facts.words import listed

PARTICLES = r"(?:了|啦|的|呢|啊|呀|吧|哦|哈|嘛|喔|噢|诶|哟|嘞|滴|咯|~|\.)"
END = rf"(?={PARTICLES}*(?:[,;:!?()\" -]|$)|而?不是)"
"""Where a value ends: with its clause, final particles left out, or before "not ...". """
V = r"(?P<v>[^\s,;:!?()\"]{1,20}?)"
LIST = r"(?P<v>[^\s,;:!?()\"]{1,40}?)"
NAME = r"\"?(?P<v>[\u4e00-\u9fff·]{2,5}|[a-z][a-z .'-]{1,24}[a-z])\"?"
ACTIVITY = r"(?:吃|喝|看|听|玩|打|跑|游|做|读|唱|跳|旅|摄|运动|爬|写|画|逛|骑|钓|养|滑|睡|收集|研究|折腾)"

_SPLIT = re.compile(
    r"[、/]|还有|以及|或者|(?<=[\u4e00-\u9fffa-z])[和跟与](?=[\u4e00-\u9fffa-z])|(?<=[\u4e00-\u9fff])啊"
    r"(?=[\u4e00-\u9fff])"
)
_TRAIL = re.compile(rf"(?:{PARTICLES}|之类的?|什么的|等等?|这些|也行|都行|很久|很多年)+$")
_COMPLEMENT = re.compile(r"[不了过着得完透死]|起(?!床|司)|到|给|被|把|极了|坏了|惨了|上了|下去")
"""What follows a verb to say how it went: 恨透了, 买不起. No value begins with it."""


def trimmed(said: Predicate, start: int, end: int) -> tuple[int, int]:
    """Without blanks, quotes and particles at its ends; nothing is left of a complement (恨透了, 买不起)."""
    text = said.sentence
    while start < end and text[start] in " \"'":
        start += 1
    while start < end and text[end - 1] in " \"'.":
        end -= 1
    if _COMPLEMENT.match(text, start, end):
        return start, start
    tail = _TRAIL.search(text[start:end])
    return (start, start + tail.start()) if tail and tail.start() else (start, end)


one = one_of(trimmed)


def _items(said: Predicate, start: int, end: int) -> Iterator[tuple[int, int]]:
    text = said.sentence
    at = start
    for mark in [*_SPLIT.finditer(text, start, end), None]:
        stop = mark.start() if mark else end
        first, last = trimmed(said, at, stop)
        if first < last:
            yield first, last
        at = mark.end() if mark else end


def many(key: str) -> Read:
    """Each item of the group ``v``."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        for start, end in _items(said, *match.span("v")):
            if not _VAGUE.match(said.sentence[start:end]):
                yield key, said.original(start, end), end

    return read


_VAGUE = re.compile(
    r"(?:这|那|你|您|他|她|它|我|什么|自己|别人|大家|所有|一切|任何|某|谁|很多东西|东西$|人$|事$|一个$|得|着|死|不)"
)
_NOT_LIKED = re.compile(
    r"(?:这|那|你|您|他|她|它|我|什么|自己|别人|大家|上[了的]?$|的|第|一个人$|某|谁|被|把|死|不|得|有点|为|说|现在"
    r"|今天|听你|看你|跟你|和你|就|过|人家|某个|着|其中|里面)"
)


_VERBS = listed("吃 喝 看 听 玩 打 跑 撕 说 做 睡 喜欢 买 写 画 唱 笑 哭 动 走")
"""A verb alone says nothing of what is liked."""
_BUT = re.compile(r"但|可是|不过|因为|所以|而且")


def liked(key: str) -> Read:
    """Each item that names a thing or something to do: not 你, 这首歌."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        first, last = match.span("v")
        stop = _BUT.search(said.sentence, first, last)
        for start, end in _items(said, first, stop.start() if stop else last):
            value = said.sentence[start:end]
            if (
                value in _VERBS
                or "不" in value
                or _NOT_LIKED.match(value)
                or len(value) > 14
                or re.search(r"[你您他她]|这么|那么|这样|那样", value)
            ):
                return
            yield key, said.original(start, end), end

    return read


_NOT_EATEN = re.compile(
    r"(?:这|那|你|您|他|她|它|我|什么|了|饭|早饭|午饭|晚饭|早餐|东西|多|太多|下|完|惯|起|到|过|得|准|饱|亏|不|药|动"
    r"|消|一口|苦$|醋$|水$)"
)


_NO_MORE = re.compile(r"不|也|就|但|因为|的时候|会|了")


def avoided(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """What isn't eaten or drunk: 香菜, but not 饭 or 这个."""
    if "爱" in match[0][:3]:
        return
    first, last = match.span("v")
    stop = _NO_MORE.search(said.sentence, first, last)
    for start, end in _items(said, first, stop.start() if stop else last):
        if _NOT_EATEN.match(said.sentence[start:end]) or end - start > 8:
            return
        yield "avoids", said.original(start, end), end


def age(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """An age in digits; about to be reached is not reached."""
    years = number(match["v"])
    if years is not None and 1 < years < 120 and match["m"] not in ("快", "马上") and (years >= 6 or said.family):
        yield "age", str(years), match.end("v")


def born(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "1992年5月4日出生在一个小县城": when, and where if it is said."""
    if (
        "生" not in match[0]
        and not match[0].endswith("年的")
        and not re.match(r"(?:出?生|年?生)", said.sentence[match.end() : match.end() + 3])
    ):
        return
    day = match["d"]
    if len(day) == 3 and day.endswith("年"):
        day = ("19" if int(day[:2]) > 30 else "20") + day
    found = date_of(day, said.said_on)
    if found:
        yield "birthday", found, match.end("d")
        start, end = trimmed(said, *match.span("v"))
        where = said.sentence[start:end].removeprefix("出生").removeprefix("在").removeprefix("于")
        if where and not re.match(r"(?:的|人|出|生)", where):
            yield "origin", said.original(end - len(where), end), end


_NOT_PLACES = re.compile(
    r"(?:的|进|没|院|下[雨雪]|这|那|你|您|他|她|它|我|一起|哪|家里?$|医院|宾馆|酒店|隔壁|楼上|楼下|学校|宿舍|院"
    r"|朋友|一个屋|外面|附近|单位|里面|下铺|上铺|得|着|了|过|在|一楼|顶楼|同一|不|进来|民宿|一间|幸福|海边$|心里"
    r"|过去|国外$|好久|很久|几天|一晚)"
)


def place(key: str) -> Read:
    """A place where somebody lives or comes from."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        start, end = trimmed(said, *match.span("v"))
        text = said.sentence
        doing = re.search(
            r"(?<=..)(?:养老|工作|上班|定居|生活|发展|读书|上学|那边|这边|这里|这儿|住)$", text[start:end]
        )
        if doing:
            end = start + doing.start()
        if start >= end:
            return
        if text[start] == "在" and end - start > 2:
            start += 1
        if end - start >= 2 and not _NOT_PLACES.match(text[start:end]) and not _NO_PLACE.search(text[start:end]):
            yield key, said.original(start, end), end

    return read


_NO_PLACE = re.compile(
    r"[一两三][天晚夜]|年$|未来|火星|外星|宇宙|酒店|宾馆|旁边|附近|对面|那家|隔壁|民宿"
    r"|[\d一二三四五六七八九十][楼层栋号]|宿舍|公司|新家|新房|房子|公寓$|一起|和|跟|男友|女友|不|得"
    r"|地方|装修|文件|桌面|目录|群"
)
"""What no place where somebody lives has in its name."""
_KNOWN_PLACE = re.compile(rf"{PLACE_ZH}$")


def known_place(key: str) -> Read:
    """A place that is known as one: 在家住 and 在医院待 are none."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        start, end = trimmed(said, *match.span("v"))
        if _KNOWN_PLACE.match(said.sentence[start:end]):
            yield key, said.original(start, end), end

    return read


_ORGANISATION = re.compile(rf"{ORGANISATION_ZH}$")
_GENERIC = re.compile(GENERIC_ZH)
_CITY = re.compile(rf"(?:{CITIES})(?:市|这边|那边)?$")
_NOT_WORK = re.compile(r"[，,]?(?:一个|这|那|什么|怎么|你)|.*(?:学习|考试)")


def work(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """Where somebody works, an organisation or else a town that is their home, and as what."""
    groups = match.groupdict()
    start, end = match.span("e")
    where = said.sentence[start:end]
    if _ORGANISATION.match(where) and not _GENERIC.match(where) and not _CITY.match(where):
        yield "employer", said.original(start, end), end
    elif groups.get("v") and _CITY.match(where):
        yield "home", said.original(start, end), end
    if groups.get("v"):
        yield from occupation(said, match)


def employer_any(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """Whom somebody left: whatever is named, "whatever it was" for 公司 and its like."""
    start, end = match.span("e")
    value = said.original(start, end)
    if not re.match(r"[今昨明这那此]", value):
        yield "employer", "" if _GENERIC.match(said.sentence[start:end]) else value, match.end()


def now_at(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "现在在拼多多", after a change of jobs; of other days it is where somebody is just now."""
    if re.search(r"换(?:了)?(?:个|份)?工作|跳槽|入职|新工作|离职|辞职", said.sentence):
        yield from work(said, match)


_BEFORE_OCCUPATION = re.compile(r"(?:一?[名个位](?:普通的?|资深的?)?|全职|的|在|我|你|他|她|这|那|也是)")


def occupation(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """An occupation, known by its end."""
    start, end = match.span("v")
    text = said.sentence
    if re.match(
        r"(?:.*[你他她我这那]|.*第一|好|坏|差|笨|合格的|什么|最|不|个好|了|过|时|上|着|新手|老司机|小学生$|打工)",
        text[start:end],
    ):
        return
    of = text.rfind("的", start, end)
    if of > 0:
        if not re.match(r"(?:优秀|普通|资深|专业|自由|全职|兼职|退休|光荣|小小|平凡)$", text[start:of]):
            return
        start = of + 1
    lead = re.match(r"(?:一?[名个位])", text[start:end])
    if lead:
        start += lead.end()
    yield "occupation", said.original(start, end), end


def count(key: str) -> Read:
    """A number in digits."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        found = number(match["v"])
        if found:
            yield key, str(found), match.end()

    return read


def illness(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """What somebody fell ill with; 得了第一 is none."""
    start, end = trimmed(said, *match.span("v"))
    value = said.sentence[start:end]
    if re.search(
        r"(?:病|症|炎|癌|瘤|疹|痘|流感|肿|痿|痨|损伤|骨折|结石|综合征|障碍|突出|中毒|增生|感染|高血压|哮喘|贫血)$",
        value,
    ):
        yield "health", said.original(start, end), end


def diet(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """A diet as said."""
    yield "diet", said.original(*match.span("v")), match.end("v")


def played(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """What somebody plays: said to be able to, learning, or doing for years; 去打篮球 is only today's."""
    if re.match(r"会|在学|学|玩|能", match[0]) or re.search(r"年|很久", match[0]) or said.negated:
        yield "hobby", said.original(*match.span("v")), match.end("v")


_LANGUAGE = re.compile(words.LANGUAGE_ZH)


def languages(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """Each language of a list."""
    for found in _LANGUAGE.finditer(said.sentence, *match.span("v")):
        yield "language", said.original(*found.span()), found.end()


def school(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """Where somebody graduated; a school that is only mentioned isn't it."""
    if "毕业" in match[0] and not re.match(r"(?:我?大学|高中|中学|学校|初中|从?这|那)$", match["v"]):
        start, end = match.span("v")
        yield "education", said.original(start, end), end


def thing(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """A thing owned; 有钱买车 owns none."""
    start, end = trimmed(said, *match.span("v"))
    if start < end and not re.search(r"[你他她]|钱买|时间|机会|空|想|问题|人", said.sentence[start:end]):
        yield "possession", said.original(start, end), end


_THINGS_TO_EAT = {"吃": "food", "喝": "drink", "看": "watch", "听": "music", "玩": "game"}


def favourite(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "最喜欢的颜色是绿色"; without a noun it is something liked."""
    noun, verb = match["k"], match["verb"]
    start, end = trimmed(said, *match.span("v"))
    value = said.sentence[start:end]
    if re.match(r"(?:什么|你|这|那|哪|谁|看|当|在|他|她|最后)", value) or (
        noun and re.match(r"(?:部分|地方|一点|事|就|人|时候|一个|一集|还)", noun)
    ):
        return
    if noun is None:
        key = f"favourite_{_THINGS_TO_EAT[verb]}" if verb in ("吃", "喝") else "likes"
    else:
        key = f"favourite_{FAVOURITES_ZH.get(noun, noun)}"
    yield key, said.original(start, end), end


FUTURE = re.compile(
    r"明[天年晚]|后[天年]|下个?[月周星礼]|下下|年底|月底|暑假|寒假|国庆|春节|元旦|五一|十一(?!月)|周末"
    r"|[\d一二三四五六七八九十]月|马上|即将|过几天|过两天|秋天|冬天|夏天|春天|今年"
)
COMING = re.compile(
    r"下下?个?[月周星礼]|明[年天晚]|后[年天]|即将|马上|年底|暑假|寒假|国庆|春节|过几天|过两天|打算|准备|决定"
)
"""What is said of things to come."""
_WHEN = re.compile(
    r"(?:(?:明|后|今)[年天]的?|上半年|下半年|下下?个?(?:月|周|星期|礼拜)[一二三四五六日天末]?|(?:今年|明年)?"
    r"(?:1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])月(?:份|底|初|中旬|[\d一二三四五六七八九十]{1,3}[日号])?"
    r"|年底|年初|月底|暑假|寒假|国庆|春节|元旦|五一|周末|过几天|过两天|秋天|冬天|夏天|春天|去年)+(?:的时候|就|再|要"
    r"|会|先)*"
)
_NOT_PLANS = re.compile(
    r"(?:去)?(?:(?:睡|吃|洗|上班|上课|开会|上个?厕所|商店|超市|买菜|散步|忙|一趟|看看|问|说|告诉|试|今[晚天]|待会"
    r"|一会|早点|晚点|做饭|起床|下班|休息|想|死|把|给你|问你|跟你|和你|放弃|不|好好|了|看书|个|用|重|改|结束)|"
    r"(?:回家|回复|回头|回答|换个(?!手机|工作|城市|电脑|房子)|开始了))"
)


def planned(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """What is going to be done, without its time; without a word of planning a time to come is needed."""
    start, end = trimmed(said, *match.span("v"))
    text = said.sentence
    when = _WHEN.match(text, start, end)
    if when:
        start = when.end()
    start += len(re.match(r"(?:就|要|会|再|先)*", text[start:end])[0])  # type: ignore[index]
    value = text[start:end]
    if (
        end - start < 2
        or _NOT_PLANS.match(value)
        or re.search(r"[你您他她]|^(?:有|是|没|好|得|的|表|赶|太|在|对|就|出来|过来|书$)|过(?:一次)?$", value)
    ):
        return
    if not match["firm"]:
        modal = re.match(r"就?要|会|将|即将|就", match[0])
        before = text[max(0, match.start() - 12) : end]
        if not COMING.search(before) and not (modal and FUTURE.search(before)):
            return
        if re.match(r".{1,2}的", value):
            return
    yield "plan", said.original(start, end), end


def home_in(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
    """ "我家在苏州"; 我在苏州 is where somebody is just now."""
    if match[0].startswith("家") or re.search(r"家$", said.sentence[: match.start()]):
        yield from known_place("home")(said, match)


_HAMLET = re.compile(
    r"(?:一[个座]|某个?)?[\u4e00-\u9fff]{0,6}(?:县城|山村|小镇|农村|乡下|渔村|城市|山区|北方|南方|西北|西南|沿海"
    r"|海边)$"
)


def place_like(key: str) -> Read:
    """A known place, or a small town and its like: 来自首页推荐 is none."""

    def read(said: Predicate, match: re.Match[str]) -> Iterator[Value]:
        start, end = trimmed(said, *match.span("v"))
        value = said.sentence[start:end]
        if _KNOWN_PLACE.match(value) or _HAMLET.match(value):
            yield from place(key)(said, match)

    return read
