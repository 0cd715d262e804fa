"""Pairs of questions: near misses made by rule from sentences with one slot, and paraphrases.

A near miss differs in one thing that changes the right answer: a number, a negation, an entity, a unit, a language,
code, a direction, a comparison, a time. The paraphrases are of two kinds: a frame around a question (made by rule), and
ones written freely, which nobody fitted the lists of phrases to.
"""

from __future__ import annotations

from itertools import combinations

Pair = tuple[str, str]

SLOTS: dict[str, list[tuple[str, list[str]]]] = {
    "number": [
        ("What is {} times 7?", ["12", "13", "1.2", "-12", "twelve", "120"]),
        ("Give me {} reasons to learn Python", ["3", "5", "three", "ten"]),
        ("Who won the World Cup in {}?", ["1998", "2002", "2018"]),
        ("What happened on March {}, 1945?", ["4", "5", "14"]),
        ("{}加5等于多少？", ["3", "4", "三", "十三"]),
        ("用{}个字介绍北京", ["50", "100", "五十"]),
        ("{}年的奥运会在哪里举办？", ["2008", "2012", "2016"]),
    ],
    "negation": [
        ("Is it {} to eat raw chicken?", ["safe", "not safe", "unsafe"]),
        ("Which mammals {} lay eggs?", ["do", "do not", "never"]),
        ("List countries {} a coastline", ["with", "without"]),
        ("Why {} the sky blue?", ["is", "isn't", "was"]),
        ("哪些动物{}飞？", ["会", "不会", "从不"]),
        ("{}吃辣的人适合去四川吗？", ["能", "不能", "爱", "不爱"]),
    ],
    "entity": [
        ("What is the capital of {}?", ["France", "Germany", "Italy", "Austria", "Australia", "Georgia"]),
        ("Who is {} Curie?", ["Marie", "Pierre", "Irene"]),
        ("Tell me about {}", ["Go", "Rust", "Java", "JavaScript", "C", "C++", "C#"]),
        ("What does {} do?", ["IT", "it", "WHO", "who", "US", "us"]),
        ("{}的首都是什么？", ["法国", "德国", "英国", "美国"]),
        ("请介绍一下{}", ["李白", "李黑", "杜甫", "杜牧"]),
    ],
    "unit": [
        ("How far is 10 {} in steps?", ["km", "miles", "m", "feet"]),
        ("Convert 20 degrees {} to Kelvin", ["Celsius", "Fahrenheit"]),
        ("How many {} in a year?", ["days", "weeks", "hours", "seconds"]),
        ("一{}等于多少克？", ["斤", "公斤", "两", "磅"]),
    ],
    "language": [
        ("Translate 'good morning' into {}", ["French", "German", "Chinese", "Japanese"]),
        ("Write hello world in {}", ["Python", "Perl", "PHP", "Go"]),
        ("把‘早上好’翻译成{}", ["英语", "法语", "日语"]),
        ("{}", ["What is recursion?", "什么是递归？", "¿Qué es la recursión?"]),
    ],
    "code": [
        ("What does {} print?", ["x+1", "x-1", "x*1", "x++", "X+1"]),
        ("Explain {}", ["a == b", "a = b", "a != b", "a === b", "a => b"]),
        ("What is the type of {}?", ["[1]", "(1)", "{1}", "'1'", "1"]),
        ("{}在Python里是什么意思？", ["a[0]", "a[1]", "a(0)", "a{0}"]),
    ],
    "direction": [
        ("How do I travel {}?", ["from Rome to Oslo", "from Oslo to Rome", "to Rome from Bern", "via Rome to Oslo"]),
        ("Convert {}", ["km to miles", "miles to km"]),
        ("Is a {}?", ["dog bigger than a cat", "cat bigger than a dog"]),
        ("Flights {} Paris", ["to", "from", "over", "near"]),
        ("{}怎么走？", ["从北京到上海", "从上海到北京"]),
        ("{}谁大？", ["狗比猫", "猫比狗"]),
    ],
    "comparison": [
        ("What is the {} river in Asia?", ["longest", "shortest", "widest", "deepest"]),
        ("Should I {} my mortgage rate?", ["increase", "decrease", "keep"]),
        ("Is gold {} expensive than silver?", ["more", "less"]),
        ("{} people agree", ["All", "Some", "No", "Most", "Few"]),
        ("世界上最{}的山是哪座？", ["高", "矮", "大", "小"]),
        ("价格{}了怎么办？", ["上涨", "下跌", "上升"]),
    ],
    "time": [
        ("What is the weather like {}?", ["today", "tomorrow", "now", "in May"]),
        ("What should I eat {} a run?", ["before", "after", "during"]),
        ("{}天气怎么样？", ["今天", "明天", "昨天"]),
        ("睡觉{}可以喝茶吗？", ["前", "后"]),
    ],
    "act": [
        ("{} I take aspirin daily?", ["Can", "Should", "Must", "May"]),
        ("{} the story of Troy", ["Summarize", "Translate", "Rewrite", "Explain", "List"]),
        ("{} invented the telephone?", ["Who", "When", "Why", "Where"]),
        ("{}了", ["他来", "他没来", "她来"]),
        ("他来了{}", ["", "吗", "吧"]),
        ("{}学习编程？", ["为什么", "如何", "哪里", "何时"]),
    ],
}

TRAPS: tuple[Pair, ...] = (
    ("How do you say thanks", "How do you say please"),
    ("法语怎么说谢谢", "法语怎么说多谢"),
    ("Hi is a greeting in which language?", "Hello is a greeting in which language?"),
    ("Please is a verb", "Kindly is a verb"),
    ("Do you know Python?", "Tell me Python"),
    ("How do I work?", "How do you work?"),
    ("How should I invest?", "How can I invest?"),
    ("What is vitamin a good for?", "What is vitamin good for?"),
    ("What is make?", "What is create?"),
    ("What is select in SQL?", "What is choose in SQL?"),
    ("Who are Start?", "Who are Begin?"),
    ("What is Polish food?", "What is polish food?"),
    ("What does the US want?", "What does the us want?"),
    ("Was it you? Or me?", "Was it you or me"),
    ("Stop! the car", "Stop the car"),
    ("这本书是你的", "这本书是您的"),
    ("可以吃吗", "能吃吗"),
    ("我想知道", "知道"),
    ("它是什么颜色", "什么是它颜色"),
    ("Is it true, no?", "Is it true?"),
)
"""What the lists of phrases themselves might lead to."""

FRAMES = (
    "{}",
    "Please {}",
    "{}, please",
    "Hi, {}",
    "Hello! {}",
    "{} Thanks!",
    "Could you please tell me {}",
    "I'd like to know {}",
    "Do you know {}",
)
FRAMED = (
    "what is the capital of France?",
    "what's the boiling point of water?",
    "how do I sort a list in Python?",
    "why is the sky blue?",
    "who wrote Hamlet?",
    "when did the Berlin Wall fall?",
    "how many legs does a spider have?",
    "where is Mount Fuji?",
)
CHINESE_FRAMES = ("{}", "请问{}", "你好，{}", "{}呢", "我想知道{}", "能告诉我{}", "请告诉我{}，谢谢")
CHINESE_FRAMED = (
    "法国的首都是什么？",
    "如何学习英语",
    "为什么天是蓝的",
    "哈姆雷特是谁写的",
    "什么是递归",
    "水的沸点是多少",
)

FREE: tuple[Pair, ...] = (
    ("How do I boil an egg?", "What's the best way to boil an egg?"),
    ("How do I boil an egg?", "What do I do to get a boiled egg?"),
    ("What are the benefits of green tea?", "What are the advantages of green tea?"),
    ("What are the benefits of green tea?", "Why is green tea good for you?"),
    ("Which is the biggest planet?", "Which planet is the largest one?"),
    ("Which is the biggest planet?", "Which is the largest planet?"),
    ("Who painted the Mona Lisa?", "The Mona Lisa was painted by whom?"),
    ("How can I lose weight?", "How do I lose weight?"),
    ("How can I lose weight?", "Ways to lose weight"),
    ("What is the population of Japan?", "How many people live in Japan?"),
    ("How to fix a flat tire", "How do I repair a flat tire?"),
    ("What does photosynthesis mean?", "Define photosynthesis"),
    ("Explain photosynthesis", "Describe photosynthesis"),
    ("Recommend a movie", "Can you recommend a film?"),
    ("What's a good film for children?", "What is a good movie for kids?"),
    ("Give an example of a metaphor", "Show an example of a metaphor"),
    ("I can't sleep, what should I do?", "I cannot sleep. What should I do?"),
    ("Where can I buy a used car?", "Where can I purchase a used automobile?"),
    ("Summarise this in one line: the cat sat", "Summarize this in one line: the cat sat"),
    ("What time is it in Tokyo?", "Current time in Tokyo?"),
    ("什么是黑洞？", "黑洞是什么？"),
    ("什么是黑洞？", "黑洞是什么意思？"),
    ("什么是黑洞？", "解释一下黑洞"),
    ("怎么做红烧肉？", "如何做红烧肉"),
    ("怎么做红烧肉？", "红烧肉的做法"),
    ("长城在哪里？", "长城在哪儿"),
    ("长城在哪里？", "长城位于什么地方？"),
    ("喝茶的好处有哪些", "喝茶有哪些优点"),
    ("Java和C++的差别是什么", "Java和C++的区别是什么？"),
    ("帮我写一首关于春天的诗", "请写一首关于春天的诗"),
    ("为啥会下雨", "为什么会下雨？"),
    ("今天星期几", "今天是星期几？"),
)


def near_misses() -> list[tuple[str, str, str]]:
    """(rule, one, other): every two fillings of a slot."""
    filled = [
        (rule, frame.replace("{}", a, 1) if "{}" in frame else a, frame.replace("{}", b, 1))
        for rule, rows in SLOTS.items()
        for frame, words in rows
        for a, b in combinations(words, 2)
    ]
    return filled + [("trap", a, b) for a, b in TRAPS]


def framed() -> list[Pair]:
    """Each question beside itself in every frame."""
    pairs = [(q, f.format(q)) for q in FRAMED for f in FRAMES[1:]]
    pairs += [(f.format(q), g.format(q)) for q in FRAMED for f, g in combinations(FRAMES[1:5], 2)]
    pairs += [(q, f.format(q)) for q in CHINESE_FRAMED for f in CHINESE_FRAMES[1:]]
    pairs += [(f.format(q), g.format(q)) for q in CHINESE_FRAMED for f, g in combinations(CHINESE_FRAMES[1:5], 2)]
    return pairs
