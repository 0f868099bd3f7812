"""Identifiers of persons in text: found, counted, and replaced by placeholders before anything derived is written.

What goes: numbers of identity documents, phones, bank cards, IBANs, passports, emails, street addresses, accounts of
messengers, licence plates, and passwords, codes and keys said in chat. What stays: whatever a memory is for. So of an
address the street, house and flat go, the city and district stay ("浦东新区[地址]"): where somebody lives is a fact.

Shapes that are ambiguous count only with a check digit (identity numbers, cards, IBAN), with a numbering plan (phones),
or with a cue beside them (passports, passwords, plain digits); a number that is introduced as an order, a parcel, a
version or a price stays. A password that is a plain word in a sentence without a cue can't be told from a word.

Invariants: ``redact`` is a function of the text alone, linear in its length, and idempotent; all outside the
identifiers stays as it was written (full-width digits, traditional characters and Chinese numerals are folded for
matching only).

References
----------
GB 11643-1999 (identity number, ISO 7064 MOD 11-2); ISO/IEC 7812-1 annex B (Luhn); ISO 13616 (IBAN, MOD 97-10).
Phone numbering plans: libphonenumber.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import phonenumbers

from streams.core.text import language

PLACEHOLDERS = {
    "identity": ("[id number]", "[证件号]"),
    "passport": ("[passport]", "[护照号]"),
    "card": ("[card number]", "[银行卡号]"),
    "iban": ("[bank account]", "[银行账号]"),
    "phone": ("[phone]", "[电话]"),
    "email": ("[email]", "[邮箱]"),
    "address": ("[address]", "[地址]"),
    "password": ("[password]", "[密码]"),
    "code": ("[code]", "[验证码]"),
    "key": ("[key]", "[密钥]"),
    "account": ("[account]", "[账号]"),
    "plate": ("[plate]", "[车牌]"),
}
"""What stands in the place of each kind: in English and in Chinese."""

PASSES_MAX = 8
"""A replacement can uncover another identifier beside it; texts of people take one pass and a pass that finds none."""

_HAN_DIGITS = "〇零一二三四五六七八九幺两"
_HALF = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20, 0x2010: 0x2D, 0x2011: 0x2D, 0xA0: 0x20}
_HALF |= {ord(dash): 0x2D for dash in "–—−"}
_SPOKEN = str.maketrans(_HAN_DIGITS, "00123456789" + "12")
_HAN_RUN = re.compile(rf"[{_HAN_DIGITS}]{{6,}}")

Check = Callable[[str, re.Match[str]], bool]
"""Whether a match in the folded text is an identifier."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without identifiers, and how many of each kind went."""

    text: str
    found: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Rule:
    """A shape; the group ``v`` is what goes, or the whole match where there is none."""

    kind: str
    pattern: re.Pattern[str]
    check: Check | None = None
    gates: tuple[str, ...] = ()
    """Not tried unless the text in lower case has one of these (none: a digit). Measured: a turn costs a quarter."""


def redact(text: str) -> Redacted:
    """Replace identifiers by placeholders in the text's language.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    Redacted
        ``found`` counts by kind (keys of ``PLACEHOLDERS``), only kinds that occurred.

    >>> redact("call me at 415-555-2671, order 415555267 is late").text
    'call me at [phone], order 415555267 is late'
    >>> redact("我的手机是１３８ ００１３ ８０００，密码是abc123").text
    '我的手机是[电话]，密码是[密码]'
    >>> redact("我住在北京市朝阳区建国路88号2单元301室").found
    {'address': 1}
    """
    tongue = 1 if language(_NUMBER.sub("", text)) == "zh" else 0
    found: Counter[str] = Counter()
    for _ in range(PASSES_MAX):
        spans = _spans(text)
        if not spans:
            break
        pieces, end = [], 0
        for start, stop, kind in spans:
            pieces += [text[end:start], PLACEHOLDERS[kind][tongue]]
            end = stop
            found[kind] += 1
        text = "".join(pieces) + text[end:]
    return Redacted(text, dict(sorted(found.items())))


def luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of the others.

    >>> luhn("4111111111111111"), luhn("4111111111111112")
    (True, False)
    """
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + index % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def chinese_identity(number: str) -> bool:
    """Whether 18 characters are a resident identity number: a province, a date, a check digit.

    >>> chinese_identity("11010519491231002X"), chinese_identity("110105194912310021")
    (True, False)
    """
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    if len(number) != 18 or number[:2] not in _PROVINCES or not _day(number[10:14]):
        return False
    total = sum(int(digit) * weight for digit, weight in zip(number, weights, strict=False))
    return number[17].upper() == "10X98765432"[total % 11]


def iban(number: str) -> bool:
    """Whether a number without blanks has the check digits of an IBAN.

    >>> iban("GB82WEST12345698765432"), iban("GB83WEST12345698765432")
    (True, False)
    """
    turned = number[4:] + number[:4]
    return 15 <= len(number) <= 34 and int("".join(str(int(character, 36)) for character in turned)) % 97 == 1


_PROVINCE_CODES = (
    "11 12 13 14 15 21 22 23 31 32 33 34 35 36 37 41 42 43 44 45 46 50 51 52 53 54 61 62 63 64 65 71 81 82 83"
)
_PROVINCES = frozenset(_PROVINCE_CODES.split())
_DIGITS = re.compile(r"\d")
_NUMBER = re.compile(r"\d+")
_REFERENCE = re.compile(
    r"(?:order|invoice|tracking|parcel|shipment|ticket|receipt|reference|ref|isbn|issn|ean|upc|sku|serial|model|"
    r"version|"
    r"build|commit|booking|case|flight|订单|訂單|单号|單號|运单|快递|快遞|流水|编号|編號|型号|版本|票号|工单|发票|"
    r"條碼|条码|书号|"
    r"航班|学号|序列号|批号|案号)(?: ?(?:number|no\.?|num|id|号码?|號碼?))?[ \t]{0,2}(?:is|was|:|#|=|是|为|"
    r"為)?[ \t#]{0,2}$"
)
"""What introduces a number that identifies a thing."""
_PRICED = re.compile(r"[$€£¥￥][ \t]?$|\b(?:rmb|usd|eur)[ \t]?$")


def _day(digits: str) -> bool:
    """Whether MMDD is a day of some year."""
    return 1 <= int(digits[:2]) <= 12 and 1 <= int(digits[2:]) <= 31


def _digits(text: str) -> str:
    return "".join(_DIGITS.findall(text))


def _start(match: re.Match[str]) -> int:
    return match.start("v") if "v" in match.re.groupindex else match.start()


def _personal(plain: str, match: re.Match[str]) -> bool:
    """Nothing before it says that the number is a thing's or a price."""
    before = plain[max(0, _start(match) - 24) : _start(match)].casefold()
    return _REFERENCE.search(before) is None and _PRICED.search(before) is None


def _is_identity(plain: str, match: re.Match[str]) -> bool:
    return chinese_identity(re.sub(r"[ -]", "", match[0]))


def _is_old_identity(plain: str, match: re.Match[str]) -> bool:
    number = match[0]
    return number[:2] in _PROVINCES and _day(number[8:12]) and _personal(plain, match)


def _is_ssn(plain: str, match: re.Match[str]) -> bool:
    area, group, serial = match[0].split("-")
    return area not in {"000", "666"} and area < "900" and group != "00" and serial != "0000"


def _is_card(plain: str, match: re.Match[str]) -> bool:
    digits = _digits(match[0])
    return bool(_CARD_SCHEMES.fullmatch(digits)) and luhn(digits) and _personal(plain, match)


_CARD_SCHEMES = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3[0689]\d{12}|35\d{14}|6[0245]\d{14,17}|"
    r"9558\d{15}"
)
"""Beginnings and lengths in use: a card number drawn from any digits would fit one number in ten by chance."""


def _is_iban(plain: str, match: re.Match[str]) -> bool:
    return iban(match[0].replace(" ", ""))


def _is_international(plain: str, match: re.Match[str]) -> bool:
    number = "+" + _digits(match[0]).removeprefix("00") if match[0].startswith("00") else match[0]
    try:
        return bool(phonenumbers.is_possible_number(phonenumbers.parse(number)))
    except phonenumbers.NumberParseException:
        return False


_NATIONAL_REGIONS = ("GB", "DE", "FR", "JP", "TW", "AU", "KR", "IT")
"""Plans whose numbers begin with 0 and are written in groups; China and North America have shapes of their own."""


def _is_national(plain: str, match: re.Match[str]) -> bool:
    if not _personal(plain, match):
        return False
    for region in _NATIONAL_REGIONS:
        try:
            if phonenumbers.is_valid_number(phonenumbers.parse(match[0], region)):
                return True
        except phonenumbers.NumberParseException:
            continue
    return False


def _is_cued_phone(plain: str, match: re.Match[str]) -> bool:
    count = len(_DIGITS.findall(match["v"]))
    return 7 <= count <= 15 and _personal(plain, match) and _REFERENCE.search(match["cue"].casefold()) is None


_NO_SECRET = (
    "a an the my your his her our their this that it not no so too very really still also now just being been be is "
    "was wrong incorrect invalid expired weak strong safe secure secret private hidden hard easy long short simple "
    "complex complicated different same old new changed reset required needed protected missing lost forgotten "
    "stolen unknown correct right fine ok okay good bad broken stupid annoying empty blank saved stored on in at "
    "for to with by of and or but if because only always never something someone what which where how why who "
    "working ready set case-sensitive based made about more less than there here everywhere anything nothing "
    "everything mine yours going gone sent coming unsafe compromised leaked encrypted hashed written good-enough "
    "like"
)
_WORDS_NO_SECRET = frozenset(_NO_SECRET.split())
"""Words that follow "password is" in sentences that give none away."""


def _is_secret(plain: str, match: re.Match[str]) -> bool:
    """A word is a secret if it isn't what sentences about passwords go on with."""
    value = match["v"].strip("\"'`“”‘’「」")
    if match["v"][0] in "\"'`“‘「":
        return len(value) >= 3
    if value.isalpha() and value.isascii():
        if value.islower() or value.istitle():
            rest = plain[match.end("v") : match.end("v") + 1]
            return (
                value.casefold() not in _WORDS_NO_SECRET and len(value) >= 4 and rest in ("", ".", ",", "!", "\n", ";")
            )
        return True
    return len(value) >= 3 and value.casefold() not in _WORDS_NO_SECRET and not re.fullmatch(r"[\W_]+", value)


def _is_key_value(plain: str, match: re.Match[str]) -> bool:
    value = match["v"]
    return any(character.isdigit() for character in value) and any(character.isalpha() for character in value)


def _is_figures(plain: str, match: re.Match[str]) -> bool:
    """What follows a password's name without "is" is one if no word or number of a sentence looks like it."""
    value = match["v"]
    return (value.isdigit() and not re.fullmatch(r"(?:19|20)\d\d", value)) or _is_key_value(plain, match)


def _has_digits(plain: str, match: re.Match[str]) -> bool:
    return len(_DIGITS.findall(match["v"])) >= 4


_LOWER_CUE = re.compile(
    r"(?:address(?:es)?|live[sd]?|living|located|home|reside[sd]?|residing|moved?|send|deliver|ship|mail|office|house|"
    r"flat|apartment|place|stay(?:s|ing)?)\b[^.!?\n]{0,24}$"
)


_BETWEEN = (
    "minute minutes min mins hour hours day days week weeks month months year years second seconds mile miles km meter "
    "meters metre metres kilometer kilometers kilometre kilometres block blocks step steps foot feet time times people "
    "men women kids houses doors bedroom bedrooms more other of in on at to from for the a an and or down up along off "
    "per by with one my our your his her their this that"
)
_NOT_STREET = frozenset(_BETWEEN.split())
"""Words that stand between a number and a "road" or "walk" in sentences, and never in the name of a street."""


def _is_street(plain: str, match: re.Match[str]) -> bool:
    """Capitals make a street's name; in lower case a cue must stand before it."""
    words = re.findall(r"[a-z]+", plain[match.start("name") : match.end()].casefold())
    if not _NOT_STREET.isdisjoint(words):
        return False
    if not match["name"][:1].islower():
        return True
    return bool(_LOWER_CUE.search(plain[max(0, match.start() - 48) : match.start()].casefold()))


_STREET = (
    "street|st|avenue|ave|road|rd|lane|ln|drive|dr|boulevard|blvd|court|ct|place|pl|square|sq|terrace|way|parkway|pkwy|"
    "crescent|close|gardens|grove|highway|hwy|mews|row|walk"
)
_UNIT = r"(?:(?:apt|apartment|unit|suite|ste|flat|room|floor|fl)\b\.?|#) ?#?[A-Za-z]?\d{1,5}[A-Za-z]?"
_POSTCODE = r"(?:[A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}|[A-Z]{2} \d{5}(?:-\d{4})?)"
_KEYED = r"(?:[ \t]*(?:is|was|are|to|是|为|:|=|->|→)){1,2}[ \t]*"
_SECRET = (
    r"(?P<v>\"[^\"\n]{3,64}\"|'[^'\n]{3,64}'|`[^`\n]{3,64}`|“[^”\n]{3,64}”|「[^」\n]{3,64}」|[!-Z^-~][!-~]{2,63}?)"
)
# A secret ends at a blank, at Chinese text, or at the punctuation that ends its sentence.
_SECRET_END = r"(?=[.,;!?)\]}\"']{0,3}(?:[\s\u2e80-\uffff]|$))"
_ZH_SECRET = (
    r"(?P<v>\"[^\"\n]{3,64}\"|“[^”\n]{3,64}”|「[^」\n]{3,64}」|"
    r"(?![\d.]{1,8}[ \t]*(?:[年月日号號位个個次条條天分秒小元块塊%度]))[!-+\--Z^-~][!-+\--~]{2,63}?)"
)
# Names of streets: Han characters but those that verbs, pronouns and larger places end with.
_NAME = "[^\\W\\d_a-zA-Z我你他她它您们在住到去是于於从從来來的了吗和与與及把被给給寄送址省市区區县縣这這那条條哪每走沿]"
_BUILDING = f"{_NAME}{{1,8}}?(?:大厦|大廈|广场|廣場|花园|小区|公寓|家园|大楼|中心|苑)"
_PART = "[A-Za-z\\d一二三四五六七八九十-]"
_N = "[\\d一二三四五六七八九十百零〇]"

_RULES = (
    _Rule("key", re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,8000}(?:-----END [A-Z ]{0,30}KEY-----)?"),
          gates=("-----begin",)),
    _Rule("key", re.compile(
        r"(?<![\w-])(?:sk-[\w-]{8,200}|(?:sk|pk|rk)_(?:live|test)_\w{8,200}|gh[opsur]_\w{20,255}|github_pat_\w{20,255}|"
        r"glpat-[\w-]{16,64}|xox[abprs]-[\w-]{10,200}|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[\w-]{30,45}|hf_\w{20,64}|"
        r"npm_\w{30,64}|pypi-[\w-]{16,255}|eyJ[\w-]{8,2000}\.[\w-]{8,2000}\.[\w-]{5,2000})(?![\w])", re.ASCII),
        gates=("-", "_", "akia", "asia", "aiza", "eyj")),
    _Rule("key", re.compile(r"(?i)\bbearer[ \t]+(?P<v>[\w.~+/-]{16,2000}=*)", re.ASCII), _is_key_value),
    _Rule("key", re.compile(
        r"(?i)(?:(?<![a-z])(?:api|access|secret|private|auth|license|licence)[ _-]?(?:key|token)|(?<![a-z])token|"
        r"(?<![a-z])secret|密钥|密鑰|令牌|秘钥)"
        + r"(?:[ \t]*(?:is|was|:|=|是|为|為))[ \t]*[\"'`]?(?P<v>[\w.~+/-]{8,512}=*)", re.ASCII), _is_key_value),
    _Rule(
        "password", re.compile(r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,64}:(?P<v>[^\s:/@\[\]]{1,128})"
        r"@"), gates=("://",)),
    _Rule("password", re.compile(
        r"(?i)\b(?:passphrase|seed phrase|recovery phrase|mnemonic)" + _KEYED
        + r"(?P<v>[\"“]?[a-z]+(?:[ -][a-z]+){3,23}[\"”]?)(?=[.,;!\n]|$)"), gates=("phrase", "mnemonic")),
    _Rule("code", re.compile(
        r"(?i)(?<![a-z])(?:(?:verification|security|one[- ]time|auth(?:entication)?|confirmation|login|sms|2fa|otp|"
        r"door|gate|alarm|entry|unlock|access) ?"
        r"(?:code|passcode|pin)|otp|cvv2?|cvc)(?:[ \t]*(?:is|was|是|为|:|=))?[ \t]*(?P<v>[A-Za-z]?-?\d{3,8})"
        r"(?![\w-])")),
    _Rule("code", re.compile(
        r"(?i)(?:验证码|驗證碼|校验码|校驗碼|动态码|动态口令|确认码|安全码|cvv)(?:是|为|為|:|=|就是| )*[ \t]*"
        r"(?P<v>[A-Za-z]?-?\d{3,8})(?![\w位個个-])", re.ASCII)),
    _Rule("password", re.compile(
        r"(?i)(?<![a-z])(?:pass ?word|pass ?code|passwd|pwd|pw|pass|pin(?: code| number)?|passphrase|log ?in)"
        r"s?(?![a-z])"
        r"(?: (?:for|to|of|on|at) "
        r"[\w' .-]{1,32}?)?" + _KEYED + _SECRET + _SECRET_END), _is_secret, ("pass", "pwd", "pw", "pin", "log")),
    _Rule("password", re.compile(
        r"(?i)(?<![a-z])(?:pass ?word|pass ?code|passwd|pwd|pw|pin(?: code| number)?)[ \t]+(?P<v>[!-Z^-~][!-~]{3,63}?)"
        + _SECRET_END), _is_figures),
    _Rule("code", re.compile(r"(?i)\b(?:my|your|the) code(?: is|:) (?P<v>\d{6})(?!\w)")),
    _Rule("password", re.compile(
        r"(?i)(?:密码|密碼|口令|pin码|暗号|暗號)(?:[ \t]*(?:不是|还是|還是|就是|是|为|為|叫|:|=|改成了?|换成了?|設成|"
        r"设成|"
        r"设为|设置为)){0,2}[ \t]*"
        + _ZH_SECRET + _SECRET_END), _is_secret, ("密码", "密碼", "口令", "pin码", "暗号", "暗號")),
    _Rule("email", re.compile(
        r"(?<![\w.+-])"
        r"[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,24}(?![A-Za-z0-9-])", re.ASCII), gates=("@",)),
    _Rule("email", re.compile(
        r"(?i)(?<![\w.+-])[\w.+-]{1,64} ?(?:\(at\)|\[at\]| at ) ?[a-z0-9-]{1,40} ?(?:\(dot\)|\[dot\]| dot ) ?"
        r"(?:com|net|org|edu|io|cn|de|uk|me)\b", re.ASCII), gates=("dot",)),
    _Rule(
        "identity", re.compile(r"(?<![0-9A-Za-z.])[1-8]\d{5}[ -]?(?:18|19|20)\d{2}"
        r"[ -]?\d{4}[ -]?\d{3}[\dXx](?![0-9A-Za-z])"), _is_identity),
    _Rule("identity", re.compile(
        r"(?:身份证|身份證|证件|證件|\bid (?:card|number|no))[^\d\n]{0,10}(?P<v>[1-8]\d{14}(?:\d{2}[\dXx])?)"
        r"(?![0-9A-Za-z])", re.IGNORECASE)),
    _Rule("identity", re.compile(r"(?<![0-9A-Za-z.])[1-8]\d{14}(?![0-9A-Za-z])"), _is_old_identity),
    _Rule("identity", re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])"), _is_ssn),
    _Rule(
        "iban", re.compile(r"(?<![A-Za-z0-9])"
        r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])"), _is_iban),
    _Rule("card", re.compile(r"(?<![0-9A-Za-z.+-])\d(?:[ -]?\d){12,18}(?![0-9A-Za-z])"), _is_card),
    _Rule("card", re.compile(
        r"(?i)(?:卡号|卡號|银行卡|銀行卡|信用卡|储蓄卡|工资卡|的卡|账号|帳號|\bcard(?: number| no\.?)?|"
        r"\baccount(?: number| no\.?))[^\d\n]{0,8}"
        r"(?P<v>\d(?:[ -]?\d){11,18})(?![0-9A-Za-z])")),
    _Rule("passport", re.compile(
        r"(?i)(?:护照|護照|通行证|通行證|签证号|\b(?:passport|visa)(?: ?(?:number|no\.?|num))?)"
        r"[^\n。.!?]{0,24}?(?<![A-Za-z0-9])"
        r"(?P<v>[A-Z]{0,3}\d{5,9}[A-Z]?)"
        r"(?![A-Za-z0-9])"), _has_digits),
    _Rule("account", re.compile(
        r"(?i)(?:微信号?|wechat(?: id)?|qq号?|line id|telegram|skype)(?:[ \t]*(?:是|为|:|is))?[ \t]*"
        r"(?P<v>@?[a-z][a-z_-]{0,18}[\d_-][\w-]{1,19}|[1-9]\d{4,11})(?![\w])", re.ASCII),
        gates=("微信", "wechat", "qq", "line id", "telegram", "skype")),
    _Rule("phone", re.compile(
        r"(?<![\w+.])(?:\+|00)\d{1,3}[ .-]?\(?\d{1,4}\)?(?:[ .-]?\d{2,4}){1,5}(?![\w])", re.ASCII), _is_international),
    _Rule("phone", re.compile(r"(?<![0-9A-Za-z.+-])(?:86[ -]?)?1[3-9]\d(?:[ -]?\d{4}){2}(?![0-9A-Za-z])"), _personal),
    _Rule(
        "phone", re.compile(r"(?<![0-9A-Za-z.+-])(?<!\d )\(?0(?:10|2\d|[3-9]\d{2})"
        r"\)?[ -]?[2-8]\d{6,7}(?:[ -]\d{1,4})?(?![0-9A-Za-z-])"), _personal),
    _Rule("phone", re.compile(
        r"(?<![\w.+-])(?<!\d )(?:1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])"
        r"[2-9]\d{2}[ .-]\d{4}(?![\w-])(?! \d)", re.ASCII), _personal),
    _Rule(
        "phone", re.compile(r"(?<![\w.+-])"
        r"\(?0\d{1,4}\)?(?:[ -]\d{2,4}){1,4}(?:[ -]?\d{2,4})?(?![\w-])", re.ASCII), _is_national),
    _Rule("phone", re.compile(
        r"(?i)(?P<cue>\b(?:call|text|ring|phone|mobile|cell|tel|whatsapp|reach|fax|my number|his number|her number|"
        r"their number)\b"
        r"[^\d\n.!?]{0,20}|(?:电话|電話|手机|手機|号码|號碼|座机|传真|致电|打给|联系方式)[^\d\n。！？]{0,8})"
        r"(?P<v>\+?\(?\d(?:[ .()-]{0,2}\d){6,14})(?![0-9A-Za-z])"), _is_cued_phone),
    _Rule("address", re.compile(
        rf"(?i)(?<![\w.$€£])(?:{_UNIT},? )?\d{{1,5}}[a-z]? (?:[nsew]\.? )?(?-i:(?P<name>[A-Za-z][\w'.-]{{0,20}}|"
        rf"\d{{1,3}}(?:st|nd|rd|th)))"
        rf"(?: [a-z][\w'.-]{{0,20}}){{0,2}} "
        rf"(?:{_STREET})\b(?!['’-])\.?(?:,? {_UNIT})?(?:,? (?:[nsew]{{1,2}}\b))?(?:,? (?-i:{_POSTCODE})"
        rf")?", re.ASCII), _is_street),
    _Rule("address", re.compile(r"(?i)\bp\.?o\.? box \d{1,6}\b")),
    _Rule("address", re.compile(
        rf"{_NAME}{{1,8}}?(?:大道|大街|胡同|路|街|巷|弄|(?<![知味频街通轨报管难铁])道)"
        rf"(?:[东南西北中東]段?|{_N}{{1,3}}段)?[ ]?{_N}{{1,6}}[ ]?(?:号|號|弄)(?!线|線|楼?出口|选手|方案|球员|公交)"
        rf"(?:[ ,]?(?:{_BUILDING})?{_PART}{{1,5}}[ ]?(?:号楼|號樓|号|號|栋|棟|幢|座|塔|单元|單元|层|層|楼|樓|室|户|房))"
        r"{0,5}"),
        gates=("号", "號", "弄")),
    _Rule("address", re.compile(
        rf"{_NAME}{{0,10}}?[A-Za-z\d一二三四五六七八九十]{{1,4}}[ ]?(?:号楼|號樓|栋|棟|幢|座)"
        rf"(?:[ ,]?[A-Za-z\d一二三四五六七八九十]{{1,4}}[ ]?(?:单元|單元|门|门洞|层|層|楼|樓)){{0,2}}"
        r"[ ,]?\d{2,5}(?:室|户|房|号|號)?(?![\d年月日元块个])"), gates=("楼", "樓", "栋", "棟", "幢", "座")),
    _Rule("address", re.compile(rf"{_NAME}{{1,6}}?[村屯]{_N}{{1,4}}(?:号|號|组|組)(?!线|線)"), gates=("村", "屯")),
    _Rule("plate", re.compile(
        r"[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼][A-HJ-NP-Z][ ·.-]?"
        r"[A-HJ-NP-Z0-9]{5,6}(?![A-Za-z0-9])")),
)  # fmt: skip


def _spans(text: str) -> list[tuple[int, int, str]]:
    """(start, end, kind) of what goes, by place; where two overlap the earlier rule has it."""
    plain = text.translate(_HALF)
    taken = bytearray(len(text))
    spans = []
    for start, stop, kind in _matches(plain):
        if stop > start and not any(taken[start:stop]):
            taken[start:stop] = b"\x01" * (stop - start)
            spans.append((start, stop, kind))
    return sorted(spans)


def _matches(plain: str) -> Iterator[tuple[int, int, str]]:
    spoken = _HAN_RUN.sub(lambda run: run[0].translate(_SPOKEN), plain)
    for text in (plain,) if spoken == plain else (plain, spoken):
        lower = text.lower()
        numbered = _DIGITS.search(text) is not None
        for rule in _RULES:
            if not (any(gate in lower for gate in rule.gates) if rule.gates else numbered):
                continue
            for match in rule.pattern.finditer(text):
                if rule.check is None or rule.check(text, match):
                    group = "v" if "v" in rule.pattern.groupindex else 0
                    yield match.start(group), match.end(group), rule.kind
