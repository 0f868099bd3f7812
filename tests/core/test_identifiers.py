"""Identifiers of persons: what goes, what stays, and that it takes one pass over any text."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.identifiers import PLACEHOLDERS, redact

POSITIVES = [
    # Chinese identity numbers, with their check digit or a cue
    ("我的身份证号是11010519491231002X", "11010519491231002X", "identity"),
    ("11010519491231002x是我的号码", "11010519491231002x", "identity"),
    ("身份證 110105 19491231 002X", "110105 19491231 002X", "identity"),
    ("身份证号：１１０１０５１９４９１２３１００２Ｘ", "１１０１０５１９４９１２３１００２Ｘ", "identity"),
    ("旧的是110105491231002", "110105491231002", "identity"),
    ("身份证 110105194912310021 打错了一位", "110105194912310021", "identity"),
    ("my chinese id number is 11010519491231002X ok?", "11010519491231002X", "identity"),
    ("SSN 219-09-9998", "219-09-9998", "identity"),
    ("身份证是 110105 1949 1231 002X", "110105 1949 1231 002X", "identity"),
    # phones
    ("打我电话13800138000吧", "13800138000", "phone"),
    ("手机 138-0013-8000", "138-0013-8000", "phone"),
    ("138 0013 8000 随时可以", "138 0013 8000", "phone"),
    ("+86 138 0013 8000", "+86 138 0013 8000", "phone"),
    ("我的號碼是１３８００１３８０００", "１３８００１３８０００", "phone"),
    ("一三八零零一三八零零零，记一下", "一三八零零一三八零零零", "phone"),
    ("幺三八零零幺三八零零零", "幺三八零零幺三八零零零", "phone"),
    ("公司座机010-62345678", "010-62345678", "phone"),
    ("座机是(021)62345678", "(021)62345678", "phone"),
    ("call me at 415-555-2671", "415-555-2671", "phone"),
    ("(415) 555-2671 works", "(415) 555-2671", "phone"),
    ("415.555.2671 is mine", "415.555.2671", "phone"),
    ("+1 415 555 2671", "+1 415 555 2671", "phone"),
    ("+44 20 7946 0958 in London", "+44 20 7946 0958", "phone"),
    ("+49 30 901820 is the office", "+49 30 901820", "phone"),
    ("0044 20 7946 0958", "0044 20 7946 0958", "phone"),
    ("I'm on 020 7946 0958 all day", "020 7946 0958", "phone"),
    ("my number is 4155552671", "4155552671", "phone"),
    ("text me on 07700 900123", "07700 900123", "phone"),
    ("电话：6234 5678", "6234 5678", "phone"),
    ("+852 6123 4567 是香港的", "+852 6123 4567", "phone"),
    # cards and bank accounts
    ("card 4111 1111 1111 1111 exp 12/29", "4111 1111 1111 1111", "card"),
    ("4111111111111111", "4111111111111111", "card"),
    ("5500-0000-0000-0004", "5500-0000-0000-0004", "card"),
    ("amex 378282246310005", "378282246310005", "card"),
    ("我的卡是6222021234567890128呢", "6222021234567890128", "card"),
    ("银行卡号 6222 0212 3456 7890 127", "6222 0212 3456 7890 127", "card"),
    ("my account number is 123456789012", "123456789012", "card"),
    ("IBAN GB82 WEST 1234 5698 7654 32", "GB82 WEST 1234 5698 7654 32", "iban"),
    ("pay to DE89370400440532013000 please", "DE89370400440532013000", "iban"),
    ("工商银行的卡6222 0202 0001 2345 678", "6222 0202 0001 2345 678", "card"),
    # passports
    ("护照号是E12345678", "E12345678", "passport"),
    ("my passport is EA1234567", "EA1234567", "passport"),
    ("passport number: 533380006", "533380006", "passport"),
    ("護照 G12345678 快到期了", "G12345678", "passport"),
    # emails
    ("write to ann.lee+x@example.co.uk.", "ann.lee+x@example.co.uk", "email"),
    ("我的邮箱是chen_yu@qq.com，", "chen_yu@qq.com", "email"),
    ("发到ＣＨＥＮ＠ＱＱ．ＣＯＭ", "ＣＨＥＮ＠ＱＱ．ＣＯＭ", "email"),
    ("it's john at gmail dot com", "john at gmail dot com", "email"),
    # addresses
    ("I live at 12 Baker Street, Apt 4, London", "12 Baker Street, Apt 4", "address"),
    ("221B Baker Street is mine", "221B Baker Street", "address"),
    ("we moved to 1600 Pennsylvania Ave NW", "1600 Pennsylvania Ave", "address"),
    ("my address is 7 elm grove", "7 elm grove", "address"),
    ("send it to Flat 3, 21 Park Road", "Flat 3, 21 Park Road", "address"),
    ("45 Old Mill Lane, CA 94016", "45 Old Mill Lane, CA 94016", "address"),
    ("P.O. Box 1234, Springfield", "P.O. Box 1234", "address"),
    ("我住在北京市朝阳区建国路88号2单元301室", "建国路88号2单元301室", "address"),
    ("上海市浦东新区世纪大道100号", "世纪大道100号", "address"),
    ("地址是长宁路12弄3号501室", "长宁路12弄3号501室", "address"),
    ("我家在阳光花园3栋2单元502", "3栋2单元502", "address"),
    ("寄到臺北市信義區信義路五段7號", "信義路五段7號", "address"),
    ("住在中山路八十八号", "中山路八十八号", "address"),
    ("湖南省长沙县李家村12号", "李家村12号", "address"),
    ("send to: 350 5th Ave, New York", "350 5th Ave", "address"),
    ("西湖区文三路478号华星广场A座603室", "文三路478号华星广场A座603室", "address"),
    # passwords, codes, keys
    ("my password is hunter2", "hunter2", "password"),
    ("Password: Tr0ub4dor&3", "Tr0ub4dor&3", "password"),
    ("the wifi password is swordfish.", "swordfish", "password"),
    ('the password for my mail is "open sesame"', "open sesame", "password"),
    ("my pin is 4821", "4821", "password"),
    ("密码是abc123", "abc123", "password"),
    ("我的密碼是：Qwerty!9。", "Qwerty!9", "password"),
    ("银行卡密码 908172 别告诉别人", "908172", "password"),
    ("密码一二三四五六", "一二三四五六", "password"),
    ("wifi密码改成了sunny2024", "sunny2024", "password"),
    ("my seed phrase is able bacon cabin dance eager fable", "able bacon cabin dance eager fable", "password"),
    ("postgres://app:s3cret@db.local/x", "s3cret", "password"),
    ("验证码 123456", "123456", "code"),
    ("驗證碼是８８２１", "８８２１", "code"),
    ("your verification code is 482913", "482913", "code"),
    ("use sk-proj-a1B2c3D4e5F6g7H8", "sk-proj-a1B2c3D4e5F6g7H8", "key"),
    ("token ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "key"),
    ("AKIAIOSFODNN7EXAMPLE leaked", "AKIAIOSFODNN7EXAMPLE", "key"),
    ("api key: 9f8e7d6c5b4a3210", "9f8e7d6c5b4a3210", "key"),
    ("Authorization: Bearer abcDEF123456abcDEF123456", "abcDEF123456abcDEF123456", "key"),
    ("password hunter2", "hunter2", "password"),
    ("pw: hunter2", "hunter2", "password"),
    ("your code is 482913", "482913", "code"),
    # messengers and plates
    ("加我微信chen_yu88", "chen_yu88", "account"),
    ("我的QQ是123456789", "123456789", "account"),
    ("车牌京A12345", "京A12345", "plate"),
]
"""(text, what must go, kind)."""

NEAR_MISSES = [
    "my order number is 4111111111111111", "订单号4111111111111111", "订单号13800138000没收到",
    "tracking number 4155552671", "order #415-555-2671 is late", "快递单号 621234567890", "invoice 2023-05-20-001",
    "发票号码 01234567", "on 2026-05-20 at 19:03", "2026年5月20日晚上7点", "20/05/2026", "between 1998 and 2004",
    "1998-2004", "20260520", "it costs $1,299.00", "价格是¥12999", "房价涨到了85000一平", "花了1,234,567元",
    "USD 4155552671", "工资15000元一个月", "version 3.11.7", "Python 3.12.1 and 2.7.18", "v1.2.3-rc4",
    "版本 10.0.19045", "ISBN 978-7-02-000220-7", "ISBN 9787020002207", "isbn 0-306-40615-2", "三室一厅", "3室2厅",
    "two bedrooms, 1 bath", "the score was 3-2", "比分 102:98", "we won 21-15, 21-18", "室温25度",
    "1500 meters in 4:12", "跑了10000步", "my cat is 12", "I saw 5 people in the street", "he lives down the street",
    "the 2nd street on the left", "42nd Street is loud", "南京路很热闹", "我住在上海市浦东新区", "坐地铁2号线",
    "5月20号见面", "这条路5号开始施工", "人民路上有3家店", "I forgot my password", "password reset",
    "my password is wrong", "the password is too short", "my password is expired", "the pin is broken", "密码错误",
    "密码是8位数字", "忘记密码了怎么办", "密码要改了", "my passport is expired", "护照2027年到期",
    "the verification code expired", "验证码没收到", "验证码是6位的", "area code 415", "error code 404",
    "zip code 94016", "@alice said hi", "3 @ 5 dollars", "a token of love", "the secret is patience",
    "Bearer of bad news", "room 302 at the hotel", "gate B12", "flight CA1234", "the year 1984", "12345",
    "my lucky number is 7", "三十五岁", "一九八四年", "2.71828182845904523536", "3.14159265358979",
    "timestamp 1779235200000", "it's 1779235200", "call me later", "打电话给我", "微信聊", "sk-learn is fine",
    "5 Dr Pepper please", "a 10 mile road trip", "7 way split", "1+1=2", "+20% this year", "+1000 points", "UTC+8",
    "13 apples and 14 pears", "4 out of 5", "E12345678 is a part", "第3栋楼很高", "他三岁就会背乘法口令了",
    "知道3号的事吗", "京A级景区", "4111 1111 1111 1112 is no card",
]  # fmt: skip


@pytest.mark.parametrize(("text", "gone", "kind"), POSITIVES, ids=[text for text, _, _ in POSITIVES])
def test_identifier_goes_and_is_counted(text: str, gone: str, kind: str) -> None:
    result = redact(text)
    assert gone not in result.text
    assert result.found == {kind: 1}
    assert any(placeholder in result.text for placeholder in PLACEHOLDERS[kind])


@pytest.mark.parametrize("text", NEAR_MISSES)
def test_near_miss_stays_as_it_was(text: str) -> None:
    result = redact(text)
    assert result.text == text
    assert result.found == {}


def test_the_labelled_sets_are_as_large_as_they_claim() -> None:
    assert len(POSITIVES) >= 80
    assert len(set(NEAR_MISSES)) >= 100


def test_placeholder_is_in_the_language_of_the_text() -> None:
    assert redact("call me at 415-555-2671").text == "call me at [phone]"
    assert redact("我的电话是13800138000").text == "我的电话是[电话]"


def test_city_and_district_stay_where_the_street_goes() -> None:
    assert redact("我住在上海市浦东新区世纪大道100号5楼").text == "我住在上海市浦东新区[地址]"
    assert redact("I live at 12 Baker Street, Apt 4, London").text == "I live at [address], London"


def test_several_identifiers_in_one_turn_all_go() -> None:
    result = redact("王明，身份证11010519491231002X，电话13800138000，邮箱a@b.cn，密码是x9!k2")
    assert result.text == "王明，身份证[证件号]，电话[电话]，邮箱[邮箱]，密码是[密码]"
    assert result.found == {"identity": 1, "phone": 1, "email": 1, "password": 1}


def test_surroundings_keep_their_form() -> None:
    assert redact("Ｈｉ　👨‍👩‍👧 電話：１３８００１３８０００！").text == "Ｈｉ　👨‍👩‍👧 電話：[电话]！"


_PIECES = st.one_of(
    st.sampled_from([text for text, _, _ in POSITIVES] + NEAR_MISSES),
    st.text(max_size=12),
    st.text(string.digits + " -+().@", max_size=24),
    st.sampled_from(["密码是", "password is ", "[phone]", "[密码]", "路", "号", "sk-", "@", " at ", "\n"]),
)


@given(st.lists(_PIECES, max_size=6).map("".join))
def test_redaction_is_idempotent_and_never_grows_absurdly(text: str) -> None:
    once = redact(text)
    again = redact(once.text)
    assert again.text == once.text
    assert again.found == {}
    longest = max(len(placeholder) for pair in PLACEHOLDERS.values() for placeholder in pair)
    assert len(once.text) <= len(text) + longest * sum(once.found.values())


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "unit",
    ["a", "1", "1 ", "路", "李", "a.", "password is ", "call me 12 Baker ", "12 A ", "-----BEGIN PRIVATE KEY-----",
     "eyJ", "sk-", "0 ", "三路3", "a at ", "seed phrase is ", "GB82", "bearer a1", "密码“", "13800138000 ",
     "http://a:b", "+1 "],
)  # fmt: skip
def test_no_text_of_100_000_characters_takes_more_than_linear_time(unit: str) -> None:
    text = (unit * (100_000 // len(unit) + 1))[:100_000]
    # Quadratic patterns take minutes here; the time limit of this test is the assertion.
    assert len(redact(text).text) <= 2 * len(text)
