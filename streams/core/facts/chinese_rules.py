"""Rules of Chinese: what a predicate after 我 (or after 我姐) states.

A rule is matched where the predicate of a clause begins, after adverbs, times and a negation, which the walk
(``streams.core.facts.chinese``) has read. Clauses are short and end at a comma, so values mostly end there too.
"""

from __future__ import annotations

import re

from streams.core.facts import chinese_people as people
from streams.core.facts import chinese_reading as reading
from streams.core.facts import words
from streams.core.facts.chinese_reading import ACTIVITY, END, LIST, NAME, V
from streams.core.facts.dates import DATE_ZH, NUMBER_ZH
from streams.core.facts.places import CITIES, ORGANISATION_ZH, PLACE_ZH
from streams.core.facts.rule import Ends, Negated, Read, Rule, date, nothing, whole
from streams.core.facts.words import HEALTH_ZH, OCCUPATION_ZH, THINGS_ZH, alternatives


def _rule(
    name: str, pattern: str, read: Read, kind: Ends = "", negated: Negated = "nothing", *, family: bool = False,
    bare: bool = False,
) -> Rule:  # fmt: skip
    """A rule of Chinese, whose verbs have no forms; few of them say anything when they are negated."""
    return Rule(name, "", pattern, read, kind, negated, family, bare)


_LANGUAGE = words.LANGUAGE_ZH
_LANGUAGE_LIST = (
    rf"(?P<v>(?:一?点儿?|一些|流利的?|简单的?)?{_LANGUAGE}(?:(?:[、和跟与,]|还有|以及)(?:一?点儿?|一些"
    rf"|流利的?)?{_LANGUAGE})*)"
)
_DIET = alternatives(word for word in words.DIETS if not word.isascii())
_HAND = alternatives(word for word in words.HANDEDNESS if not word.isascii())
_MARITAL = r"(?:离异|离[了过的]?婚|已婚|结[了过的]?婚|订了?婚|单身|单着|未婚|丧偶|分居|领证)"
_SPECIES = alternatives(words.SPECIES_ZH)
_KIN = r"(?:儿子|女儿|闺女|姐姐|妹妹|哥哥|弟弟|男朋友|女朋友|男友|女友|对象|老婆|老公|双胞胎)"
_COUNT = rf"(?:{NUMBER_ZH}|好几|几)?[个只条台辆部架套栋间把艘匹缸对家所位名]"
_STAR = r"(?:白羊|牡羊|金牛|双子|巨蟹|狮子|处女|天秤|天蝎|射手|人马|摩羯|魔羯|水瓶|双鱼)座"
_INSTRUMENT = (
    r"(?:弹(?:钢琴|吉他|古筝|琵琶|尤克里里|贝斯|古琴)|拉(?:小提琴|大提琴|二胡|手风琴)|吹(?:笛子|萨克斯|长笛|葫芦丝"
    r"|单簧管|小号)|打(?:架子鼓|鼓)"
    r"|打(?:篮球|羽毛球|网球|乒乓球|排球|太极|高尔夫)|踢足球|下(?:围棋|象棋|国际象棋)|游泳|滑雪|画画|潜水|冲浪|做陶艺)"
)
_OCCUPATION = rf"(?P<v>(?:[\u4e00-\u9fffa-z/]{{0,9}}?){OCCUPATION_ZH})"
_FOR = rf"(?:(?:快|已经|都|有|差不多)*(?:{NUMBER_ZH}|半|好几|几|大半)个?[年月天周]多?)?"
_ONE = r"(?:一?[名个位]|一名|全职)?的?"

RULES = (
    # -- names, age, dates --------------------------------------------------------------------------------------------
    _rule("name", rf"叫(?:做|作)?{NAME}{END}", people.name("name"), negated="retract"),
    _rule(
        "name_is", rf"(?:大名|全名|名字|真名|本名)(?:是|叫做?|就叫){NAME}{END}", people.name("name"), negated="retract"
    ),
    _rule("surname", r"姓(?P<v>[\u4e00-\u9fff]{1,2})$", reading.one("surname"), negated="retract"),
    _rule(
        "age",
        rf"(?P<m>刚?满|刚过了?|马上|快)?(?:了)?(?P<v>{NUMBER_ZH})周?岁(?:了|多)?(?P<e>)(?:生日)?$",
        reading.age,
        family=True,
        bare=True,
    ),
    _rule(
        "age_years",
        rf"(?P<m>)(?P<y>今年)(?:都|已经|刚好|刚|正好)?(?P<v>{NUMBER_ZH})(?:了|岁)?$",
        reading.age,
        family=True,
        bare=True,
    ),
    _rule(
        "age_alone",
        r"(?P<m>)(?:都|已经|刚好|快)?(?P<v>[二三四五六七八九]十[一二三四五六七八九]?|[2-9]\d)了$",
        reading.age,
        family=True,
    ),
    _rule(
        "born",
        rf"(?:是|出?生于|出生(?:在|于)?)?(?P<d>{DATE_ZH}|(?:19|20)?\d\d年)(?:出生的?|生的?|生人|的(?=$|,))?(?:在"
        rf"|于)?(?P<v>[^,]{{0,14}}){END}",
        reading.born,
        bare=True,
    ),
    _rule("birthday", rf"(?:的)?生日(?:是|在|:)?(?P<v>{DATE_ZH}|今天|昨天|明天)", date("birthday"), family=True),
    _rule("birthday_on", r"(?P<v>今天|昨天|明天)(?:是我?的?|过)生日", date("birthday")),
    # -- home and origin ----------------------------------------------------------------------------------------------
    _rule(
        "lives",
        rf"(?:都)?(?:住在?|居住在|定居在?|常住|坐标){V}{_FOR}{END}",
        reading.place("home"),
        negated="retract",
        family=True,
        bare=True,
    ),
    _rule("home_in", rf"(?:家在|家住|人在|在){V}{END}", reading.home_in, bare=False),
    _rule(
        "lives_in",
        rf"在(?P<v>[^,]{{1,10}}?)(?:住|生活|定居|安家|待|呆)(?:了(?:{NUMBER_ZH}|几|好几|快|十几"
        rf"|二十多)?[^,]{{0,4}}年(?:了|多)?)?(?:着|了)?{END}",
        reading.known_place("home"),
        negated="retract",
        family=True,
    ),
    _rule(
        "moved",
        rf"(?:又|刚|刚刚)?(?:从[^,]{{1,8}}?)?搬(?:家)?(?:到|去|来|进|回)了?{V}{_FOR}{END}",
        reading.place("home"),
        kind="event",
        family=True,
        bare=True,
    ),
    _rule("new_home", rf"(?:新家|新房子?)(?:在|是在){V}{END}", reading.place("home"), kind="event"),
    _rule(
        "person_of",
        rf"(?:是)(?:土生土长的)?(?P<v>{PLACE_ZH})人{END}",
        reading.one("origin"),
        negated="retract",
        family=True,
    ),
    _rule(
        "from",
        rf"(?:老家(?:是|在)|家乡(?:是|在)|籍贯(?:是|在)|祖籍(?:是|在)|出生(?:在|于)|生在|从小在(?=[^,]*长大)){V}"
        rf"(?:长大的?)?{END}",
        reading.place("origin"),
        negated="retract",
        family=True,
    ),
    _rule("from_known", rf"(?:老家|籍贯|祖籍|家乡){V}{END}", reading.known_place("origin"), family=True, bare=True),
    _rule("comes_from", rf"来自{V}{END}", reading.place_like("origin"), negated="retract", family=True),
    _rule("from_city", rf"是(?P<v>(?:{CITIES}){{1,2}})的{END}", reading.one("origin"), negated="retract", family=True),
    _rule(
        "from_is",
        rf"(?:是)?从?(?P<v>{PLACE_ZH})(?<![飞坐开赶走跑寄回过])(?:来|出来|长大|出生)的{END}",
        reading.one("origin"),
        family=True,
    ),
    _rule("grew_up", rf"在(?P<v>[^,]{{2,8}}?)(?:长大|出生)(?:的)?{END}", reading.one("origin"), family=True),
    # -- work ---------------------------------------------------------------------------------------------------------
    _rule(
        "is_at",
        rf"是(?P<e>{ORGANISATION_ZH})的(?:一?[名个位])?{_OCCUPATION}{END}",
        reading.work,
        negated="retract",
        family=True,
    ),
    _rule(
        "occupation",
        rf"(?:是|当上?了?|做|担任|干|从事){_ONE}{_OCCUPATION}(?:工作)?(?:的)?(?=不是|而不是|{END})",
        reading.occupation,
        negated="retract",
        family=True,
    ),
    _rule(
        "is_in",
        rf"是?(?:做|搞|干)(?P<v>[^,]{{2,8}}?)的{END}",
        reading.one("occupation"),
        negated="retract",
        family=True,
    ),
    _rule(
        "works_at_as",
        rf"在(?P<e>[^,]{{1,14}}?)(?:里面|那边|那里)?(?:当|做|担任|任|干){_ONE}{_OCCUPATION}{END}",
        reading.work,
        family=True,
        bare=True,
        negated="retract",
    ),
    _rule(
        "works_at",
        rf"在(?P<e>[^,]{{1,14}}?)(?:里面|那边)?(?:工作|上班|任职|就职|打工|实习|供职|干活?|混){END}",
        reading.work,
        family=True,
        negated="retract",
    ),
    _rule(
        "works_on",
        rf"在(?P<e>{ORGANISATION_ZH})(?:写|搞|负责|带|管|教)[^,]{{1,8}}{END}",
        reading.work,
        family=True,
        negated="retract",
    ),
    _rule("is_now_at", rf"在(?P<e>{ORGANISATION_ZH}){END}", reading.now_at),
    _rule(
        "promoted",
        rf"(?:升(?:职)?(?:任|为|了|到|成了?|当了?)|被提拔为|晋升(?:为|到)?了?){_OCCUPATION}{END}",
        reading.occupation,
        kind="event",
        family=True,
    ),
    _rule(
        "joined",
        rf"(?:跳槽(?:到|去|来)?了?|入职了?|加入了?|去了)(?P<e>{ORGANISATION_ZH})(?:工作|上班|当|做)?{END}",
        reading.work,
        kind="event",
    ),
    _rule(
        "resigned_from",
        rf"从(?P<e>[^,]{{1,12}}?)(?:辞职|离职|辞|跳槽)(?:出来)?了?{END}",
        reading.employer_any,
        kind="retract",
    ),
    _rule(
        "resigned",
        rf"(?:把工作辞|辞了工作|辞职|离职|被(?:公司|单位|老板)?裁员?|被(?:公司|单位|老板)?炒(?:鱿鱼)?|被开除"
        rf"|丢了工作|裸辞)了?{END}",
        nothing("employer"),
        kind="retract",
    ),
    _rule(
        "status",
        rf"(?:在家)?(?P<v>退休|失业|待业|下岗)(?:了|中|在家|都|已经|有|快|好几年|很?多年|{NUMBER_ZH}(?:个月|年)"
        rf"|半年|多)+{END}",
        reading.one("occupation"),
        kind="event",
        family=True,
    ),
    # -- people -------------------------------------------------------------------------------------------------------
    _rule(
        "works_freely",
        rf"(?:在家)?(?P<v>自由职业|全职妈妈|全职太太|全职爸爸|家庭主妇|(?<=在家)待业|待业(?=在家)){END}",
        reading.one("occupation"),
    ),
    _rule(
        "marital",
        rf"(?:又|都|就|是)?(?P<v>{_MARITAL})(?P<l>了|啦|{NUMBER_ZH}年了?|半年了?|很?多年了?|好几年了?"
        rf"|快{NUMBER_ZH}年了?|的|状态|中)*(?:呢)?{END}",
        people.marital,
        negated="retract",
        bare=True,
    ),
    _rule(
        "parted",
        r"(?:和|跟|与)(?:我的?)?(?P<v>女朋友|男朋友|女友|男友|对象)(?:刚刚?|已经|昨天|上周|上个月|最近)*分(?:手)?了",
        reading.one("partner"),
        kind="retract",
    ),
    _rule(
        "divorced",
        r"(?:和|跟|与)(?:我的?)?(?:老婆|老公|妻子|丈夫|前妻|前夫|先生|太太)(?:刚刚?|已经|去年|上周|上个月|今年|最近"
        r"|前年)*离(?:婚)?了(?P<v>)",
        whole("marital_status", "离婚"),
        kind="event",
    ),
    _rule("children_count", rf"有(?P<v>{NUMBER_ZH})个(?:孩子|小孩|娃|宝宝)", reading.count("children_count")),
    _rule(
        "no_children",
        r"(?:有|养|生)?(?:孩子|小孩|娃)(?:呢)?$",
        nothing("child"),
        kind="retract",
        negated="only",
    ),
    _rule("no_siblings", r"有?(?:兄弟姐妹|兄弟|姐妹)$", nothing("sibling"), kind="retract", negated="only"),
    _rule("no_pets", r"(?:有|养)(?:任何)?宠物$", nothing("pet"), kind="retract", negated="only"),
    _rule(
        "kin",
        rf"有了?(?:{_COUNT})?(?:双胞胎|龙凤胎|亲|小|大)?(?P<s>{_KIN})(?={END}|[和跟、])",
        people.kin,
        negated="retract",
    ),
    _rule("named_kin", rf"有(?:{_COUNT})?(?P<s>{_KIN})叫{NAME}{END}", people.kin),
    _rule(
        "pet",
        rf"(?:有|养着?了?过?|领养了?|收养了?|买了)(?:{_COUNT})?(?:[\u4e00-\u9fff]{{0,4}}的)?"
        rf"(?P<s>[小大老白黑花橘]?{_SPECIES})(?P<n>叫[^,]{{1,6}})?{END}",
        people.pet,
        negated="retract",
    ),
    # -- health and food ----------------------------------------------------------------------------------------------
    _rule(
        "not_allergic",
        rf"对{LIST}(?:并|又|都|从来)?(?:不|没有?)过敏",
        reading.many("allergy"),
        kind="retract",
        family=True,
    ),
    _rule(
        "allergic",
        rf"对{LIST}(?:都|很|严重|也|有点)*过敏(?!吗)",
        reading.many("allergy"),
        negated="retract",
        family=True,
        bare=True,
    ),
    _rule(
        "allergic_to_eating",
        r"一?(?:吃|喝|碰|闻到)(?P<v>[^,]{1,10}?)就?(?:会|容易)?过敏",
        reading.many("allergy"),
        family=True,
    ),
    _rule(
        "allergic_bare",
        r"(?P<v>(?!有|没|会|容易|皮肤|不|是|很|一|老|又|严重|季节|春|经|轻)[^,对]{2,5}?)过敏" + END,
        reading.many("allergy"),
        family=True,
    ),
    _rule("no_allergy", r"(?:有)?(?:任何)?过敏(?:史|源)?$", nothing("allergy"), kind="retract", negated="only"),
    _rule(
        "health",
        rf"(?:有|是|得了?|患有?|患了|患上了?|查出(?:来)?了?|确诊了?|被诊断(?:为|出)|被确诊(?:为)?)?(?:严重的?"
        rf"|轻微的?|轻度|先天性|多年的?|老)?(?P<v>{HEALTH_ZH})(?:患者|病史|的毛病|的问题|症状)?(?:很?多年|好几年"
        rf"|{NUMBER_ZH}年)?(?:了)?{END}",
        reading.one("health"),
        negated="retract",
        family=True,
    ),
    _rule(
        "ill",
        rf"(?:得了|患有|患上了?|确诊了?|被诊断(?:为|出)|被确诊为?|查出来?了?){V}{END}",
        reading.illness,
        family=True,
    ),
    _rule("pregnant", r"(?P<v>怀孕)(?:了|中|\d|[一二三四五六七八九])", reading.one("health"), family=True),
    _rule(
        "diet",
        rf"(?:开始|是|改|坚持|改成|变成)?(?:一[个名位]|个)?(?P<v>{_DIET})(?:很多年|多年|好几年|{NUMBER_ZH}年)?(?:了"
        rf"|的)?{END}",
        reading.diet,
        negated="retract",
        family=True,
    ),
    _rule("eats_not", rf"(?:能|敢|爱|太能)?(?:吃|喝|碰){LIST}{END}", reading.avoided, negated="only"),
    _rule("eats_never", rf"(?:吃|喝)不(?:了|得|惯){LIST}{END}", reading.avoided),
    _rule(
        "gave_up",
        rf"(?:已经)?戒(?:掉)?了?(?P<v>烟|酒|糖|咖啡|奶茶|可乐|碳水|肉)(?:了|很久了?|半年了?|多年了?|好几年了?"
        rf"|{NUMBER_ZH}(?:年|个月|天)了?)?{END}",
        reading.one("avoids"),
    ),
    # -- likes --------------------------------------------------------------------------------------------------------
    _rule(
        "favourite",
        r"最(?:喜欢|爱|喜爱)(?P<verb>吃|喝|看|听|玩)?的(?P<k>[\u4e00-\u9fff]{1,4}?)?(?:就)?是(?P<v>[^,]{1,16})" + END,
        reading.favourite,
        bare=True,
    ),
    _rule(
        "likes",
        rf"(?:还|也|就|更|最|超级?|特别|好|很)*(?:喜欢(?:上了?)?|热爱|喜爱|钟爱|迷上了?|爱上了?|痴迷于?|爱"
        rf"(?={ACTIVITY})|超爱){LIST}{END}",
        reading.liked("likes"),
        negated="opposite",
        family=True,
        bare=True,
    ),
    _rule("fan", rf"是(?P<v>[^,的]{{2,10}})的?(?:球迷|铁粉|死忠粉|书迷|歌迷|影迷|车迷){END}", reading.one("likes")),
    _rule(
        "hates",
        rf"(?:最|很|特别|超级?|真的)*(?:讨厌|厌恶|受不了|反感|恨|痛恨){LIST}{END}",
        reading.liked("dislikes"),
        family=True,
    ),
    _rule(
        "hobby",
        rf"(?:的)?(?:业余)?(?:爱好|兴趣|兴趣爱好)(?:是|有|就是|包括){LIST}{END}",
        reading.many("hobby"),
        bare=True,
    ),
    _rule(
        "plays",
        rf"(?:会|在学|学过|学了?|玩|能)?(?:一点点?儿?)?(?P<v>{_INSTRUMENT})(?:弹了?|打了?|学了?|练了?|拉了?"
        rf"|游了?)?[^,]{{0,8}}{END}",
        reading.played,
        negated="retract",
    ),
    # -- language, education ------------------------------------------------------------------------------------------
    _rule(
        "language", rf"(?:会|能|可以)?(?:说|讲|懂|用)(?:一口)?{_LANGUAGE_LIST}", reading.languages, negated="retract"
    ),
    _rule(
        "language_can",
        rf"(?:会|懂|在学|在自学|正在学|学了?|最近在学|开始学){_LANGUAGE_LIST}",
        reading.languages,
        negated="retract",
    ),
    _rule("mother_tongue", rf"(?:的)?母语是{_LANGUAGE_LIST}", reading.languages),
    _rule(
        "graduated",
        r"(?:是)?(?:(?:本科|硕士|博士|研究生|大学|高中)?毕业于|从)?(?P<v>[^,]{2,12}?(?:大学|学院|学校|中学|高中"
        r"|职高|技校|[清北复交浙]大|复旦|清华|北大|浙大|同济|南开))(?:[^,]{0,6}(?:系|专业))?(?:毕业(?:的|了)?|的)?$",
        reading.school,
    ),
    _rule(
        "studies",
        r"在(?P<v>[^,]{2,12}?(?:大学|学院|学校|中学|高中|[清北复交浙]大))(?:读|上|念|学|就读|攻读)[^,]{0,8}$",
        reading.one("education"),
        negated="nothing",
    ),
    _rule("studies_of", rf"是?学(?P<v>[^,]{{1,6}}?)的{END}", reading.one("major")),
    _rule(
        "major",
        rf"(?:大学|本科|研究生|硕士|博士|当年|当时)*(?:学的是?|读的是?|主修|专业是|的专业是|念的是?){V}(?:专业"
        rf"|系)?{END}",
        reading.one("major"),
    ),
    # -- things -------------------------------------------------------------------------------------------------------
    _rule(
        "has",
        rf"有(?:了)?(?:自己的)?(?:{_COUNT})?(?P<v>[^,]{{0,10}}?{THINGS_ZH}){END}",
        reading.thing,
        negated="retract",
    ),
    _rule(
        "bought",
        rf"(?:新|刚)?(?:买了?|入手了?|提了|换了)(?:{_COUNT})?(?P<v>[^,]{{0,10}}?{THINGS_ZH}){END}",
        reading.thing,
    ),
    _rule(
        "drives",
        r"(?:(?:开|骑)的是(?:一?[辆台])?|(?:开|骑)(?:一?[辆台]))(?P<v>[^,]{2,14})" + END,
        reading.one("possession"),
    ),
    _rule(
        "sold",
        rf"把(?:我的?|那[台辆]|家里的)?(?P<v>[^,]{{0,6}}?{THINGS_ZH})(?:给)?(?:卖|处理|转手|报废)(?:掉|出去)?了",
        reading.one("possession"),
        kind="retract",
    ),
    _rule(
        "sold_mine",
        rf"的(?P<v>[^,]{{0,4}}?{THINGS_ZH})(?:已经|都|昨天|上周|上个月|刚刚?|也)*(?:卖掉?|报废)了",
        reading.one("possession"),
        kind="retract",
    ),
    _rule(
        "sold_it",
        rf"卖(?:掉)?了(?:我的)?(?P<v>[^,]{{0,6}}?{THINGS_ZH}){END}",
        reading.one("possession"),
        kind="retract",
    ),
    # -- plans, routines ----------------------------------------------------------------------------------------------
    _rule("plan", rf"(?P<firm>打算|计划|准备|决定|筹划|安排好?|约好)(?:了)?(?:在|要)?{V}{END}", reading.planned),
    _rule(
        "plan_soft",
        rf"(?P<firm>)(?:就?要|会|将|即将)?(?:在)?(?P<v>(?:去|搬|结婚|回|开始|参加|入职|举办|办|出国|飞|换|考|生"
        rf"|毕业|开店|装修|跑|读|当)[^,]{{0,16}}){END}",
        reading.planned,
    ),
    # -- body and signs -----------------------------------------------------------------------------------------------
    _rule("handed", rf"是(?:个)?(?P<v>{_HAND})", reading.one("handedness"), negated="retract"),
    _rule("blood", r"(?:的)?(?:血型)?(?:是|:)?(?P<v>(?:ab|a|b|o)型)(?:血|的)?" + END, reading.one("blood_type")),
    _rule("shoe", r"穿(?P<v>\d\d(?:\.5)?码?)(?:的)?鞋?" + END, reading.one("shoe_size")),
    _rule(
        "height", r"(?:的)?身高(?:是|有|大概)?(?P<v>(?:\d|[一二])(?:[^,]{1,6}))" + END, reading.one("height"), bare=True
    ),
    _rule(
        "weight",
        r"(?:的)?体重(?:是|有|大概)?(?P<v>(?:\d|[一二三四五六七八九])(?:[^,]{1,6}))" + END,
        reading.one("weight"),
        bare=True,
    ),
    _rule(
        "zodiac", r"(?:是)?属(?:相是)?(?P<v>[鼠牛虎兔龙蛇马羊猴鸡狗猪])(?:的)?" + END, reading.one("zodiac"), bare=True
    ),
    _rule("star", rf"(?:的)?(?:星座)?(?:是)?(?P<v>{_STAR})(?:的)?" + END, reading.one("star_sign"), bare=True),
    _rule(
        "mbti",
        r"(?:的)?(?:mbti)?(?:是)?(?:个)?(?P<v>[ie][ns][tf][jp])(?:型人?格?)?" + END,
        reading.one("mbti"),
        negated="retract",
    ),
)
"""In order of precedence: the first that reads something in a predicate counts."""

COMPILED = tuple((rule, re.compile(rule.pattern)) for rule in RULES)
