"""Keys of facts: which there are, whether they take several values, how much they weigh, what they are called.

Invariant: a key means the same in Chinese and in English, so that a fact said in one language is found, merged and
corrected in the other. Keys that aren't in the table are free: single-valued, of middling weight, shown as they are
spelled. Facts of the family have keys made of a person and an attribute (``sister_occupation``), never the user's own.
"""

from __future__ import annotations

from dataclasses import dataclass

FREE_IMPORTANCE = 2
"""Importance of a free key: somebody took the trouble to say it, and nobody said that it matters."""
FAMILY_IMPORTANCE = 3
"""Importance of a fact about somebody of the family; an allergy of theirs weighs more, see ``key_of``."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a fact is about.

    Attributes
    ----------
    multi : bool
        Whether several values hold at a time: two hobbies are no conflict, two birthdays are.
    importance : int
        1 to 5: 5 is what it would be embarrassing or dangerous to forget.
    closed : tuple of str
        The normalised values that there are; empty: any.
    """

    name: str
    multi: bool
    importance: int
    label_en: str
    label_zh: str
    closed: tuple[str, ...] = ()


MARITAL = ("single", "engaged", "married", "divorced", "separated", "widowed")

_TABLE = (
    Key("name", False, 5, "name", "姓名"),
    Key("surname", False, 4, "surname", "姓"),
    Key("nickname", False, 4, "likes to be called", "称呼"),
    Key("english_name", False, 3, "English name", "英文名"),
    Key("birthday", False, 5, "birthday", "生日"),
    Key("age", False, 3, "age", "年龄"),
    Key("occupation", False, 4, "occupation", "职业"),
    Key("employer", False, 4, "employer", "工作单位"),
    Key("home", False, 5, "lives in", "居住地"),
    Key("origin", False, 4, "comes from", "籍贯"),
    Key("marital_status", False, 4, "marital status", "婚姻状况", MARITAL),
    Key("spouse", False, 5, "husband or wife", "配偶"),
    Key("partner", False, 4, "partner", "伴侣"),
    Key("child", True, 5, "child", "子女"),
    Key("children_count", False, 4, "number of children", "子女人数"),
    Key("parent", True, 4, "parent", "父母"),
    Key("sibling", True, 4, "brother or sister", "兄弟姐妹"),
    Key("grandparent", True, 3, "grandparent", "祖辈"),
    Key("relative", True, 3, "relative", "亲戚"),
    Key("pet", True, 4, "pet", "宠物"),
    Key("likes", True, 3, "likes", "喜欢"),
    Key("dislikes", True, 3, "dislikes", "不喜欢"),
    Key("hobby", True, 3, "hobby", "爱好"),
    Key("diet", False, 4, "diet", "饮食"),
    Key("avoids", True, 4, "does not eat, drink or smoke", "忌口"),
    Key("allergy", True, 5, "allergic to", "过敏"),
    Key("health", True, 5, "health", "健康"),
    Key("education", True, 3, "education", "教育经历"),
    Key("major", False, 3, "subject studied", "专业"),
    Key("possession", True, 2, "owns", "拥有"),
    Key("plan", True, 3, "plans", "计划"),
    Key("language", True, 3, "speaks", "语言"),
    Key("routine", True, 3, "routine", "习惯"),
    Key("handedness", False, 2, "handedness", "惯用手", ("left", "right", "both")),
    Key("blood_type", False, 3, "blood type", "血型"),
    Key("height", False, 2, "height", "身高"),
    Key("weight", False, 2, "weight", "体重"),
    Key("shoe_size", False, 2, "shoe size", "鞋码"),
    Key("star_sign", False, 2, "star sign", "星座"),
    Key("zodiac", False, 2, "Chinese zodiac", "生肖"),
    Key("mbti", False, 2, "MBTI", "MBTI"),
    Key("anniversary", False, 4, "anniversary", "纪念日"),
    Key("boss", False, 3, "boss", "上司"),
    Key("roommate", True, 3, "roommate", "室友"),
    Key("flight_number", False, 3, "flight number", "航班号"),
)
KEYS = {key.name: key for key in _TABLE}
"""Canonical keys by name."""

PERSONS = {
    "wife": ("wife", "妻子"),
    "husband": ("husband", "丈夫"),
    "partner": ("partner", "伴侣"),
    "girlfriend": ("girlfriend", "女朋友"),
    "boyfriend": ("boyfriend", "男朋友"),
    "son": ("son", "儿子"),
    "daughter": ("daughter", "女儿"),
    "child": ("child", "孩子"),
    "mother": ("mother", "母亲"),
    "father": ("father", "父亲"),
    "sister": ("sister", "姐妹"),
    "brother": ("brother", "兄弟"),
    "grandmother": ("grandmother", "祖母"),
    "grandfather": ("grandfather", "祖父"),
    "grandson": ("grandson", "孙子"),
    "granddaughter": ("granddaughter", "孙女"),
    "cousin": ("cousin", "表亲"),
    "aunt": ("aunt", "姨姑"),
    "uncle": ("uncle", "叔舅"),
    "niece": ("niece", "侄女"),
    "nephew": ("nephew", "侄子"),
}
"""Persons whose facts are kept, with their names in English and Chinese."""
_ONE_OF_A_KIND = frozenset({"wife", "husband", "partner", "girlfriend", "boyfriend", "mother", "father"})

MEMBERS = {
    **dict.fromkeys(("wife", "husband"), "spouse"),
    **dict.fromkeys(("partner", "girlfriend", "boyfriend"), "partner"),
    **dict.fromkeys(("son", "daughter", "child"), "child"),
    **dict.fromkeys(("mother", "father"), "parent"),
    **dict.fromkeys(("sister", "brother"), "sibling"),
    **dict.fromkeys(("grandmother", "grandfather"), "grandparent"),
    **dict.fromkeys(("grandson", "granddaughter", "cousin", "aunt", "uncle", "niece", "nephew"), "relative"),
}
"""Which key says that there is such a person, and what they are called: ``Anna (sister)`` for ``sibling``."""


def person_of(name: str) -> tuple[str, str] | None:
    """Person and attribute of a key about somebody of the family, else None.

    >>> person_of("sister_occupation"), person_of("shoe_size")
    (('sister', 'occupation'), None)
    """
    person, _, attribute = name.partition("_")
    return (person, attribute) if person in PERSONS and attribute in KEYS else None


def key_of(name: str) -> Key:
    """The key of a name: canonical, made of a person and an attribute, or free.

    Facts about a person of whom there may be several (a sister) take several values: two sisters with two
    occupations are no conflict.

    >>> key_of("home").importance, key_of("sister_home").multi, key_of("mother_home").multi
    (5, True, False)
    >>> key_of("daughter_allergy").importance, key_of("wifi_name").label_en, key_of("favourite_food").label_zh
    (4, 'wifi name', '最喜欢的食物')
    """
    if name in KEYS:
        return KEYS[name]
    person = person_of(name)
    if person is not None:
        who, attribute = person
        about = KEYS[attribute]
        return Key(
            name,
            about.multi or who not in _ONE_OF_A_KIND,
            max(FAMILY_IMPORTANCE, about.importance - 1) if attribute in ("allergy", "birthday") else FAMILY_IMPORTANCE,
            f"{PERSONS[who][0]}'s {about.label_en}",
            f"{PERSONS[who][1]}的{about.label_zh}",
            about.closed,
        )
    if name.startswith("favourite_"):
        thing = name.removeprefix("favourite_")
        chinese = next((word for word, english in FAVOURITES_ZH.items() if english == thing), thing)
        return Key(name, False, 3, f"favourite {thing.replace('_', ' ')}", f"最喜欢的{chinese}")
    return Key(name, False, FREE_IMPORTANCE, name.replace("_", " "), name)


FAVOURITES_ZH = {
    "食物": "food", "菜": "food", "东西": "food", "颜色": "colour", "水果": "fruit", "饮料": "drink", "电影": "movie",
    "书": "book", "歌": "song", "歌手": "singer", "乐队": "band", "运动": "sport", "球队": "team", "游戏": "game",
    "动物": "animal", "城市": "city", "季节": "season", "作家": "author", "作者": "author", "演员": "actor",
    "导演": "director", "动漫": "anime", "电视剧": "show", "剧": "show", "花": "flower", "甜点": "dessert",
    "零食": "snack", "球星": "player", "球员": "player", "数字": "number", "科目": "subject", "音乐": "music",
    "餐厅": "restaurant", "节日": "holiday", "国家": "country", "小说": "novel", "诗人": "poet", "画家": "painter",
    "口味": "flavour", "品牌": "brand", "专辑": "album",
}  # fmt: skip
"""What people have favourites of, in Chinese, with the key's word; nouns that aren't here stay as they are."""

ATTRIBUTES_EN = {
    "name": "name", "full name": "name", "first name": "name", "real name": "name",
    "surname": "surname", "last name": "surname", "family name": "surname", "nickname": "nickname",
    "birthday": "birthday", "date of birth": "birthday", "birth date": "birthday", "bday": "birthday",
    "age": "age", "job": "occupation", "occupation": "occupation", "profession": "occupation",
    "employer": "employer", "hometown": "origin", "home town": "origin", "nationality": "origin",
    "hobby": "hobby", "hobbies": "hobby", "hobbies are": "hobby", "main hobby": "hobby", "major": "major",
    "native language": "language", "mother tongue": "language", "first language": "language",
    "blood type": "blood_type", "blood group": "blood_type", "shoe size": "shoe_size", "ring size": "ring_size",
    "dress size": "dress_size", "shirt size": "shirt_size", "t-shirt size": "shirt_size", "height": "height",
    "weight": "weight", "star sign": "star_sign", "zodiac sign": "star_sign", "sign": "star_sign",
    "mbti": "mbti", "mbti type": "mbti", "personality type": "mbti", "anniversary": "anniversary",
    "wedding anniversary": "anniversary", "flight number": "flight_number", "pronouns": "pronouns",
    "boss": "boss", "manager": "boss", "therapist": "therapist", "dentist": "dentist", "landlord": "landlord",
    "roommate": "roommate", "flatmate": "roommate", "doctor": "doctor", "gp": "doctor", "wifi name": "wifi_name",
    "timezone": "timezone", "time zone": "timezone", "alma mater": "education", "english name": "english_name",
    "best friend": "best_friend", "supervisor": "supervisor", "coach": "coach", "tutor": "tutor",
}  # fmt: skip
"""Nouns of "my X is Y" that state a fact; other nouns ("my head is killing me") don't."""

ATTRIBUTES_ZH = {
    "名字": "name", "全名": "name", "姓名": "name", "真名": "name", "本名": "name", "大名": "name", "姓": "surname",
    "外号": "nickname", "绰号": "nickname", "小名": "nickname", "昵称": "nickname", "英文名": "english_name",
    "生日": "birthday", "出生日期": "birthday", "年龄": "age", "年纪": "age", "职业": "occupation",
    "工作": "occupation", "单位": "employer", "公司": "employer", "老家": "origin", "家乡": "origin",
    "籍贯": "origin", "故乡": "origin", "国籍": "origin", "爱好": "hobby", "兴趣": "hobby", "兴趣爱好": "hobby",
    "业余爱好": "hobby", "专业": "major", "母语": "language", "血型": "blood_type", "鞋码": "shoe_size",
    "身高": "height", "体重": "weight", "星座": "star_sign", "属相": "zodiac", "生肖": "zodiac", "mbti": "mbti",
    "结婚纪念日": "anniversary", "纪念日": "anniversary", "航班号": "flight_number", "航班": "flight_number",
    "老板": "boss", "领导": "boss", "上司": "boss", "室友": "roommate", "母校": "education", "wifi名": "wifi_name",
    "时区": "timezone", "导师": "supervisor", "房东": "landlord", "闺蜜": "best_friend", "偶像": "idol",
    "座右铭": "motto", "衣服尺码": "shirt_size", "班主任": "class_teacher",
}  # fmt: skip
"""Nouns of "我的X是Y" that state a fact."""
