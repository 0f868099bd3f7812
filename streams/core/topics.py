"""Serious topics, for which an answer is sampled at a lower temperature (PME, drift type 4).

A short word list on purpose: it decides a number between 0.3 and 0.7 and nothing else. A miss costs a little variety
of style, a false hit a little stiffness.
"""

from __future__ import annotations

import re
import unicodedata

# Each ending covers inflections: `diagnos` stands for diagnose, diagnosis, diagnosed.
_ENGLISH = {
    "medical": "diagnos medicin medication symptom disease illness cancer surgery doctor hospital prescri dosage "
    "overdose pregnan depression anxiety therap",
    "legal": "lawyer lawsuit legal court sued attorney divorce custody contract arrest police testif",
    "crisis": "suicid self-harm kill abuse abused abusive assault rape emergency grief funeral dying",
    "money": "debt loan mortgage bankrupt invest tax taxes pension insurance fraud scam",
}
_CHINESE = {
    "medical": "确诊 诊断 病情 生病 症状 吃药 药量 剂量 手术 医生 医院 癌 怀孕 抑郁 焦虑症 化疗 发烧",
    "legal": "律师 法律 法院 起诉 官司 离婚 抚养权 合同 报警 警察 被捕 违法",
    "crisis": "自杀 自残 想死 不想活 轻生 家暴 虐待 性侵 急救 去世 葬礼 遗书",
    "money": "欠债 债务 贷款 房贷 破产 投资 理财 股票 交税 养老金 保险 诈骗 被骗",
}
_WHOLE = {"kill", "tax", "sued", "rape", "legal", "court", "abuse", "dying"}


def _pattern(english: str, chinese: str) -> re.Pattern[str]:
    stems = "|".join(re.escape(word) + (r"\b" if word in _WHOLE else "") for word in english.split())
    return re.compile(rf"\b(?:{stems})|{'|'.join(chinese.split())}")


_TOPICS = {topic: _pattern(_ENGLISH[topic], _CHINESE[topic]) for topic in _ENGLISH}


def serious_topics(text: str) -> tuple[str, ...]:
    """Which of medical, legal, crisis and money a text touches.

    >>> serious_topics("我被确诊了，保险赔吗？"), serious_topics("I was diagnosed today"), serious_topics("你好")
    (('medical', 'money'), ('medical',), ())
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return tuple(topic for topic, pattern in _TOPICS.items() if pattern.search(plain))
