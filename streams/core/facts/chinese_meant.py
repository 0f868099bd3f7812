"""What a Chinese turn doesn't mean as said: reports of others, echoes of a memory, hypotheses, tasks, games, jokes.

Invariant: a part of a turn that isn't meant is put out and states nothing; what was put out keeps its length, so that
places stay.
"""

from __future__ import annotations

import re

from streams.core.facts.words import PERSONS_ZH, alternatives

SURNAMES = (
    "张王李刘陈杨赵黄周吴徐孙马朱胡林郭何高罗郑梁谢宋唐许邓冯韩曹曾彭萧蔡潘田董袁于余叶蒋杜苏魏程吕丁沈任姚卢傅钟姜崔"
    "谭廖范汪陆金石戴贾韦夏邱方侯邹熊孟秦江阎薛尹段雷黎史龙陶贺顾毛郝龚邵万钱严赖覃洪武莫孔"
)
OTHERS_ZH = (
    r"(?:朋友|同事|老板|领导|老师|邻居|室友|同学|医生|闺蜜|上司|客户|房东|师傅|教练|兄弟们|姐妹们|亲戚|班主任|导师"
    r"|男神|女神"
    r"|偶像|哥们|公司|学校|单位|部门|楼下|隔壁|对面|家楼下|前任|前男友|前女友|前夫|前妻)"
)
"""Who or what belongs to the speaker and isn't the speaker."""
_WHO = (
    rf"(?:(?:我|咱|我们|咱们)(?:家)?的?(?:{alternatives(PERSONS_ZH)}|{OTHERS_ZH})|他们?|她们?|它们?|别人|大家|有人"
    rf"|人家|谁|老师|医生"
    rf"|朋友|同事|(?:小|老|阿)[\u4e00-\u9fff]{{1,2}}|[{SURNAMES}][\u4e00-\u9fff]{{1,2}}|书(?:里|上)|歌词|电影里"
    rf"|小说里|新闻(?:里|上)?"
    r"|网上|广告(?:里|上)?|所有人|很多人|同学)"
)
_REPORTS = re.compile(
    rf"(?:^|[,:; ])(?:昨天|今天|刚才|上次|以前|之前|最近|于是|结果|然后|但|可|因为)*{_WHO}(?:昨天|今天|刚才|上次"
    rf"|以前|之前|老是|总是|总|都|也|还|经常"
    r"|一直|老|就|又|却|非|跟我|对我|和我|居然|竟然|偏)*(?:说|觉得|以为|认为|告诉|问|夸|骂|笑话|猜|写|唱|喊|让我?"
    r"|逼|听说|想|怀疑|建议|叫我(?=[去来做滚别快]))"
)
_ECHOES = re.compile(
    r"(?<![跟和对给同向])(?:你|您)(?:之前|上次|刚才|刚刚|以前|昨天|前面|不是|还|也|好像|曾经?|都|是不是|已经|怎么"
    r"|一直|肯定|应该)*"
    r"(?:说过?|提过?|提到过?|讲过?|记得|记着|记不记得|知道(?!吗,)|觉得|以为|认为|记录|写)(?!错)"
    r"|(?:我|咱)(?:是不是|有没有|之前|上次|不是|好像|应该|以前|刚才)*(?:跟你|和你|对你|向你)?(?:有没有)?(?:说过"
    r"|告诉过|提过|讲过|提到过)"
    r"|(?:根据|按照?|依据)?你的?(?:记录|记忆|资料|笔记)|还记得我|记不记得|听说"
)
_RESUMES = re.compile(r"[,; ] ?(?:但是?|可是?|不对|不是的|其实|不过|实际上|错了|事实上|然而)")
_UNREAL = re.compile(
    r"如果|要是|假如|假设|倘若|假使|若是|的话|就好了|该多好|上辈子|下辈子|梦里|梦见|梦到|想象|除非|哪怕|即使|就算"
    r"|游戏里|电影里|小说里|书里"
    r"|歌词|剧里|动画里|故事里|主角|主人公|男主|女主|照片里|台词|难道|怎么可能|谁说|小时候|假定|一旦|比方说"
    r"|打个比方|的理想是|作文|(?:小说|故事|文章|电影|剧|书|诗)的?(?:开头|结尾|主角|主人公|第.{1,2}[章集])"
    r"|第.{1,2}章"
)
_TASK = re.compile(
    r"翻译(?:一下|成|为|[:;,]|这|下面|以下|下$|如下)|帮我翻|请翻|写一?[篇个封首段份则]|帮我写|代写|改写|润色|续写"
    r"|为题|造句|[语文]怎么说|仿写|第一人称|怎么翻|写作文|写日记|写个|编一?个|修改一下|[把将].{0,14}(?:改成|改得"
    r"|改为|润色|精简|扩写|缩写|翻成|转换成)|下面这[段句篇]|以下(?:内容|文字|这)|这[段句]话|以下是"
)
_ROLES = re.compile(r"假装|你来?演|我来?演|演戏|扮演|角色|cosplay|你现在是|你是.{1,8}我是|过家家|当一回|入戏|演一场")
JOKES = re.compile(r"开玩笑|开个玩笑|逗你|骗你的|瞎说的|瞎编的|说着玩|闹着玩|哈哈哈*假的|才怪")
"""Takes back what was said just before."""
HEDGE = re.compile(
    r"希望|想[当要去做住养学买换成搬找拥变像开在回]|好想|真想|也想|还想|可能|也许|大概|或许|说不定|没准|差点"
    r"|像[个一是]|仿佛|觉得自己|觉得我|感觉|算是|哪有"
    r"|好像|似乎|估计|应该是|恨不得|巴不得|宁愿|假的|怕是|是不是|有没有|会不会|能不能|要不要|什么|[谁哪]|(?<!不)怎"
    r"|多少|多大|几岁|几个|几号|[如为任]何|何[时地必处]|来着|为啥|吗$|么$|的样子$"
)
"""What makes a clause a wish, a guess or a question."""


def role_play(text: str) -> bool:
    """Whether a plain text asks to play: then 我 is somebody else.

    >>> role_play("假装你是我的医生,我是病人"), role_play("我是医生")
    (True, False)
    """
    return bool(_ROLES.search(text))


def task(sentence: str) -> bool:
    """Whether a sentence asks to write or translate something: what follows is material.

    >>> task("帮我翻译:我是学生"), task("我是翻译家")
    (True, False)
    """
    return bool(_TASK.search(sentence))


def meant(sentence: str) -> str:
    """The part of a plain sentence that its speaker means; the rest is put out with semicolons, its length kept.

    >>> meant("你说过我喜欢喝茶,其实我喜欢咖啡"), meant("如果我住在罗马")
    (';;;;;;;;;其实我喜欢咖啡', '')
    """
    if _UNREAL.search(sentence):
        return ""
    task_begins = _TASK.search(sentence)
    if task_begins:
        sentence = sentence[: task_begins.start()]
    for reports in (_ECHOES, _REPORTS):
        found = reports.search(sentence)
        while found:
            resumes = _RESUMES.search(sentence, found.end())
            stop = resumes.start() + 1 if resumes else len(sentence)
            sentence = sentence[: found.start()] + ";" * (stop - found.start()) + sentence[stop:]
            found = reports.search(sentence, stop)
    return sentence
