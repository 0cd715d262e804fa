"""Words that tell what kind of work a prompt asks for, in English and in Chinese.

Both languages feed the same features, so that what is learnt from English outcomes carries over to Chinese, for which no
outcomes are published.
"""

from __future__ import annotations

import re

KINDS = ("mathematics", "code", "reasoning", "writing", "text_work", "quantities")
"""Kinds of work; the features' order."""

_ENGLISH = {
    "mathematics": """calculate compute solve equation prove proof theorem integral derivative matrix vector probability
        polynomial function modulo prime integer fraction triangle geometry algebra sum product root logarithm graph
        maximum minimum sequence series cos sin tan sqrt frac let""",
    "code": """code function python java javascript typescript rust golang sql html css bash regex implement class method
        array string loop compile debug refactor bug exception api def return import const void int bool assert commit
        repository algorithm""",
    "reasoning": """why explain because therefore however if then which must follows assume assumes argument conclusion
        statement statements evidence infer implies logically premise contradiction unless except least likely most
        reason compare analyze analyse true false not best""",
    "writing": """write essay story poem email blog article letter speech song draft compose creative imagine roleplay
        pretend describe brainstorm ideas suggest recommend list tips""",
    "text_work": """summarize summarise summary translate translation rewrite paraphrase extract classify classification
        identify sentiment keywords edit correct grammar convert format json table entities label""",
    "quantities": """each every total twice half times per more less than many much cost costs price dollars percent
        hours minutes days weeks months years miles remaining left altogether average""",
}

_CHINESE = {
    "mathematics": "计算 求解 方程 证明 定理 积分 导数 矩阵 向量 概率 多项式 函数 整数 分数 三角 几何 代数 等于 公式 数列",
    "code": "代码 编程 程序 函数 算法 实现 调试 接口 数据库 脚本 变量 数组 循环 编译 重构 提交",
    "reasoning": "为什么 解释 因为 所以 如果 推理 逻辑 假设 结论 论证 分析 比较 原因 下列 以下哪 正确 错误 能够推出 最",
    "writing": "写一 文章 故事 诗 邮件 演讲 作文 小说 描述 想象 扮演 建议 推荐 列出 创作 撰写",
    "text_work": "总结 摘要 翻译 改写 重写 提取 分类 识别 情感 关键词 语法 转换 格式 表格 润色",
    "quantities": "每个 每天 总共 一共 两倍 一半 多少 平均 价格 元 小时 分钟 百分 剩 公里 公斤",
}

ENGLISH: dict[bytes, tuple[int, ...]] = {}
"""Lower-case word to the indices in `KINDS` it counts for."""
CHINESE: dict[str, tuple[int, ...]] = {}
"""Chinese cue to the indices in `KINDS` it counts for."""

for _index, _kind in enumerate(KINDS):
    for _word in _ENGLISH[_kind].split():
        ENGLISH[_word.encode()] = (*ENGLISH.get(_word.encode(), ()), _index)
    for _word in _CHINESE[_kind].split():
        CHINESE[_word] = (*CHINESE.get(_word, ()), _index)

ENGLISH_WORDS = frozenset(ENGLISH)
CHINESE_PATTERN = re.compile("|".join(sorted(map(re.escape, CHINESE), key=len, reverse=True)))
"""Finds the cues of a text from left to right, the longer ones first."""
