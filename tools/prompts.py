"""What gates and goldens evaluate. Token ids, not text, so that no figure depends on a tokenizer."""

import random

# "Once upon a time, there was a little fox who lived by the river."
STORY = [12522, 5193, 264, 882, 11, 1052, 572, 264, 2632, 38835, 879, 12163, 553, 279, 14796, 13]

# "<|im_start|>user\nTell me a story about a brave mouse.<|im_end|>\n<|im_start|>assistant\n"
CHAT = [151644, 872, 198, 40451, 752, 264, 3364, 911, 264, 33200, 8644, 13, 151645, 198, 151644, 77091, 198]

# "Mara was a small mouse with a big wish. She wanted to see the sea. Every night she looked at the map on the wall
# and counted the hills. One morning she packed a crust of bread, said goodbye to her mother, and walked out of the
# gate. On the first hill she met an old crow. "Where are you going?" asked the crow. "To the sea," said Mara. The
# crow laughed and"
PASSAGE = [
    44, 5059, 572, 264, 2613, 8644, 448, 264, 2409, 6426, 13, 2932, 4829, 311, 1490, 279, 9396, 13, 7209, 3729, 1340,
    6966, 518, 279, 2415, 389, 279, 7002, 323, 29994, 279, 34131, 13, 3776, 6556, 1340, 19375, 264, 39612, 315, 16002,
    11, 1053, 46455, 311, 1059, 6554, 11, 323, 14858, 700, 315, 279, 18126, 13, 1913, 279, 1156, 23946, 1340, 2270, 458,
    2310, 9276, 13, 330, 9064, 525, 498, 2087, 7521, 4588, 279, 9276, 13, 330, 1249, 279, 9396, 1335, 1053, 85504, 13,
    576, 9276, 31527, 323,
]  # fmt: skip

# Many blocks and large angles; the text means nothing.
FAR = random.Random(11).choices(range(151643), k=1000)
