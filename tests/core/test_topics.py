"""Serious topics in both languages, and what only sounds serious.

The sentences were written by the author of the word list, beside it: they
show what it does and are no sample of real queries, so their share of hits is no figure of accuracy.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.topics import TOPICS, serious_topics

SERIOUS = {
    "medical": [
        "I was diagnosed with diabetes last week",
        "How much ibuprofen can I take?",
        "My doctor wants a biopsy",
        "is it safe to stop my antidepressants",
        "I've had chest pain since noon",
        "She is pregnant and has a fever",
        "My blood pressure is 180 over 110",
        "I keep having panic attacks",
        "医生说要做手术，我有点怕",
        "布洛芬一天能吃几次",
        "我妈确诊了乳腺癌",
        "最近一直失眠，要不要吃药",
        "孩子发烧39度怎么办",
        "停药以后有副作用吗",
    ],
    "legal": [
        "Can my landlord evict me?",
        "She's suing us over the fence",
        "My lawyer says to sign the contract",
        "I got arrested on Friday",
        "we're getting divorced and I want custody",
        "Is that even legal?",
        "I have to testify in court",
        "公司不给加班费，可以仲裁吗",
        "我想离婚，孩子归谁",
        "收到法院传票了",
        "房东不退押金",
        "这份合同能签吗",
    ],
    "crisis": [
        "I want to die",
        "I don't want to live anymore",
        "sometimes I think about killing myself",
        "My father passed away this morning",
        "my husband hits me when he drinks",
        "I've been hurting myself again",
        "the dog died last night",
        "Everyone would be better off without me",
        "I can't go on like this",
        "我不想活了",
        "感觉活着没意思",
        "奶奶昨天去世了",
        "他喝醉了就打我",
        "我又割腕了",
        "我真的撑不下去了",
    ],
    "money": [
        "Should I invest in bitcoin?",
        "I can't pay my mortgage",
        "we're going bankrupt",
        "I got scammed out of my savings",
        "Do I owe taxes on that?",
        "My credit card is maxed out",
        "will the insurance pay for it",
        "我想把钱都买股票",
        "网贷还不上了，天天被催收",
        "我妈被骗了五万块",
        "房贷利率是不是又涨了",
        "这个保险值得买吗",
        "想拿积蓄去炒股",
    ],
}

LIGHT = [
    "I'm dying to see you",
    "That joke killed me, you're killing it",
    "We played on the tennis court till ten",
    "my phone died again",
    "Let's kill time with a film",
    "The detective investigates the castle",
    "I nearly died laughing",
    "It was a stroke of luck",
    "That song is my guilty pleasure",
    "She took a taxi to the museum",
    "a course on the Great Depression",
    "Spring fever has got me",
    "retail therapy all afternoon",
    "Doctor Who is on tonight",
    "Aunt Sue made soup",
    "What did I eat yesterday?",
    "kill the process and start it again",
    "The contractor painted the door blue",
    "Shall we invest time in the garden?",
    "the conversation died after that",
    "A healthy dose of humour helps",
    "保险起见，我带了伞",
    "想死你了，什么时候回来",
    "笑死我了",
    "他是个音响发烧友",
    "烟雾报警器没电了",
    "到了打我电话",
    "跳楼价大促销",
    "今天吃了馄饨",
    "基金会的志愿者很热情",
    "热死了，想吃冰棍",
    "保险杠掉漆了",
    "这个诊断程序总报错",
    "你觉得我穿什么好看",
    "这猫太可爱了，萌死",
    "我们去看银杏吧",
]


@pytest.mark.parametrize(("topic", "text"), [(topic, text) for topic, texts in SERIOUS.items() for text in texts])
def test_serious_topics_are_found(topic: str, text: str) -> None:
    assert topic in serious_topics(text)


@pytest.mark.parametrize("text", LIGHT)
def test_figures_of_speech_are_not_serious(text: str) -> None:
    assert serious_topics(text) == ()


def test_every_topic_has_cases_in_both_languages() -> None:
    for topic in TOPICS:
        assert any(text.isascii() for text in SERIOUS[topic])
        assert any(not text.isascii() for text in SERIOUS[topic])


def test_a_figure_of_speech_does_not_hide_what_is_serious_beside_it() -> None:
    assert serious_topics("Killing time in the hospital, I was diagnosed today") == ("medical",)
    assert serious_topics("笑死，我被确诊了") == ("medical",)


def test_full_width_and_traditional_characters_are_folded() -> None:
    assert serious_topics("ＭＹ　ＬＡＷＹＥＲ") == ("legal",)
    assert serious_topics("醫生說要開刀做手術") == ("medical",)


@given(st.text(max_size=200), st.text(max_size=200))
def test_what_is_found_in_a_text_is_found_in_a_longer_one_with_a_line_between(text: str, more: str) -> None:
    found = serious_topics(text)
    assert list(found) == [topic for topic in TOPICS if topic in found]
    assert set(found) <= set(serious_topics(f"{text}\n\n{more}"))


def test_a_very_long_text_is_looked_through_at_both_ends() -> None:
    assert serious_topics("word " * 50_000 + "I want to die") == ("crisis",)
