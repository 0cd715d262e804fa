"""Pairs that no rule and no list was fitted to: each row has three wordings of one question, and one near miss.

Written in one go, before anything was measured on them, and not changed afterwards. A near miss is what somebody might
really ask next: close in words, with another right answer.
"""

from __future__ import annotations

from itertools import combinations

Row = tuple[str, str, str, str]
"""Three wordings, then the near miss."""

ROWS: tuple[Row, ...] = (
    ("How do I reset my password?", "I forgot my password, how can I change it?", "What are the steps to reset a password?", "How do I reset my username?"),
    ("What is the boiling point of water?", "At what temperature does water boil?", "How hot must water be to boil?", "What is the freezing point of water?"),
    ("Who invented the telephone?", "Who was the inventor of the telephone?", "The telephone was invented by whom?", "Who invented the television?"),
    ("How long does it take to fly from London to New York?", "What is the flight time from London to New York?", "How many hours is the flight from London to New York?", "How long does it take to fly from New York to London?"),
    ("What causes thunder?", "Why does it thunder?", "Where does the sound of thunder come from?", "What causes lightning?"),
    ("How can I learn to play the guitar?", "What is the best way to learn guitar?", "I want to learn guitar, how should I start?", "How can I learn to play the piano?"),
    ("Is coffee bad for your heart?", "Does coffee harm the heart?", "Can drinking coffee hurt your heart?", "Is tea bad for your heart?"),
    ("How do you make pancakes?", "What is a recipe for pancakes?", "Tell me how to cook pancakes", "How do you make waffles?"),
    ("What is the tallest building in the world?", "Which building is the tallest in the world?", "What's the highest building on earth?", "What is the oldest building in the world?"),
    ("How do I delete a file in Linux?", "What command removes a file in Linux?", "How can a file be deleted on Linux?", "How do I copy a file in Linux?"),
    ("When did World War II end?", "What year did World War II finish?", "When was the end of World War II?", "When did World War I end?"),
    ("Why do cats purr?", "What makes cats purr?", "For what reason do cats purr?", "Why do cats hiss?"),
    ("How much does an elephant weigh?", "What is the weight of an elephant?", "How heavy is an elephant?", "How tall is an elephant?"),
    ("What is machine learning?", "Explain machine learning", "Can you define machine learning?", "What is deep learning?"),
    ("How do I get a US passport?", "What is needed to apply for a US passport?", "How can I apply for a passport in the US?", "How do I get a UK passport?"),
    ("What is the fastest animal on land?", "Which land animal runs the fastest?", "What animal is fastest on land?", "What is the fastest animal in the sea?"),
    ("How many calories are in a banana?", "What is the calorie count of a banana?", "How many kcal does a banana have?", "How many calories are in an apple?"),
    ("What does HTTP stand for?", "What is the meaning of HTTP?", "HTTP is short for what?", "What does HTTPS stand for?"),
    ("How can I lower my blood pressure?", "What are ways to reduce blood pressure?", "What helps against high blood pressure?", "How can I raise my blood pressure?"),
    ("Who is the author of Don Quixote?", "Who wrote Don Quixote?", "Which author wrote Don Quixote?", "Who translated Don Quixote?"),
    ("How do I reverse a string in Python?", "What is the way to reverse a string in Python?", "Python: reverse a string", "How do I reverse a list in Python?"),
    ("What is inflation?", "Explain what inflation means", "What do economists mean by inflation?", "What is deflation?"),
    ("Where do penguins live?", "What is the habitat of penguins?", "In which places can penguins be found?", "Where do polar bears live?"),
    ("How do vaccines work?", "Explain the way vaccines work", "What is the mechanism behind vaccines?", "How do antibiotics work?"),
    ("What are the symptoms of the flu?", "How do I know if I have the flu?", "Which symptoms does the flu have?", "What are the symptoms of a cold?"),
    ("How do I boil rice?", "What's the right way to cook rice?", "How should rice be cooked?", "How do I fry rice?"),
    ("What is the largest ocean?", "Which ocean is the biggest?", "What ocean is largest in area?", "What is the smallest ocean?"),
    ("How do I tie a tie?", "What are the steps for tying a tie?", "Show me how a tie is tied", "How do I tie a bow tie?"),
    ("Can dogs eat chocolate?", "Is chocolate safe for dogs?", "May I give my dog chocolate?", "Can dogs eat cheese?"),
    ("How far is the moon from the earth?", "What is the distance between the earth and the moon?", "How many kilometres away is the moon?", "How far is the sun from the earth?"),
    ("What is the difference between a virus and a bacterium?", "How do viruses and bacteria differ?", "Viruses versus bacteria: what is different?", "What do viruses and bacteria have in common?"),
    ("How do I cancel my subscription?", "I want to end my subscription, what do I do?", "Where can I cancel the subscription?", "How do I renew my subscription?"),
    ("What time does the sun rise?", "When is sunrise?", "At what hour does the sun come up?", "What time does the sun set?"),
    ("Which vitamins are in oranges?", "What vitamins do oranges contain?", "What vitamins can I get from oranges?", "Which vitamins are in carrots?"),
    ("How do I remove a red wine stain?", "What gets red wine stains out?", "How can you clean a stain of red wine?", "How do I remove a coffee stain?"),
    ("What is the currency of Switzerland?", "Which currency is used in Switzerland?", "What money do they use in Switzerland?", "What is the currency of Sweden?"),
    ("How do airplanes fly?", "What keeps airplanes in the air?", "Explain how a plane can fly", "How do helicopters fly?"),
    ("Should I buy or rent a house?", "Is it better to rent or buy a house?", "Renting or buying a house: which is wiser?", "Should I buy or build a house?"),
    ("How do I center a div in CSS?", "What is the way to center a div with CSS?", "CSS: how can a div be centered?", "How do I hide a div in CSS?"),
    ("How do I start a small business?", "What do I need to open a small business?", "What are the first steps of founding a small business?", "How do I close a small business?"),
    ("What are prime numbers?", "Define prime number", "What makes a number prime?", "What are perfect numbers?"),
    ("Why are flamingos pink?", "What makes flamingos pink?", "Where does the pink colour of flamingos come from?", "Why are flamingos endangered?"),
    ("How often should I water a cactus?", "How frequently does a cactus need water?", "How many times a month should a cactus be watered?", "How often should I water an orchid?"),
    ("How do I convert a PDF to Word?", "What is the best way to turn a PDF into a Word file?", "Can I make a Word document out of a PDF?", "How do I convert Word to a PDF?"),
    ("What is a good salary in Berlin?", "How much should one earn in Berlin?", "Which income is considered good in Berlin?", "What is a good salary in Munich?"),
    ("Summarize the plot of Hamlet", "What happens in Hamlet?", "Give me a short summary of Hamlet", "Summarize the plot of Macbeth"),
    ("Write a poem about autumn", "Compose a poem on autumn", "I need a poem about the autumn", "Write a poem about spring"),
    ("Translate good morning to French", "How do you say good morning in French?", "What is good morning in French?", "Translate good night to French"),
    ("What was the first film in colour?", "Which movie was the first one in colour?", "What is the earliest colour film?", "What was the first film with sound?"),
    ("How can I sleep better?", "What helps to get better sleep?", "How do I improve my sleep?", "How can I sleep less?"),
    ("Is it legal to record phone calls?", "Am I allowed to record a phone call?", "Does the law permit recording calls?", "Is it illegal to record phone calls?"),
    ("How do I add a column in SQL?", "What SQL statement adds a column?", "How can a column be added to a table in SQL?", "How do I drop a column in SQL?"),
    ("What do bees eat?", "What is the food of bees?", "Which food do bees live on?", "What eats bees?"),
    ("How do I merge two dictionaries in Python?", "Python: combine two dictionaries", "What's the way to join two dicts in Python?", "How do I compare two dictionaries in Python?"),
    ("How old is the universe?", "What is the age of the universe?", "How many years ago did the universe begin?", "How big is the universe?"),
    ("Which foods are rich in iron?", "What foods contain a lot of iron?", "What can I eat to get more iron?", "Which foods are low in iron?"),
    ("How do I turn on dark mode?", "Where can I enable dark mode?", "How is dark mode switched on?", "How do I turn off dark mode?"),
    ("What are the advantages of solar power?", "What are the benefits of solar energy?", "Why is solar power a good thing?", "What are the disadvantages of solar power?"),
    ("北京有哪些景点？", "北京有什么好玩的地方？", "去北京旅游看什么？", "上海有哪些景点？"),
    ("怎么提高英语口语？", "英语口语如何提升？", "有什么方法练好英语口语？", "怎么提高英语听力？"),
    ("感冒了吃什么药？", "得了感冒应该服用什么药？", "感冒该用哪种药？", "发烧了吃什么药？"),
    ("为什么海水是咸的？", "海水为何有咸味？", "海水的咸味从哪里来？", "为什么海水是蓝的？"),
    ("如何申请信用卡？", "办信用卡要怎么做？", "信用卡怎么办理？", "如何注销信用卡？"),
    ("猫为什么怕水？", "猫咪不喜欢水的原因是什么？", "为什么猫讨厌水？", "狗为什么怕水？"),
    ("中国最长的河是哪条？", "中国哪条河最长？", "中国最长的河流叫什么？", "中国最大的湖是哪个？"),
    ("如何煮饺子？", "饺子怎么煮才好吃？", "煮饺子的方法是什么？", "如何包饺子？"),
    ("失眠怎么办？", "睡不着觉该怎么做？", "有什么办法治失眠？", "嗜睡怎么办？"),
    ("一年有多少天？", "一年总共有几天？", "一年的天数是多少？", "一年有多少周？"),
    ("写一篇关于友谊的作文", "请以友谊为题写一篇作文", "帮我写作文，主题是友谊", "写一篇关于亲情的作文"),
    ("比特币是什么？", "什么叫比特币？", "给我解释一下比特币", "以太坊是什么？"),
)  # fmt: skip

PARAPHRASES = [pair for row in ROWS for pair in combinations(row[:3], 2)]
NEAR_MISSES = [(wording, row[3]) for row in ROWS for wording in row[:3]]
