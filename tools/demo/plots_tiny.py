"""The shortest frames: under a hundred and thirty words or so."""

from tools.demo.frames import GREEN, TEMPERATE, Frame

Frame(
    "tiny_puddle",
    ["a puddle", "new boots", "{h} and the puddle", "a rainy day"],
    ["{h} and the Puddle", "The Biggest Puddle"],
    """
    {@open}
    {He} had new {plain} boots, and {he} was waiting for rain. [Monday was sunny. Tuesday was sunny, too.|Every morning {he} looked at the sky, and every morning it was blue.] On {day} {he} heard it at last: pitter, patter!
    {h} put on {his} boots and ran outside. [There were small puddles and middle-sized puddles.|There were puddles everywhere.] But {he} was looking for the biggest one, and {he} found it {spot1}. One, two, three, splash! [It was deeper than {he} had thought.|The water flew in all directions.]
    ~~
    {His} {elder} was standing [right behind {him}|close by] and was wet from head to foot. [{h} held {his} breath.|Oh dear!] "[That was a very good puddle|What a splash]," said {his} {elder}. {Ehe} [took two steps back|rolled up {ehis} sleeves]. "Now it is my turn." Splash!
    """,
    """
    What was {h} waiting for?=>{He} was waiting for rain.
    What did {h} have on {his} feet?=>{He} had new {plain} boots.
    How does it end?=>{h} and {his} {elder} jump into the puddle together.
    """,
    where=TEMPERATE, ban="swim fly creature hoof", themes=("rain", "fun"), weight=1.35, picks={"day": ["Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]})

Frame(
    "tiny_star_count",
    ["counting stars", "{h} who counted the stars", "the stars", "a {kind} who wanted to count all the stars"],
    ["{h} Counts the Stars", "How Many Stars?"],
    """
    {@open}
    {He} wanted to know how many stars there are. So one clear night {he} lay down [in the grass|on {his} back] and began to count. One, two, three. [At fifty, {he} had to sneeze and lost count.|At thirty-nine, an owl flew past, and {he} forgot where {he} was.] {He} began again. At [two hundred|a hundred and six], {his} eyes closed.
    ? {@night}
    {ff} found {him} there in the morning. "[Are you done?|Have you counted them all?]" {fhe} asked. "[Not quite|I have a good beginning]," said {h}, and yawned. "[I counted the ones on the left. Tonight you can help me with the ones on the right.|There are so many that one has to be two to count them.]"
    So the next night they lay there side by side, and {h} counted to the left and {f} to the right. [They never got to the end, but they never minded.|They did not finish that night, or the next. But nobody who counts stars with a friend is in a hurry.]
    """,
    """
    What did {h} want to count?=>{He} wanted to count the stars.
    Who helped {h}?=>{f} helped {him}.
    How does it end?=>{h} and {f} count the stars together.
    """,
    where=GREEN + ("desert", "savanna", "outback"), ban="swim fly creature", friend_ban="swim fly", themes=("stars", "the night", "friendship"), weight=1.35)

Frame(
    "tiny_last_leaf",
    ["autumn", "the last leaf", "{h} and the last leaf", "a leaf that would not fall"],
    ["The Last Leaf", "{h} and the Leaf"],
    """
    {@open}
    It was autumn, and the leaves were falling. Only one [yellow|red|golden] leaf still held on to its branch. "[Why do you not let go?|Are you not cold up there?]" asked {h}. "[I am afraid|It is so far down]," said the leaf. "[I have lived here all my life|I have never been anywhere else]."
    {h} [sat down under the tree|thought about it]. "[I will catch you|I will stand right here]," {he} said[, and held out {his} {hands}|]. The leaf trembled. The wind [gave it a little push|breathed on it], and it let go.
    ~~
    It did not simply fall. It [sailed|danced] to the left, it [sailed|danced] to the right, it turned three times in the air, and it landed softly [on {h}'s nose|on {h}'s head]. "[Oh!|That was flying!]" said the leaf. "[Can we do it again?|And I was afraid of that?]"
    So {h} carried it up {hill} and let it fly once more. [And then {he} put it into a thick book, where it slept all winter and dreamed of flying.|They did it until evening, and then {he} laid it down among all the others, who wanted to hear everything.]
    """,
    """
    Why did the leaf hold on?=>It was afraid to fall.
    Where did the leaf land?=>It landed softly on {h}.
    How does it end?=>The leaf finds out that falling is like flying.
    """,
    where=("forest", "meadow", "village", "garden", "farm"), ban="swim fly creature", themes=("autumn", "courage"), weight=1.35, picks={"hill": ["the hill", "to the top of the wall", "a ladder"]})

Frame(
    "tiny_good_night",
    ["going to bed", "saying good night", "{h} and the long good night", "a {kind} who did not want to go to bed"],
    ["Good Night, {h}", "One More Good Night"],
    """
    {@open}
    Every evening, when {his} {elder} said, "[Time for bed|Off to bed]," {h} said, "[Not yet|Wait]. First I have to say good night."
    {He} said good night to {near}. {He} said good night to {near2}. {He} said good night to {gn1}, to {gn2} and to {gn3}. [It took a long time.|It took longer every evening.]
    "[Is that all?|Are you done?]" asked {his} {elder}. "[Not quite|I have forgotten the moon]," said {h}. "Good night, moon!" [The moon came out from behind a cloud.|And the moon shone a little brighter.]
    ~~
    "[Now you have said good night to everybody|That is the whole world]," said {his} {elder}, and tucked {him} in. "[Except one|There is one left]," {h} murmured. "[Good night to you|Good night]." And {his} {elder} [kissed {him} on the nose|blew out the candle] and said, "Good night, {h}." But {h} [was already asleep|did not hear it any more].
    """,
    """
    Why did {h} not go to bed at once?=>{He} wanted to say good night to everything first.
    Who did {h} say good night to last?=>Last of all {he} said good night to {his} {elder}.
    How does it end?=>{h} falls asleep.
    """,
    where=GREEN + ("seaside", "jungle", "savanna", "desert", "outback", "snow"), ban="swim fly creature night", themes=("bedtime", "the night"), weight=1.49,
    picks={"gn1": ["the beetles", "the flies", "the wind", "the clouds"], "gn2": ["every single stone", "{his} own toes", "the stars up above", "the spider in the corner"], "gn3": ["the echo", "{his} shadow", "a crumb on the floor", "the last bit of {food}"]})

Frame(
    "tiny_mirror",
    ["a {kind} in the water", "{h} and the face in the water", "a smile", "a {kind} who met {himself}"],
    ["The {Kind} in the Water", "{h} and the Face in the Water"],
    """
    {@open}
    One {mood} morning {he} went to drink at the edge of {water}. There {he} saw a {kind} in the water, and it looked {moodw}. "[What are you staring at?|Why do you look at me like that?]" said {h}. The {kind} in the water [said nothing and|only] looked even more {moodw}.
    {h} [stamped {his} foot|made a fierce face]. So did the other one. [{He} went away, and the other one went away as well.|"I do not like that one," {he} said.]
    ~~
    "[Try smiling at it|I know that one]," said {ff2}. "[It always does what you do first|It is quite nice, if you begin]." {h} [went back|leaned over the water] and, just a little, {he} smiled. The {kind} in the water smiled back. [{h} waved. It waved, too.|{h} laughed, and it laughed as well.]
    "[It is very friendly after all|You were right]," said {h}. [And since then {he} always smiles first, because you never know who is waiting to smile back.|And then {he} tried it on everybody that {he} met that day, and it worked almost every time.]
    """,
    """
    Who did {h} see in the water?=>{He} saw {his} own face in the water.
    What did {h} learn?=>{He} learned to smile first.
    How does it end?=>{h} smiles, and the face in the water smiles back.
    """,
    where=("forest", "meadow", "river", "mountain", "savanna", "jungle", "garden"), hero="animal", ban="swim fly slow", friend_ban="swim fly", themes=("smiling", "friendliness"), weight=1.08,
    picks={"mood moodw": ["grey // cross", "cold // grumpy", "cloudy // angry"]}, prepare=lambda w: w.__setitem__("ff2", w["ff"]))

Frame(
    "tiny_worry",
    ["worries", "{h} and the heavy bag", "a {kind} with too many worries", "a heavy bag"],
    ["The Heavy Bag", "{h} and the Worries"],
    """
    {@open}
    {He} had a bag, and in it {he} carried all {his} worries. There was the worry about {w1}, the worry about {w2}, and a little one about {w3}. [Every day the bag grew heavier.|The bag was so heavy that {he} could hardly walk.]
    "[What do you have in there?|What is in that bag?]," asked {ff}. "[Worries|My worries]," said {h}. "[May I see one?|Show me one]," said {f}. {h} opened the bag and took out the worry about {w1}. In the daylight, it [was much smaller than in the bag|looked quite small]. {f} turned it this way and that. "[I have one just like it at home|I used to have one like that]," {fhe} said. "{ans1}"
    ~~
    They took out one after the other and looked at them together. [Some of them melted in the sun.|Some of them flew away.] Some were left, but they fitted into one pocket. [Then {h} put a piece of bread, an apple and a ball into the bag, and they went for a walk.|And what did {h} do with the empty bag? {He} filled it with apples and gave half of them to {f}.]
    """,
    """
    What was in the bag?=>{h}'s worries were in the bag.
    Who helped {h}?=>{f} looked at the worries together with {him}.
    How does it end?=>The worries grow small, and the bag is light.
    """,
    where=TEMPERATE, ban="swim fly creature", friend_ban="swim fly", not_traits="brave cheerful merry", themes=("worries", "friendship"), weight=1.35,
    picks={"w1 ans1": ["the first day of school // On the first day, everybody is new.", "thunder // It is only the clouds, bumping into each other.", "falling out of bed // If you do, I will lend you my second pillow.", "getting lost // If you get lost, I will come and look for you."],
           "w2": ["big dogs", "the dark cellar", "forgetting {his} own name", "tomorrow", "the noise in the chimney"], "w3": ["spots", "beans", "long words", "Mondays", "losing a tooth"]})

Frame(
    "tiny_wait_sun",
    ["the sunrise", "{h} and the sunrise", "a {kind} who wanted to wake the sun", "early in the morning"],
    ["{h} Wakes the Sun", "The First Light"],
    """
    {@open}
    {He} wanted to see how the sun gets up. So {he} got up when it was still dark and climbed to {high}. {ff_c} came along[, wrapped in a blanket|, half asleep].
    [It was cold, and nothing happened.|They waited. A cold wind blew.] "[Perhaps it has overslept|Perhaps it is not coming today]," whispered {f}. "[We could call it|Let us wake it]," said {h}. And they called as loudly as they could, "Good morning, sun!"
    ? {@silence}
    First the sky turned grey, then [pink|red], then gold. A thin bright line appeared, and then, very slowly, the sun put its head over the edge of the world. [All the birds began to sing at once.|Everything had a shadow again, even the smallest stone.]
    ~~
    "[It heard us!|It was us!]" said {f}. [{h} was not quite sure about that.|{h} smiled.] But to be on the safe side, {he} said, "[Thank you for coming|Thank you]." [Then they went home and had {food} for breakfast, and after that they slept until noon.|And the sun was so warm on their faces that they fell asleep right there.]
    """,
    """
    What did {h} want to see?=>{He} wanted to see the sun get up.
    Who went with {h}?=>{f} went with {him}.
    How does it end?=>The sun comes up, and they are happy and tired.
    """,
    where=("forest", "meadow", "farm", "mountain", "seaside", "desert", "savanna", "outback", "island", "village"), ban="swim fly creature night", friend_ban="swim fly", themes=("morning", "friendship"), weight=1.35,
    prepare=lambda w: w.__setitem__("ff_c", w["f"] if w.child else w["ff"]))
