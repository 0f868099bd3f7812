"""Words that rules and normalisation share: persons of a family, animals, languages, occupations, illnesses, things.

Closed lists rather than patterns where the list keeps a rule precise: "I'm a nurse" states an occupation, "I'm a mess"
doesn't, and only the noun tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


def listed(words: str) -> frozenset[str]:
    """Words of a text.

    >>> sorted(listed("a b"))
    ['a', 'b']
    """
    return frozenset(words.split())


def _table(lines: str) -> dict[str, str]:
    """``canonical: word, word`` a line, to words with their canonical form."""
    found = {}
    for line in lines.strip().splitlines():
        canonical, _, words = line.partition(":")
        for word in [canonical, *words.split(",")]:
            if word.strip():
                found[word.strip()] = canonical.strip()
    return found


def alternatives(words: Iterable[str]) -> str:
    """Words as the alternatives of a pattern, longer ones first.

    >>> alternatives(["a", "ab"])
    '(?:ab|a)'
    """
    return "(?:" + "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word))) + ")"


PERSONS_EN = _table("""
wife: wifey, missus
husband: hubby
partner: fiance, fiancee, fiancé, fiancée, significant other, better half
girlfriend: gf
boyfriend: bf
son: little boy
daughter: little girl
child: kid, toddler, baby
mother: mom, mum, mama, mommy, mummy
father: dad, papa, daddy
sister: sis
brother: bro
grandmother: grandma, granny, nana, gran
grandfather: grandpa, granddad
grandson:
granddaughter:
cousin:
aunt: auntie
uncle:
niece:
nephew:
""")
"""Persons in English, with the word of the vocabulary."""

PERSONS_ZH = _table("""
wife: 老婆, 妻子, 媳妇, 媳妇儿, 太太, 爱人
husband: 老公, 丈夫, 先生
partner: 对象, 伴侣, 另一半, 未婚妻, 未婚夫
girlfriend: 女朋友, 女友
boyfriend: 男朋友, 男友
son: 儿子, 大儿子, 小儿子
daughter: 女儿, 闺女, 大女儿, 小女儿
child: 孩子, 小孩, 娃, 宝宝, 老大, 老二
mother: 妈妈, 母亲, 妈, 老妈
father: 爸爸, 父亲, 爸, 老爸, 爹
sister: 姐姐, 妹妹, 姐, 妹, 大姐, 二姐, 小妹
brother: 哥哥, 弟弟, 哥, 弟, 大哥, 二哥, 小弟
grandmother: 奶奶, 外婆, 姥姥
grandfather: 爷爷, 外公, 姥爷
grandson: 孙子, 外孙
granddaughter: 孙女, 外孙女
cousin: 表哥, 表弟, 表姐, 表妹, 堂哥, 堂弟, 堂姐, 堂妹
aunt: 阿姨, 姑姑, 姨妈, 姑妈, 舅妈, 婶婶
uncle: 叔叔, 舅舅, 伯伯, 姑父, 姨父
niece: 侄女, 外甥女
nephew: 侄子, 外甥
""")
"""Persons in Chinese, with the word of the vocabulary."""

SPECIES_EN = _table("""
dog: puppy, pup, doggo, beagle, greyhound, labrador, poodle, corgi, husky, golden retriever, retriever, pug,
cat: kitten, kitty, tabby, siamese, maine coon, ragdoll, tomcat
dog : german shepherd, dachshund, bulldog, terrier, border collie, collie, spaniel, rottweiler, dalmatian, chihuahua
hamster: guinea pig, gerbil
rabbit: bunny
bird: parrot, budgie, cockatiel, canary, parakeet
fish: goldfish, betta
turtle: tortoise
snake: corn snake, ball python
lizard: gecko, iguana, bearded dragon
horse: pony, mare
ferret:
hedgehog:
chicken: hen
goat:
""")
"""Pets in English, with the word in which breeds are equal to their species."""

SPECIES_ZH = _table("""
dog: 狗, 小狗, 狗狗, 狗子, 金毛, 柯基, 泰迪, 哈士奇, 拉布拉多, 边牧, 柴犬, 萨摩耶, 博美, 贵宾, 法斗, 比熊, 田园犬, 犬
cat: 猫, 小猫, 猫咪, 猫猫, 橘猫, 布偶, 布偶猫, 英短, 美短, 狸花猫, 暹罗猫, 三花, 黑猫, 白猫
hamster: 仓鼠, 豚鼠, 荷兰猪
rabbit: 兔子, 小兔子, 兔
bird: 鹦鹉, 鸟, 玄凤, 虎皮鹦鹉
fish: 鱼, 金鱼, 锦鲤
turtle: 乌龟, 龟, 小乌龟
snake: 蛇
lizard: 蜥蜴, 守宫
horse: 马
""")
"""Pets in Chinese, with their English word."""

LANGUAGES = _table("""
english: 英语, 英文
french: 法语, 法文
german: 德语, 德文
spanish: 西班牙语, 西语
portuguese: 葡萄牙语, 葡语
italian: 意大利语, 意语
dutch: 荷兰语
polish: 波兰语
russian: 俄语, 俄文
ukrainian: 乌克兰语
japanese: 日语, 日文
korean: 韩语, 韩文, 朝鲜语
chinese: 中文, 汉语
mandarin: 普通话, 国语, mandarin chinese
cantonese: 粤语, 广东话, 白话
shanghainese: 上海话, 吴语
hokkien: 闽南语, 闽南话, 台语
arabic: 阿拉伯语
hindi: 印地语
turkish: 土耳其语
greek: 希腊语
swedish: 瑞典语
norwegian: 挪威语
danish: 丹麦语
finnish: 芬兰语
czech: 捷克语
hungarian: 匈牙利语
romanian: 罗马尼亚语
hebrew: 希伯来语
vietnamese: 越南语
thai: 泰语
indonesian: 印尼语
malay: 马来语
tagalog: filipino, 菲律宾语
latin: 拉丁语
esperanto: 世界语
sichuanese: 四川话
hakka: 客家话
teochew: 潮汕话
mongolian: 蒙古语
tibetan: 藏语
catalan:
basque:
welsh:
irish:
gaelic:
croatian:
serbian:
slovak:
slovene:
bulgarian:
persian: farsi, 波斯语
urdu:
bengali:
tamil:
telugu:
punjabi:
swahili:
icelandic:
sign language: 手语, asl, bsl
""")
"""Languages in both languages, with the English word."""
LANGUAGE_ZH = (
    alternatives(word for word in LANGUAGES if not word.isascii())[:-1] + r"|"
    r"(?![说讲会懂电笑对废实坏假梦脏情外口听一点和跟与及还话语不几两二三四五六七八九十年个用])[\u4e00-\u9fff]{1,2}?"
    r"(?<![笑电说对废实坏假梦脏情外口听])(?:语|话))"
)
"""A language in Chinese: a known one, or whatever 语 or 话 it is."""

DIETS = _table("""
vegetarian: veggie, 吃素, 素食, 素食者, 素食主义者, 素食主义, a vegetarian, vegetarian diet, 吃素的
vegan: vegan diet, 纯素, 纯素者, 纯素食, 纯素食者, 纯素食主义者
pescatarian: pescetarian, 鱼素
flexitarian:
keto: keto diet, ketogenic, 生酮, 生酮饮食
paleo: paleo diet
halal: 清真, 吃清真, 清真饮食
kosher: 犹太洁食
gluten-free: gluten free, 无麸质
low-carb: low carb, 低碳, 低碳饮食
dairy-free: dairy free
carnivore:
omnivore:
""")
"""Diets in both languages."""

MARITAL = _table("""
single: 单身, 未婚, 单着
engaged: 订婚, 订了婚, got engaged
married: 已婚, 结婚, 结过婚, 结的婚, 结了婚, 成家, got married, 领证
divorced: 离婚, 离异, 离了婚, 离的婚, 离过婚, got divorced, split up
separated: 分居
widowed: 丧偶, widow, widower
""")
HANDEDNESS = _table("""
left: left-handed, left handed, lefty, 左撇子, 左利手
right: right-handed, right handed, 右撇子, 右利手
both: ambidextrous, 双手都行
""")

OCCUPATIONS_EN = listed(
    "accountant actor actress actuary administrator advisor adviser agent analyst anaesthetist anesthesiologist "
    "animator anthropologist apprentice archaeologist architect archivist artist assistant astronaut astronomer "
    "attorney auditor author baker banker barber barista bartender biologist blacksmith blogger bookkeeper "
    "botanist bricklayer broker builder butcher buyer captain cardiologist caregiver carer caretaker carpenter "
    "cashier cellist chef chemist childminder choreographer cleaner clerk coach cobbler comedian composer "
    "conductor constable consultant contractor controller cook coordinator copywriter counsellor counselor "
    "courier curator dancer dealer dentist dermatologist designer detective developer dietitian diplomat director "
    "doctor doorman draughtsman driver ecologist economist editor educator electrician engineer entrepreneur "
    "epidemiologist estimator executive farmer filmmaker firefighter fireman fisherman florist freelancer "
    "gardener geographer geologist geophysicist glazier goldsmith groomer guard guide hairdresser historian "
    "housekeeper housewife illustrator inspector instructor interpreter intern investigator investor janitor "
    "jeweller jeweler joiner journalist judge juggler lawyer lecturer lecturer librarian lifeguard linguist "
    "locksmith machinist magician manager marketer mason masseuse mathematician mechanic meteorologist midwife "
    "mechanic miner model musician nanny neurologist nurse nutritionist officer operator optician optometrist "
    "painter paralegal paramedic pastor pathologist pediatrician paediatrician pharmacist philosopher "
    "photographer physician physicist physiotherapist pianist pilot planner plasterer playwright plumber "
    "podiatrist poet policeman policewoman politician porter postman potter priest principal producer professor "
    "programmer prosecutor psychiatrist psychologist publicist radiographer radiologist ranger realtor "
    "receptionist recruiter referee reporter representative researcher retiree roofer sailor salesman "
    "salesperson saleswoman scientist sculptor seamstress secretary seller shepherd shopkeeper singer sociologist "
    "soldier solicitor sommelier specialist statistician steward stewardess strategist streamer student surgeon "
    "surveyor tailor tattooist teacher teller technician technologist therapist tiler trader trainee trainer "
    "translator tutor undertaker underwriter upholsterer vet veterinarian videographer violinist waiter waitress "
    "watchmaker weaver welder writer youtuber zookeeper freelance ceo cto cfo coo dev sysadmin admin "
    "entrepreneur undergrad postdoc undergraduate psychotherapist anaesthesiologist barrister bus-driver "
    "beekeeper winemaker brewer potter luthier ta rn"
)
"""Last words of occupations that stand after "I'm a"."""

OCCUPATION_ZH = (
    r"(?:产品经理|项目经理|客户经理|总经理|经理|总监|主管|主任|部长|会计|出纳|翻译|护士|医生|牙医|兽医|中医|老师"
    r"|教师|教授|讲师"
    r"|律师|厨师|设计师|摄影师|工程师|程序员|分析师|咨询师|策划师|理发师|美容师|药剂师|营养师|建筑师|魔术师|化妆师"
    r"|架构师|精算师"
    r"|运营|会计师|策划|编辑|记者|作家|画家|音乐家|科学家|企业家|艺术家|歌手|演员|导演|编剧|主持人|主播|博主|司机"
    r"|警察|军人|消防员"
    r"|飞行员|空姐|空乘|宇航员|公务员|快递员|外卖员|服务员|售货员|销售员|研究员|教练员|裁判员|收银员|管理员|保安"
    r"|保姆|月嫂|教练"
    r"|销售|采购|客服|文员|前台|秘书|助理|法官|检察官|园丁|农民|渔民|工人|木匠|铁匠|电工|焊工|水管工|裁缝|学生"
    r"|大学生|研究生|博士生"
    r"|高中生|初中生|实习生|博士后|留学生|自由职业者|自由职业|个体户|家庭主妇|全职妈妈|全职太太|创业者|投资人|猎头"
    r"|导游|图书管理员"
    r"|[\u4e00-\u9fff]{1,3}(?<![大导恩法禅军祖出会])师|[\u4e00-\u9fff]{1,3}(?<![成党团会人学队一动全官满])员|志愿者"
    r"|社工|药师|法医|船员|海员|水手|飞行教官|村医|班主任|校长|院长|店长|站长|村长|厂长|所长|处长|科长|组长|队长"
    r"|船长|机长|护士长|合伙人|后端|前端|码农|程序媛|hr|ceo|cto|ui|up主"
    r"|数据分析|软件开发|产品|插画师|心理咨询师|调酒师|咖啡师|瑜伽老师|健身教练|面包师|糕点师|钢琴老师|测试"
    r"|测试工程师|新媒体运营)"
)
"""Ends of occupations in Chinese."""

HEALTH_EN = (
    r"(?:(?:type [12] |gestational )?diabetes|asthma|migraines?|hypertension|(?:high|low) blood pressure|epilepsy|adhd"
    r"|add|arthritis|depression|anxiety|insomnia|coeliac disease|celiac disease|coeliac|celiac|crohn'?s(?: disease)?"
    r"|ibs|cancer|an[ae]mia|eczema|psoriasis|autism|dyslexia|tinnitus|endometriosis|pcos|lupus|glaucoma|gout"
    r"|hay fever|sleep apnea|a heart condition|hypothyroidism|parkinson'?s|multiple sclerosis|ms|ptsd|ocd|bipolar"
    r"|bipolar disorder|scoliosis|a pacemaker|chronic \w+(?: \w+)?|osteoporosis|fibromyalgia|vertigo|high cholesterol"
    r"|a bad (?:back|knee)|kidney disease|heart disease|leuk[ae]+mia|hepatitis|a slipped disc|a herniated disc)"
)
HEALTH_ADJECTIVES_EN = (
    r"(?:lactose[- ]intolerant|gluten[- ]intolerant|diabetic|asthmatic|coeliac|celiac|pregnant|colou?r[- ]?blind|deaf"
    r"|blind|dyslexic|autistic|epileptic|an[ae]mic|bipolar|short[- ]sighted|near[- ]sighted|hard of hearing)"
)
HEALTH_ZH = (
    r"(?:[一二12]型糖尿病|糖尿病|高血压|低血压|高血脂|高血糖|哮喘|偏头痛|抑郁症|焦虑症|失眠症?|癫痫|心脏病|冠心病"
    r"|关节炎|类风湿"
    r"|胃病|胃炎|胃溃疡|鼻炎|过敏性鼻炎|湿疹|痛风|甲亢|甲减|颈椎病|腰椎间盘突出|肾结石|乙肝|贫血|多动症|近视|色盲|色弱"
    r"|乳糖不耐受?|白血病|[肺胃肝]癌|癌症|帕金森|阿尔茨海默|荨麻疹|银屑病|阅读障碍|自闭症|红斑狼疮|脂肪肝|骨质疏松"
    r"|耳鸣|双相)"
)

THINGS_EN = (
    r"(?:car|bike|bicycle|motorbike|motorcycle|scooter|boat|house|apartment|flat|camera|laptop|computer|macbook|phone"
    r"|iphone|ipad|guitar|piano|violin|van|truck|tablet|console|playstation|ps5|xbox|switch|drone|telescope|kayak|canoe"
    r"|printer|motorhome|caravan|cabin|cottage|farm|allotment|kindle|e-?reader|watch|smartwatch|tesla|honda|toyota"
    r"|ford|bmw|audi|volvo|subaru|mazda|corolla|civic|prius|golf|vespa|mercedes|porsche|jeep|keyboard|synth"
    r"|synthesizer|drum kit|record player|sewing machine|espresso machine|tv|television|treadmill|surfboard|bakery"
    r"|restaurant|shop|cafe|café|bookshop|bookstore|studio|sailboat|yacht|rv|pickup|e-bike|ebike|tent|greenhouse)"
)
THINGS_ZH = (
    r"(?:车|汽车|轿车|摩托车?|电动车|自行车|单车|房车|房子|公寓|别墅|相机|单反|微单|电脑|笔记本|手机|平板|吉他|钢琴"
    r"|小提琴|古筝"
    r"|无人机|望远镜|手表|游戏机|switch|ps5|iphone|ipad|macbook|特斯拉|比亚迪|宝马|奔驰|奥迪|丰田|本田|大众|朗逸"
    r"|卡罗拉|思域|雅阁"
    r"|蔚来|理想|小鹏|保时捷|店|面馆|餐馆|咖啡馆|农场|电视|跑步机|帐篷|键盘|音响|耳机|打印机|房|船|kindle)"
)

NATIONALITIES = listed(
    "american australian austrian belgian brazilian british bulgarian cambodian canadian chilean chinese colombian "
    "croatian cuban czech danish dutch egyptian english estonian ethiopian filipino finnish french german ghanaian "
    "greek hungarian icelandic indian indonesian iranian iraqi irish israeli italian jamaican japanese kenyan "
    "korean latvian lebanese lithuanian malaysian mexican moroccan nepali nigerian norwegian pakistani peruvian "
    "polish portuguese romanian russian scottish serbian singaporean slovak slovenian spanish swedish swiss syrian "
    "taiwanese thai tunisian turkish ukrainian venezuelan vietnamese welsh zimbabwean argentinian"
)
"""What "I'm" may stand before to say where somebody is from."""
