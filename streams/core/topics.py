"""Serious topics, for which an answer is sampled at a lower temperature: medical, legal, crisis, money.

The classifier is a word list with exceptions, in Chinese and English (``method`` "rules"): the query is folded, figures
of speech are cut out ("dying to see you", "保险起见"), and the rest is searched for words of each topic. It decides one
number, the temperature between 0.3 and 0.5 instead of 0.7, and nothing else. A miss costs steadiness where it matters
most and a false hit a little stiffness, so the list leans towards hits; crisis first.

References
----------
"Persona memory engineering" (PME), drift type 4: 0.7 for role play, 0.3 to 0.5 for serious, medical, legal talk.
"""

from __future__ import annotations

import re

from streams.core.text import folded

TOPICS = ("medical", "legal", "crisis", "money")
METHOD = "rules"
CHARACTERS_MAX = 8_000
"""Characters of a query that are looked through: its beginning and its end."""

# A word stands for itself and its plain endings (s, d, ed, ing); one that ends in - stands for whatever follows.
_ENGLISH = {
    "medical": "diagnos- medicine- medication- symptom- disease- illness- cancer- tumor- tumour- surger- doctor "
    "hospital- "
    "prescri- dosage dose overdos- pregnan- miscarriage depression depressed anxiety therap- psychiatr- "
    "antibiotic- insulin "
    "diabet- ibuprofen paracetamol aspirin antidepressant- chemo- biops- vaccin- seizure stroke allerg- "
    "infection- bleeding "
    "fever|chest pain|blood pressure|heart attack|panic attack|mental health|side effect|painkiller|blood test|my meds",
    "legal": "lawyer lawsuit attorney divorc- custody contract arrest- police testif- subpoena evict- eviction "
    "probation jail "
    "prison lawful- unlawful- illegal- legally legal sue suing court courts guilty plaintiff defendant "
    "settlement copyright "
    "trademark|restraining order|visa (?:was )?(?:denied|refused|rejected)|pressing? charges|"
    "wrongful(?:ly)? (?:dismiss|terminat)\\w*|"
    "last will|power of attorney|sign a waiver",
    "crisis": "suicid- self-harm- abused abusive abuser assault- rape raped molest- funeral grief griev- "
    "bereav- stalking stalker "
    "overdosed homicid-|kill(?:ing)? (?:my|him|her|them|your)sel\\w+|end(?:ing)? (?:my|it) (?:life|all)|"
    "want(?:ed)? to die|wish i (?:was|were) dead|"
    "(?:don't|do not|no longer) (?:want|wish) to (?:live|be alive|exist)|no reason to live|better off "
    "(?:dead|without me)|(?:hurt|harm|cut|cutting|hurting)(?:ing)? myself|"
    "domestic violence|(?:hits|hit|beats|beat|chokes|choked) me\\b(?! up)|passed away|(?:is|was|are) "
    "dying|(?:died|dies)\\b|call(?:ed)? an ambulance|medical emergency|missing (?:child|person)|"
    "can't go on|threaten(?:s|ed|ing) (?:me|to kill)",
    "money": "debt loan mortgage bankrupt- investment- investor- investing investe- tax taxes pension- "
    "insurance fraud- scam- scammed "
    "foreclos- creditor- bitcoin crypto- dividend- inheritance|stock market|my savings|retirement (?:fund|"
    "savings|account)|invest (?:my|our|in|all|some|the)\\b|"
    "(?:buy|sell|short|buying|selling) (?:\\w+ )?(?:stocks?|shares|bonds|options)|credit card|behind on "
    "(?:my )?(?:rent|payments)|interest rates?",
}
_CHINESE = {
    "medical": "确诊 诊断 病情 病历 生病 症状 吃药 服药 停药 用药 药量 剂量 副作用 手术 医生 医院 住院 癌 肿瘤 "
    "怀孕 流产 抑郁 焦虑症 化疗 发烧 高烧 "
    "胸闷 胸口疼 胸痛 出血 高血压 糖尿病 胰岛素 抗生素 布洛芬 阿司匹林 过敏 中风 心梗 疫苗 精神科 "
    "心理医生 看病 挂号 毫克 失眠 惊恐发作 什么药 体检报告",
    "legal": "律师 法律 法院 起诉 官司 离婚 抚养权 合同 报警 警察 被捕 违法 犯法 仲裁 遗嘱 遗产 判刑 坐牢 拘留 "
    "传票 侵权 签证被拒 欠薪 辞退 赔偿 取保候审 "
    "定金不退 不退押金 押金不退",
    "crisis": "自杀 自残 想死 不想活 活不下去 活着没意思 活着没有意义 轻生 结束生命 割腕 跳楼 家暴 虐待 性侵 "
    "强奸 猥亵 遗书 去世 过世 葬礼 丧事 急救 失踪 "
    "打我 跟踪我 威胁我 伤害自己 撑不下去",
    "money": "欠债 欠钱 还债 债务 贷款 房贷 网贷 破产 投资 理财 股票 炒股 基金 比特币 交税 报税 退税 养老金 "
    "保险 诈骗 被骗 骗走 催收 借钱 积蓄 信用卡 利率 首付",
}
_FIGURES = re.compile(
    r"\b(?:dying|killing|killed|kills) (?:to|it|time|me softly|for (?:a|some))\b|\bkill (?:time|the "
    r"(?:process|lights|mood|engine)|it)\b|\bdied? (?:laughing|of (?:laughter|"
    r"embarrassment|boredom))|\b(?:battery|phone|laptop|plant|conversation|joke|party|engine) (?:has |just "
    r"|is |was )?(?:died|dies|dying)\b|"
    r"\b(?:tennis|basketball|food|squash|badminton|volleyball) courts?\b|\bcourt (?:jester|shoes)\b|"
    r"\binvest (?:time|energy|yourself|effort)\b|\bloan ?words?\b|"
    r"\bgreat depression\b|\btropical depression\b|\bheart attack (?:when|from|seeing)\b|\b(?:cabin|spring|"
    r"gold|dance|football|disco) fever\b|\bretail therapy\b|"
    r"\bstroke of (?:luck|genius)\b|\bspin doctor\b|\bdoctor (?:who|strange)\b|\bdoctor of (?:philosophy|"
    r"letters)\b|\bpolice (?:procedural|drama|series|box)\b|\b(?:prison|jail)break\b|"
    r"\bcontract bridge\b|\b(?:guilty) (?:pleasure|conscience)s?\b|\bbrush ?strokes?\b|\bback ?stroke\b|"
    r"\bbreast ?stroke\b|\bdebt of gratitude\b|\bhuman settlement\b|"
    r"\bsue (?:[a-z]+ )?(?:said|says|called|and i|is|was|likes)\b|\baunt sue\b|\bdose of (?:humou?r|"
    r"reality|sunshine)\b|\bdiagnos\w+ (?:the|a) (?:bug|engine|network|error)\b"
    r"|保险起见|保险[杠丝箱柜]|上保险的锁|想死[你您我他她它]|[笑萌馋累困热气急美爽]死|发烧友|退烧的耳机|"
    r"报警器|自杀式|投资时间|感情投资|法律系的猫|打我电话|打我手机|理财频道的主持|诊断(?:程序|日志|报错|"
    r"模式)"
    r"|[字画]的?跳楼价|跳楼价|跳楼大甩卖|抑郁的天空|精神内耗|基金会|情感账户|过敏感"
)
_PLAIN_ENDING = r"(?:e?s|e?d|ing)?\b"


def _pattern(english: str, chinese: str) -> re.Pattern[str]:
    words, *phrases = english.split("|")
    stems = [re.escape(w[:-1]) if w.endswith("-") else re.escape(w) + _PLAIN_ENDING for w in words.split()]
    return re.compile(rf"\b(?:{'|'.join(stems)}|{'|'.join(phrases)})|{'|'.join(chinese.split())}")


_TOPICS = {topic: _pattern(_ENGLISH[topic], _CHINESE[topic]) for topic in TOPICS}


def serious_topics(text: str) -> tuple[str, ...]:
    """Which of medical, legal, crisis and money a text touches.

    >>> serious_topics("我被确诊了，保险赔吗？"), serious_topics("I was diagnosed today"), serious_topics("你好")
    (('medical', 'money'), ('medical',), ())
    >>> serious_topics("I'm dying to see you"), serious_topics("保险起见，我带伞"), serious_topics("I want to die")
    ((), (), ('crisis',))
    """
    if len(text) > CHARACTERS_MAX:
        text = text[: CHARACTERS_MAX // 2] + " " + text[-CHARACTERS_MAX // 2 :]
    plain = _FIGURES.sub(" ", folded(text).replace("’", "'"))
    return tuple(topic for topic, pattern in _TOPICS.items() if pattern.search(plain))
