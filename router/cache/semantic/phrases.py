"""Words that do not change what is asked, and words that mean the same: short lists, for a person to judge.

What is on no list counts. A missing phrase costs a hit; a wrong one gives a wrong answer.
"""

from __future__ import annotations

import re

POLITE = re.compile(
    r"^(?:(?:hi|hello|hey|thanks|quick question)[,:!.]+ *"
    r"|(?:please|kindly)\b(?! (?:is|are|was|mean|means|in|vs|and|or|as|to)\b)[,]? *"
    r"|(?:(?:can|could|would|will) you (?:please |kindly )?(?:tell me|explain to me|let me know)"
    r"|i(?: would|'d) like to know|i want to know|i wonder|do you know|tell me|let me know)"
    r"(?= (?:what|how|who|whom|whose|when|where|why|which)\b) *"
    r"|(?:can|could|would|will) you(?: please| kindly)?"
    r"(?= (?:explain|write|give|list|translate|describe|name|summari[sz]e|compare|recommend)\b) *)",
    re.IGNORECASE,
)
"""What may stand before a question; taken off as long as it matches."""
THANKS = re.compile(r"[,.!?]+ *(?:please|thanks|thank you|thx|thanks in advance)[ .!?]*$", re.IGNORECASE)
"""What may follow one, after a stop: `How do you say thanks` asks for the word."""
ARTICLES = frozenset({"the"})
"""Not `a`: vitamin A is written small, too."""
CONTRACTIONS = (
    (re.compile(r"\bcan['’]?t\b|\bcannot\b", re.IGNORECASE), "can not"),
    (re.compile(r"\bwon['’]t\b", re.IGNORECASE), "will not"),
    (re.compile(r"n['’]t\b", re.IGNORECASE), " not"),
    (re.compile(r"\b(what|how|who|where|when|why|that|it|there)['’]s\b", re.IGNORECASE), r"\1 is"),
    (re.compile(r"\b(i)['’]m\b", re.IGNORECASE), r"\1 am"),
    (re.compile(r"\b(you|we|they)['’]re\b", re.IGNORECASE), r"\1 are"),
)
HOW_TO = re.compile(r"^(?:how (?:do|can) (?:i|one)|how to|what is (?:the )?(?:best )?way to)\b", re.IGNORECASE)
SAME: dict[str, str] = {
    word: group[0]
    for group in (
        ("give", "provide"),
        ("large", "big"),
        ("largest", "biggest"),
        ("fast", "quick"),
        ("begin", "start"),
        ("buy", "purchase"),
        ("repair", "fix"),
        ("movie", "film"),
        ("car", "automobile"),
        ("doctor", "physician"),
        ("children", "kids"),
        ("summarize", "summarise"),
        ("color", "colour"),
        ("centre", "center"),
        ("advantages", "benefits", "pros"),
        ("disadvantages", "drawbacks", "cons"),
        ("explain", "describe"),
        ("ok", "okay"),
    )
    for word in group
}
"""Lower-case words, by the one that stands for them."""

CHINESE_POLITE = re.compile(
    r"^(?:你好|您好|请问(?:一下)?|麻烦(?:你|您)?|请(?:你|您)?"
    r"|(?:你|您)?(?:能不能|能否|可不可以|可以|能)(?:帮我|告诉我|给我讲讲|为我)|帮我"
    r"|我?想(?:知道|了解|问)(?:一下)?|告诉我(?:一下)?)[，,：: ]*"
)
CHINESE_THANKS = re.compile(r"(?:[，,。！!？? ]+(?:谢谢(?:你|您)?|多谢)|[呢啊呀哦]|[。！？?!~，, ])+$")
CHINESE_SAME = (
    ("一下", ""),
    ("怎样", "如何"),
    ("怎么样", "如何"),
    ("怎么", "如何"),
    ("为何", "为什么"),
    ("为啥", "为什么"),
    ("哪儿", "哪里"),
    ("什么地方", "哪里"),
    ("差别", "区别"),
    ("好处", "优点"),
    ("坏处", "缺点"),
    ("编写", "写"),
    ("使用", "用"),
)
CHINESE_WHAT = re.compile(r"^什么是(.+)$|^(.+?)(?:是什么(?:意思)?)$")
