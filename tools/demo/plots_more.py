"""Shorter frames: one wish, one trouble, one good idea."""

from tools.demo.frames import Frame, as_hero

Frame(
    "shy_singer",
    ["a shy singer", "{h} who was afraid to sing", "a {kind} with a beautiful voice", "stage fright", "singing"],
    ["The Shy Singer", "{h} Sings"],
    """
    {@open}
    ? {@about}
    {h} had a beautiful voice. But {he} only sang [when nobody was near|at {near}, where nobody could hear {him}]. [As soon as somebody looked at {him}, {his} throat closed up like a purse.|If anyone looked at {him}, not one note would come.]
    {@oneday}, {ff} came by and heard it. "[That was you?|Was that you?]" asked {f}. "[You must sing at the summer feast|You have to sing for everyone]!" {h} [turned red|wanted to hide]. "I cannot," {he} said. "[Too many eyes.|They will all look at me.]"
    --
    But {f} [begged and begged|asked again every day], and at last {h} said yes. When the evening came, {he} stood on the stage. There were eyes everywhere. {@silence} {h} opened {his} mouth. [Nothing came out.|Not a squeak.]
    ? {@breath}
    ~~
    Then {f} [had an idea|jumped up]. {Trick}
    Now there were no eyes. {h} [took a breath|shut {his} eyes] and began, very softly. {He} sang about {song}. [The song grew and grew.|{His} voice rose like a bird.]
    When it was over, nobody moved. [Then the clapping began, and it did not stop.|Then they clapped until their palms were warm.]
    --
    "[Shall we do it this way again?|How was it?]" asked {f}. "[I think I can do it with eyes now|It was not so bad]," said {h}. "[Perhaps two eyes at first|But let us begin with only yours]."
    / The next time, {h} asked for one small lamp. And the time after that, {he} sang in the bright sunshine, and {he} looked at everyone and smiled.
    """,
    """
    Why did {h} not want to sing?=>{He} was too shy to sing when others looked at {him}.
    What did {h} sing about?=>{He} sang about {song}.
    How does it end?=>{h} sings without being looked at, and everyone claps.
    """,
    where=("forest", "meadow", "farm", "village", "mountain", "town", "river", "jungle"), ban="creature", friend_ban="swim", traits="shy quiet gentle dreamy thoughtful careful", themes=("singing", "being shy"),
    picks={"trick": ["{Fhe} ran from lamp to lamp and blew them all out. It was dark, and only the stars were there.", "\"Everybody shut your eyes!\" {fhe} called. And they all did, even the smallest.",
                     "\"Turn your chairs around!\" {fhe} called. And everyone turned round and looked the other way.", "{Fhe} pulled a bed sheet across the stage, so that nobody could see the singer."],
           "song": ["the river and the moon", "a ship that comes home", "the first flower in the snow", "a lamp in a window", "the long road and the end of it"]})

Frame(
    "first_day_school",
    ["the first day of school", "{h} and the first day of school", "a {kind} who was afraid of school", "school"],
    ["{h} Goes to School", "The First Day", "A Button in the Pocket"],
    """
    {@open}
    ? {@about}
    Today was {h}'s first day of school. {He} had a new bag and a new pencil, and a {tummy} in {his} tummy. "[What if nobody talks to me?|What if I do not know anything?]" {he} asked. "[What if I get lost?|What if I want to go home?]"
    {His} {elder} [smiled|knelt down] and gave {him} {token}. "[Put it in your pocket|Keep it with you]," {ehe} said. "When you feel alone, hold it tight, and you will know that I am thinking of you."
    --
    At school there was so much noise! [Everyone was bigger than {him}.|Everyone seemed to know each other.] {h} sat down in the last row and held {his} {tokenname} tight. It helped a little.
    Then {he} heard a sniff. [Beside {him}|In the next seat] sat {a_child}, [and a tear was hanging from {fhis} nose|with wet eyes]. "[I want to go home|I have a lump in my throat]," {fhe} whispered. {Fhis} name was {f}.
    ~~
    {h} looked at {his} {tokenname}. {He} thought for a moment. Then {he} [put it into {f}'s {fhand}|laid it on the table between them]. "[You can hold it, too|We can share it]," {he} said. "[It works for two.|It helps.]"
    {f} held it tight. "[It is warm|It does work]," {fhe} said, and [smiled a very small smile|wiped {fhis} nose].
    --
    [After that it was a good day.|The rest of the day went by quickly.] They learned {learned}, and at lunch they shared {food}.
    "[How was it?|Well?]" asked {his} {elder} in the afternoon. "[I have a friend|I can already write F for friend]," said {h}. "[And may I have another {tokenname}? I have lent mine.|Tomorrow it is my turn to hold the {tokenname}.]"
    """,
    """
    What did {h} get from {his} {elder}?=>{He} got {token}.
    Who sat beside {h}?=>{f} sat beside {him}.
    What did {h} do with the {tokenname}?=>{He} shared it with {f}.
    How does it end?=>{h} and {f} become friends on the first day of school.
    """,
    where=("village", "town", "forest", "meadow", "farm", "mountain", "river"), ban="creature", friend_ban="big", not_traits="brave cheerful", themes=("school", "friendship"),
    picks={"tummy": ["flutter", "knot", "buzzing bee"], "token tokenname": ["a blue button // button", "a smooth pebble // pebble", "a red bead // bead", "an acorn on a string // acorn", "a little brass bell without a tongue // bell", "a walnut with a smile painted on it // walnut"],
           "learned": ["the letter M and a song about a frog", "to count to ten forward and backward", "a rhyme about the rain", "the names of the months"]},
    prepare=lambda w: (w.__setitem__("a_child", "a " + w["fkind"]), w.__setitem__("fhand", w["hand"] if w.child else "paw" if w["fkind"] not in HOOFED_OR_WINGED else "lap")))

HOOFED_OR_WINGED = set("lamb piglet calf pony donkey goat fawn hen robin sparrow crow wren pigeon owlet gull puffin duckling gosling penguin llama yak".split())

Frame(
    "rocket_moon",
    ["a trip to the moon", "{h} and the trip to the moon", "a rocket", "space", "a {kind} who built a rocket", "a {kind} on the moon"],
    ["{h} Flies to the Moon", "The Little Rocket", "A Visit to the Moon"],
    """
    {@open}
    ? {@about}
    {h} had built a rocket. It was made of {made}, and on the side {he} had painted {his} name in {colour} letters. "[Where will you go?|How far will it fly?]" asked {ff}. "[To the moon, of course|All the way to the moon]," said {h}. "[Do you want to come?|There are two seats.]"
    They packed {packed}. Ten, nine, eight, seven, six, five, four, three, two, one... [Whoosh!|Zoom!] {Placethe} became as small as a [stamp|button], and the stars came nearer.
    --
    The moon was [grey and quiet|white and very quiet]. With every step they [hopped as high as a house|floated like feathers]. "[Look at me!|Wheee!]" shouted {f}.
    Then they heard somebody sigh. [Behind a round hill|At the edge of a crater] sat a small, pale moon {being}. "[I have never had visitors|It is so quiet here]," it said. "[I know all my games by heart, and they are all for one.|The last guest was a comet, and he was in a hurry.]"
    ~~
    {h} and {f} {played}. [The moon {being} laughed, and its laugh sounded like glass beads.|The moon {being} laughed for the first time in a hundred years.] They shared {packed0}, and they looked at the earth, which [hung in the black sky like a blue ball|was blue and white and very beautiful].
    ? "[Do you live there, in all that blue?|Is it nice there?]" asked the moon {being}. "[It is the best place I know|Yes, and it smells of grass]," said {h}.
    --
    When it was time to go, {h} gave the moon {being} {gift}. "[So that you are not alone|Think of us]," {he} said. "[Now I have something to wait for|Come back soon]," said the moon {being}.
    Back home, {h} and {f} lay in the grass and looked up. [If you look closely, you can see a tiny light on the moon. It is waving.|"Do you think it can see us?" asked {f}. They both waved, to be on the safe side.]
    """,
    """
    What did {h} build?=>{He} built a rocket made of {made}.
    Where did they go?=>They went to the moon.
    Who did they meet there?=>They met a lonely moon {being}.
    How does it end?=>They become friends with the moon {being} and fly home.
    """,
    where=("village", "farm", "meadow", "town", "garden", "forest"), ban="swim fly creature big", friend_ban="swim fly big", themes=("space", "the moon", "friendship"), weight=1.2,
    picks={"made": ["an old boiler and two buckets", "tin cans and a bath tub", "a big barrel and a cooking pot", "a rain barrel and an umbrella"],
           "packed packed0": ["a bag of buns and a bottle of tea // the buns", "cheese sandwiches and a warm blanket // the sandwiches", "a plum cake and two scarves // the plum cake", "nuts, apples and a lantern // the nuts and the apples"],
           "being": ["mouse", "rabbit", "cat", "owl", "beetle"], "played": ["taught it to play tag, which is very slow on the moon", "played hide and seek with it between the craters", "showed it how to play leapfrog, and on the moon one can leap over a whole hill"],
           "gift": ["{his} lantern, with a new candle in it", "a ball", "a little flag to wave", "{his} scarf", "a picture of the two of them"]})

Frame(
    "clock_tower",
    ["a clock that stopped", "{h} and the clock tower", "the day the clock stopped", "a little bird in a clock"],
    ["The Day the Clock Stopped", "{h} and the Clock", "Quarter Past Three"],
    """
    {@open}
    ? {@about}
    Above the roofs stood a tall clock tower. [Everyone did everything by the clock.|Its bell told everyone when to get up, when to eat and when to sleep.] But one day, at quarter past three, it stopped.
    [Nobody knew when to have supper.|What a muddle it was!] The baker [baked in the afternoon|baked twice], the children stayed out too long, and the mayor [went to bed at lunch time|wore his nightcap in the street]. "[Mend the clock!|Somebody must do something!]" everyone cried. {wise} looked at it and [shook {whis} head|scratched {whis} head]. "[The wheels are good|I cannot find anything broken]," {whe} said.
    --
    {h} was small enough to climb to the very top[, where the old wheels were|]. It was [dusty and dim|full of dust and shadows] up there. {He} held {his} breath and listened. And {he} heard something: [peep|a tiny sound], very soft.
    In the biggest wheel, between two teeth, sat a nest, and in the nest were {young}. The mother bird [looked at {him} with round eyes|spread her wings over them]. "[Please do not move the wheel|They cannot fly yet]," she said.
    ? {@think}
    ~~
    {h} climbed down. "[I know why it stopped|I have found it]," {he} said, and told them. "[Throw out the nest!|Birds or no birds, we need the time!]" cried the mayor. But {h} said, "[They only need two weeks|It is only until they can fly]. [I will be the clock until then.|Until then, I will ring the bell by hand.]"
    So {h} looked at the sun by day and at the stars by night, and {he} rang the bell by hand: [bong, bong, bong|one, two, three]. [{He} was early once, and late twice, and nobody minded.|Sometimes {he} was a little late, but so was everyone else.]
    --
    After two weeks, the young birds [stood on the edge of the nest|beat their wings] and flew out over the roofs. {h} took the empty nest out of the wheel, and tick, tock, the clock went again.
    [Each spring the birds come back. And for two weeks the bell is rung by hand, and nobody wants it any other way.|{h} put the nest under the roof of the tower, where it was safe, and the next spring the birds were back.]
    """,
    """
    Why did the clock stop?=>There was a bird's nest in the biggest wheel.
    What did {h} do?=>{He} rang the bell by hand for two weeks.
    How does it end?=>The young birds fly away, and the clock goes again.
    """,
    where=("village", "town"), ban="swim fly big", themes=("clocks", "birds", "kindness"), weight=0.8,
    picks={"young": ["three tiny birds without feathers", "four young swallows", "two very young doves", "five small blue eggs, and one of them was just cracking"]})

Frame(
    "garden_thief",
    ["a thief in the garden", "{h} and the garden thief", "somebody who ate the {veg}", "a hungry stranger", "a {kind} and a hungry stranger"],
    ["Who Ate the {Veg}?", "The Garden Thief", "{h} Sets a Trap"],
    """
    {@open}
    ? {@about}
    {h} had a little garden, and {he} was proud of {his} {veg}. But one morning, [three of them were gone|some of them were gone]! The next morning, more of them were gone. "[A thief!|Somebody is stealing my {veg}!]" cried {h}.
    ? "[I would build a high fence|I would dig a deep hole]," said {oo}.
    "I will catch the thief," said {h}. That night {he} hid {hide} with {catch}. [The moon rose.|An owl called.] {h} [nearly fell asleep|rubbed {his} eyes].
    --
    Then [something rustled|there were small steps]. {h} jumped up. "[Stop, thief!|I have got you!]" {he} cried and held up {his} lantern.
    There stood {f}, {a_fkind} that {h} had never seen before, [thin and trembling|as thin as a stick]. In {fhis} arms {fhe} held the smallest of the {veg}. "[Please do not be angry|I am so sorry]," {fhe} said. "[I come from far away, and I have no home.|I was so hungry, and I did not dare to ask.]"
    ~~
    {h} [lowered the lantern|looked at {fhim} for a long time]. {He} was not angry any more. "[If you had asked, I would have said yes|You should have knocked]," {he} said. "[Come in|Come inside]. {veg_c} taste better as soup."
    They cooked soup, and {f} ate four bowls. "[I cannot pay for it|How can I pay you back?]," said {f}. "[Do you know anything about gardens?|What can you do?]" asked {h}. "{skill}," said {f}.
    --
    So {f} stayed and helped. By autumn, the garden was [twice as big|more beautiful than ever], [and there were more {veg} than they could eat|with enough for everyone].
    They put what was left over on a small table by {path}, with a sign: PLEASE TAKE ONE. [Nobody had to steal any more.|And nobody who was hungry had to come at night.]
    """,
    """
    What was stolen?=>Some of the {veg} were stolen from {h}'s garden.
    Who took the {veg}?=>{f}, a hungry stranger, took them.
    What did {h} do with the thief?=>{He} gave {fhim} soup and let {fhim} help in the garden.
    How does it end?=>{f} stays and helps, and they share the {veg} with everyone.
    """,
    where=("meadow", "farm", "village", "forest", "mountain"), ban="swim fly creature night big", friend_ban="swim fly big", not_traits="shy", themes=("gardens", "forgiveness", "hunger"),
    picks={"veg veg_c": ["carrots // Carrots", "cabbages // Cabbages", "turnips // Turnips", "pumpkins // Pumpkins", "leeks // Leeks", "potatoes // Potatoes"],
           "hide": ["behind the rain barrel", "under the wheelbarrow", "behind the compost heap", "under an upside-down basket"], "catch": ["a lantern and a fishing net", "a lantern and a big sack", "a lantern under a cloth"],
           "skill": ["I can dig all day", "My grandfather taught me how to make things grow", "I know what plants say when they are thirsty", "I can build a wall without any holes"]},
    prepare=lambda w: w.__setitem__("a_fkind", "a " + w["fkind"]))

Frame(
    "echo",
    ["an echo", "{h} and the echo", "a {kind} who shouted at a mountain", "the voice in the valley"],
    ["{h} and the Echo", "The Voice in the Valley"],
    """
    {@open}
    ? {@about}
    One day {he} climbed up to a place where the rocks were high and steep[, and {he} was in a bad mood|]. ["Go away!" {he} shouted. "Go away!" said a voice from the other side.|"Bah!" {he} shouted, just to hear {his} own voice. "Bah!" said a voice from the other side.]
    / In the rocks lived a voice, but {h} did not know that. {He} was in a bad mood that day, and {he} kicked a stone and shouted, "Go away!" "Go away!" said a voice from the other side.
    {h} [was startled|jumped]. ["Who are you?" {he} shouted. "Who are you?" said the voice.|"Who is there?" {he} shouted. "Is there? Is there?" said the voice.] "Stop that!" cried {h}. "Stop that!" cried the voice. "You are silly!" "You are silly!" said the voice.
    --
    {h} ran home, [red with anger|quite upset]. "[There is someone in the mountains who is very rude|Somebody over there calls me silly]," {he} told {e}.
    {His} {elder} [smiled|hid a smile]. "[What did you say first?|And what did you say?]" {ehe} asked. {h} [looked at {his} toes|did not answer]. "[Go back and say something kind|Try it once more, in a friendly way]," said {his} {elder}. "[Voices are like mirrors.|You may be surprised.]"
    ~~
    The next day {h} stood in the same place. {@breath} "[Hello!|Good morning!]" {he} called. "Hello!" called the voice. "I like you!" called {h}. "I like you!" the voice called back. "Come and play!" "Come and play!"
    / So {h} went back. "Good day!" {he} called. "Good day!" called the voice. "You are nice!" called {h}. "You are nice!" said the voice, and it sounded as if it meant it.
    ? {@happy}
    --
    [{h} told everyone about {his} new friend in the rocks.|When {he} came home, {he} said, "It was just in a bad mood yesterday."] And since that day, when somebody is grumpy with {him}, {h} first says something kind. [It works with echoes, and it nearly always works with others, too.|You would not believe how often a kind word comes back.]
    """,
    """
    What did {h} hear?=>{He} heard an echo, which said back what {he} said.
    What did {his} {elder} say?=>{His} {elder} told {him} to say something kind.
    How does it end?=>{h} says something kind, and the voice says it back.
    """,
    where=("mountain",), ban="swim creature", traits="proud stubborn restless curious clumsy clever eager", themes=("kindness", "mountains"), weight=0.8)

Frame(
    "little_boat",
    ["a little boat", "a little {plain} boat", "{name} the little boat", "a boat who wanted to see the sea", "the sea"],
    ["The Little Boat", "{name} the Little Boat", "{name} and the Sea"],
    """
    Once upon a time there was a little {plain} boat named {name}. She lived [on a small lake|on a quiet pond|in a calm harbour], and every day she carried {carried} from one side to the other.
    / {name} was a little {plain} boat. All day long she carried {carried} across a quiet lake, from one side to the other and back again.
    / There was once a little {plain} boat who was called {name}. She was tied to a wooden pier with a short rope, and she carried {carried} across the lake.
    "[I would like to see the sea|What is behind the bend of the river?]," she often thought. But the big boats laughed. "[You?|A nutshell like you?]" they said. "[The first wave would swallow you|You are much too small for the sea]."
    --
    One night [a storm came|the wind was so strong that it howled], and {name}'s rope tore. Away she went, down the river, [faster and faster, past fields and sleeping villages|under bridges and past dark woods], and when the morning came, she was at sea.
    It was [big and blue and had no other side|wider than anything she had ever seen]. The waves lifted her up and set her down. [She was afraid at first. Then she noticed that she was dancing.|"I am floating," she said. "I am not sinking at all!"]
    ~~
    Then she heard a cry. {Cry} The big boats [could not come|were too big to come] near, because the water there was [shallow and full of rocks|too shallow]. But {name} was little. She slipped between the rocks, [to the left, to the right, and through the middle|as nimble as a fish]. "[Climb in!|Hold on to me!]" she called.
    --
    {Saved}
    ? "[Thank you, little boat|What a brave little boat]," they said.
    [A fisherman mended her rope and gave her a fresh coat of {plain} paint.|They gave her a flag and a coat of fresh {plain} paint.] [Now she lives in the big harbour by the sea|She went home up the river, as proud as a queen], and when anyone says that something is too small, the big boats only say, "[Have you met {name}?|You had better ask {name}.]"
    """,
    """
    What was the boat's name?=>The boat's name was {name}.
    What colour was the boat?=>She was {plain}.
    Why could the big boats not help?=>The water was too shallow for them.
    How does it end?=>{name} saves them because she is small enough to slip between the rocks.
    """,
    where=("seaside",), hero="child", themes=("boats", "the sea", "being small"), weight=1.0,
    picks={"name": ["Lilly", "Nutshell", "Pippa", "Marigold", "Dolly", "Tansy", "Rosie", "Juno", "Bluebell", "Nora", "Star", "Tuppence"],
           "carried": ["sacks of flour", "children on their way to school", "baskets of apples", "milk cans and letters", "a farmer and his goat"],
           "cry saved": ["Two children were sitting on a rock in the middle of the water, and the tide was rising. // She carried them to the beach, where their mother was waiting with wet eyes and two big towels.",
                         "A baby seal was caught in a net between the rocks. // She cut the net with her sharp little keel, and the baby seal swam to its mother as fast as it could.",
                         "An old fisherman had lost his oars and was sitting on a sandbank with his broken boat. // She carried him home to the harbour, and the bell was rung for joy.",
                         "Three young gulls had fallen from their nest and were clinging to a piece of wood. // She let them sit on her bow and brought them back to the foot of the cliff, where the old gulls were crying."]},
    prepare=lambda w: as_hero(w, "boat", "she"))

Frame(
    "little_train",
    ["a little train", "an old train", "{name} the little train", "a train and a snowy night", "trains"],
    ["The Little Train", "{name} the Train", "The Train That Went Slowly"],
    """
    Once upon a time there was an old little train named {name}. [He puffed and rattled|He was not fast], and he stopped at every station. "[Hurry up, slowcoach!|Out of the way!]" cried the shiny new express train. "[I go as fast as the wind|I do not stop for anyone]."
    / In a small station stood a little old train named {name}. He had a round chimney and {plain} wheels, and he was never in a hurry. "[You belong in a museum|What a slow old thing]," said the fast new express train.
    "[I like to stop|Every station has a story]," said {name}. [He knew everybody on the line.|He waited for those who were late, and he tooted for every cow.] He knew {knew}.
    --
    One winter night it snowed and snowed. The express train [raced into the dark|rushed off as usual]. But out in the hills it stuck fast in a drift, with all its passengers[, and the lights went out|].
    "[We need help!|Who can get through?]" they called at the station. "I can try," said {name}. "[I am slow|I am not fast], but I know the way."
    ~~
    [Puff, puff, he went|Slowly, slowly he went], through the white night. {Helped} [He did not hurry. He looked carefully at every yard of the track.|Step by step, wheel by wheel, he pushed the snow aside.]
    At last he saw {the_express}. "[Is there someone?|Hello?]" it asked in a very small voice. "[It is only me, the slowcoach|Good evening]," said {name}. "[Hold on tight, and I will pull you home|Let us go home together]."
    --
    It took all night, and they stopped at every station, because at every station there was [hot soup|hot tea] for the passengers. [When the sun rose, they rolled in, the little train in front and the big one behind.|At sunrise they were home.]
    "[Thank you|I am sorry that I laughed]," said the express train. "[Will you teach me to stop?|What do you see when you go so slowly?]" "[Everything|Come along on Sunday, and I will show you]," said {name}.
    """,
    """
    What was the train's name?=>The train's name was {name}.
    What happened to the express train?=>It got stuck in the snow.
    Who helped the express train?=>{name}, the little old train, pulled it home.
    How does it end?=>{name} pulls the express train home, and they become friends.
    """,
    where=("village",), hero="child", themes=("trains", "winter", "being slow"), weight=1.0,
    picks={"name": ["Rattle", "Puffin", "Old Tom", "Clatter", "Chuff", "Henry", "Barnaby", "Teakettle", "Samson", "Rumble"], "the_express": ["the express train, cold and dark", "the big express train, white with snow"],
           "knew helped": ["a shepherd who lit a lantern for him every evening // At the pass, a lantern swung to and fro. It was the shepherd, showing him where the track was.",
                           "every bend and every bump of the track // With his eyes shut he could feel every bend and every bump, and so he did not need to see.",
                           "the children of every station // At every station the children were standing with shovels, and they cleared the track for him.",
                           "the song that the wheels sing on good rails and the song that they sing on bad ones // He listened to his wheels, and so he knew where the track was, even under the snow."]},
    prepare=lambda w: as_hero(w, "train", "he"))

Frame(
    "old_toy",
    ["an old toy", "a toy in the attic", "{h} and the old {toy}", "a forgotten {toy}", "a {kind} who found an old toy"],
    ["The Forgotten {Toy}", "{h} and the Old {Toy}", "Something in the Attic"],
    """
    {@open}
    ? {@about}
    On a rainy day, {h} climbed up to the attic. [Dust danced in the air.|It smelled of old paper and apples.] In the darkest corner, under {under}, {he} found an old {toy}[, grey with dust|]. {Gone} was missing, and its colours were nearly gone.
    "[Poor thing|Who did this belong to?]," said {h}. [{He} blew off the dust.|{He} wiped its face with {his} sleeve.] And was it only the light, or did the {toy} [smile|blink]?
    --
    {h} carried it down and mended it. {He} made a new {part} out of {mat}, and {he} tied a {plain} ribbon around its neck. It took [all afternoon|three evenings].
    ? {@rain}
    When {his} {grand} came into the room, {ghe} [stood still|put down the tea tray]. "[Where did you find that?|I have not seen it for sixty years]," {ghe} said[, and {ghis} voice was strange|]. "When I was as small as you, that was my best friend. [Its name was {tname}.|I called it {tname}.] [One day it was gone, and I cried for a week.|We moved house, and I thought it was lost.]"
    ~~
    {h} held out the {toy}. "[Here it is|Then you must have it back]," {he} said. [It was hard, because {he} liked it very much.|{He} swallowed, because {he} had wanted to keep it.] {His} {grand} took {tname} in {ghis} arms and shut {ghis} eyes, [and for a moment {ghe} looked quite young|and {ghe} was quiet for a long time].
    --
    Then {ghe} put the {toy} on {h}'s lap. "[{tname} has slept long enough|A toy needs to be played with]," {ghe} said. "[Now it is your turn|Take good care of it]. [But on Sundays I would like to play, too.|But let me say good night to it now and then.]"
    So on Sundays the three of them sat on the floor, {h}, {his} {grand} and {tname}, and it was hard to say [which of them was the youngest|who laughed the most].
    """,
    """
    What did {h} find?=>{He} found an old {toy} in the attic.
    Who had owned the {toy}?=>It had belonged to {his} {grand}.
    What was the name of the {toy}?=>Its name was {tname}.
    How does it end?=>{h} mends the {toy}, and they play with it together.
    """,
    where=("village", "town", "farm", "seaside", "mountain", "forest", "meadow"), ban="swim fly creature animal", themes=("toys", "grandparents"), weight=1.0,
    picks={"toy part gone mat": ["wooden horse // leg // one leg // a broom handle", "tin soldier // arm // one arm // a bit of wire", "rag doll // eye // one eye // a blue button", "teddy bear // ear // one ear // an old brown sock", "wooden duck // wheel // one wheel // a cotton reel", "toy lion // tail // its tail // a piece of rope"],
           "under": ["a broken umbrella", "a pile of curtains", "an old coat", "a cracked mirror"], "grand ghe ghis": ["grandmother // she // her", "grandfather // he // his"],
           "tname": ["Captain", "Marvel", "Button", "Old Bill", "Sultan", "Tilly", "Bimbo", "Major"]})

Frame(
    "lantern_feast",
    ["a lantern", "the lantern festival", "{h} and the smallest lantern", "a little light in the dark", "a lantern in the fog"],
    ["The Smallest Lantern", "{h} and the Lantern", "A Small Light"],
    """
    {@open}
    ? {@about}
    Every autumn there was a lantern feast. [Everybody made a lantern, and each one wanted to have the biggest.|There were lanterns as big as pumpkins and lanterns as big as carts.] {h} had only {small_thing}. {He} [cut little holes in it|painted stars on it], put a stub of candle inside, and that was {his} lantern.
    "[Is that all?|That tiny thing?]" said {both}, who carried {bigone}. "[Nobody will see it|It will go out at the first puff of wind]." {h} [hid it under {his} coat|said nothing].
    --
    They walked in a long line through the evening. Then the wind came. [Poof! Poof! One big lantern after another went out.|The big lanterns caught the wind like sails, and one after another they went out.] Fog rolled in, [white and thick as milk|so thick that nobody could see the path]. The little ones began to cry. "[Has nobody got a light?|Has anybody got a light?]"
    ~~
    "I have," said {h}. {He} opened {his} coat. There was the smallest lantern, and it was still burning, because [the wind had not found it|it had been so small and so well hidden].
    It was only a little light, but in the dark it was [like a star|as bright as anything]. {h} went in front, and all the others [held on to each other and followed|followed, one behind the other]. [Past {near}, past {near2}, step by step|Step by step], {he} led them home.
    --
    At the first door they lit all the big lanterns again, from the flame of the smallest one. [It did not get any smaller from giving.|And although it gave and gave, its flame was not one bit smaller.]
    "[Next year I will make a small one, too|I am sorry that I laughed]," said {f}. And since then, the smallest lantern always goes first.
    """,
    """
    What was {h}'s lantern made of?=>It was made of {small_thing}.
    Why did the big lanterns go out?=>The wind blew them out.
    How does it end?=>The smallest lantern leads everyone home.
    """,
    where=("village", "forest", "meadow", "mountain", "town", "river"), ban="swim fly creature big", friend_ban="swim fly", themes=("lanterns", "autumn", "being small"),
    picks={"small_thing": ["a walnut shell", "an old tin cup", "a hollow turnip", "a jam jar", "an empty egg shell"], "bigone": ["a paper dragon as long as a cart", "a paper ship with three masts", "a yellow moon as big as a door", "a paper castle with four towers"]})

Frame(
    "undersea_song",
    ["the sea", "a little {sea} who lost her song", "{name} the {sea}", "a {sea}", "life under the sea", "a {sea} and a whale"],
    ["{name}'s Song", "The Song of the Sea", "{name} the {Sea}"],
    """
    Once upon a time, in {seaplace}, there lived a little {sea} named {name}.
    / Deep down in the blue sea lived a little {sea} named {name}.
    / Far below the waves, in {seaplace}, lived a {sea} who was called {name}.
    She had a song of her own, [a small, clear song|as clear as a drop], and she hummed it all day long [among the corals|in the swaying sea grass]. [The shrimps danced to it.|The old crab tapped his claws to it.|Even the grumpy old eel liked it.]
    One morning she woke up, and the song was gone. She opened her mouth, and [only bubbles came out|nothing but bubbles came out].
    --
    "[Have you seen my song?|Have you heard my song?]" she asked {asked1}. "[No|Not today]," said {said1}, "but look {look1}." There she found {found1}, but no song. She asked {asked2}. "[Songs come and go like the tide|A song cannot be held]," said {said2}.
    ? [The water grew cooler and darker.|A cloud of tiny silver fish swam past.]
    {name} swam on, out into the deep water, where everything was [dark blue|quiet and dim]. [There she met a whale. He was as big as an island.|Something huge and dark came gliding by. It was a whale.] And he was humming her song!
    ~~
    "[That is my song!|Where did you get that?]" cried {name}. The whale [stopped|turned one gentle eye to her]. "[Is it yours?|Oh, I am sorry]," he said in his deep voice. "[It came drifting past in the night|I heard it in the night, far away]. [I am so alone out here, and it was so friendly that I could not let it go.|I have swum alone so long, and it kept me company.]"
    {name} looked at him. [She was not angry any more.|He was so big, and he looked so lonely.] "[Keep it|Sing it again]," she said. And when he sang, deep and slow, something wonderful happened: she remembered it, too, and she sang along, high and clear.
    --
    "[A song does not get less when two sing it|I thought only one of us could have it]," said the whale. "[It gets more|It gets bigger]," said {name}.
    Every evening now, the little {sea} sings in her old place, and far out in the deep the whale sings back. [And if you hold a shell to your ear, you may hear them both.|And all the sea in between is full of music.]
    """,
    """
    What did {name} lose?=>She lost her song.
    Who had the song?=>A lonely whale was humming it.
    Where did {name} live?=>She lived in {seaplace}.
    How does it end?=>{name} shares the song with the whale, and they sing together.
    """,
    where=("seaside",), hero="child", themes=("the sea", "music", "sharing"), weight=1.1,
    picks={"sea": ["fish", "seahorse", "mermaid", "dolphin", "squid", "goldfish", "starfish", "sea turtle"], "name": ["Coral", "Pearl", "Marina", "Shelly", "Fina", "Bubbles", "Lula", "Nixie", "Delphine", "Oona", "Minnow", "Kelpie"],
           "seaplace": ["a reef of pink coral", "a forest of green sea grass", "the warm blue bay", "a garden of sea roses", "an old sunken ship"],
           "asked1 said1 look1 found1": ["the crab // the crab // under the big stone // a broken cup", "the old eel // the old eel // in the sunken ship // a rusty anchor", "a starfish // the starfish // in the cave // a sleeping lobster", "the shrimps // the smallest shrimp // behind the sponge // a golden ring"],
           "asked2 said2": ["the turtle // the turtle", "a jellyfish // the jellyfish", "the old ray // the ray", "the octopus // the octopus"]},
    prepare=lambda w: as_hero(w, w["sea"], "she", "in " + w["seaplace"]))

Frame(
    "hat_wind",
    ["the wind", "{h} and the wind", "a hat and the wind", "a windy day", "a {kind} who chased {his} hat"],
    ["{h} and the Wind", "The Runaway Hat", "A Windy Day"],
    """
    {@open}
    ? {@about}
    One windy day, {h} went out in {his} new {colour} hat. [Whoosh!|Whish!] The wind came round the corner and took it away. "[Hey!|Stop!]" cried {h}. "[That is my hat!|Give it back!]" And {he} ran after it.
    --
    The hat sailed past {near}. It rolled along {path}, and it [skipped over|hopped across] a fence. It landed on the head of {wearer1}. {h} reached out, and whoosh, it was off again! It landed on {wearer2}. {h} crept up on tiptoe, and whish, it was gone!
    ? "[Are you playing catch?|What a game!]" called {ff}. "[I am not playing|It is not a game]!" panted {h}.
    At last {he} could not run any more. {He} sat down on a stone. "[Wind|Please, Wind]," {he} said, "[why do you want my hat?|what do you want with a hat?]"
    ~~
    The wind stopped. [It was suddenly very quiet.|A few leaves sank to the ground.] "[I do not want it at all|I do not even have a head]," said the wind[ softly|]. "But when I take a hat, somebody runs with me. [When I only blow, they all shut their doors.|Nobody ever wants to play with the wind.]"
    "[You could have asked|Is that all?]," said {h}. [{He} thought for a moment.|{He} had to smile.] "[Put down my hat, and I will show you something|Wait here]."
    {He} {made}. "[Now blow!|Now, Wind, blow!]" {he} called. [And the wind blew with all its joy.|How the wind laughed!] {Fun}
    --
    When it was evening, the wind set the hat on {h}'s head, [very gently, and quite straight|and it only tugged it once, for fun]. "[Tomorrow again?|Will you come out tomorrow?]" it whispered. "[Tomorrow again|If it is windy]," said {h}.
    [Since then, {h} ties {his} hat on with a ribbon, not because {he} is cross, but because the wind is so forgetful.|And that is why, on windy days, when all the others shut their doors, {h} runs out.]
    """,
    """
    What did the wind take?=>The wind took {h}'s {colour} hat.
    Why did the wind take the hat?=>The wind wanted somebody to play with.
    What did {h} make for the wind?=>{He} {made}.
    How does it end?=>{h} and the wind play together, and {he} gets the hat back.
    """,
    where=("meadow", "village", "farm", "town", "mountain", "seaside", "garden"), ban="swim fly creature slow", friend_ban="swim", themes=("the wind", "playing"),
    picks={"wearer1": ["a scarecrow", "a goat", "a garden gnome", "a very surprised cow"], "wearer2": ["a fence post", "the nose of a sleeping dog", "the handle of a pump", "a gooseberry bush"],
           "made fun": ["folded a kite out of paper and sticks // The kite climbed and danced until the string hummed.", "cut out six paper windmills and stuck them in the grass // They whirred so fast that they looked like flowers.",
                        "hung up an old sheet between two posts like a sail // It swelled and snapped and pulled like a ship on the sea.", "blew soap bubbles // The wind carried them up by the dozen, and each one held a tiny sun."]})

Frame(
    "wishing_well",
    ["a wishing well", "three wishes", "{h} and the three wishes", "a {kind} who had three wishes", "wishes"],
    ["The Three Wishes", "{h} and the Wishing Well", "The Third Wish"],
    """
    {@open}
    ? {@about}
    {@oneday}, {h} [pulled a little silver fish out of a bucket and put it back into the well|found a small green frog in a bucket and set it free by the well]. "[That was kind|Thank you]," said a voice from the deep. "[For that you may have three wishes|You may wish for three things]. [Think well before you speak.|Be careful with them.]"
    {h} did not think for long. "I wish for {wish1}!" {he} said. [Plop!|Pling!] {Got1}
    ? {ff} came to see. "[Oh my|Goodness]," said {f}.
    --
    [That was not what {he} had meant.|It was too much of a good thing.] "[Then I wish for something else|I must be more careful]," {he} said. "I wish {wish2}." [Plop!|Pling!] {Got2}
    ? {@sad}
    {h} sat down at the edge of the well. There was only one wish left. [{He} could wish for gold.|{He} could wish for a castle with a hundred rooms.] {@think}
    ~~
    [What had {he} been missing all this time?|What did {he} really want?] {He} looked at {his} little home, and {he} thought of the smell of {food} and of {his} friends. "I wish," {he} said slowly, "that everything is as it was this morning[, please|]."
    Pling! And everything was as before[: the old fence, the crooked chimney and the small kitchen table|. The birds sang, and the bucket stood by the well].
    --
    "[Are you sorry?|Was it a waste?]" asked the voice from the deep. {h} laughed. "[No|Not at all]," {he} said. "[Now I know that I had it all the time|This morning I did not know how good it was. Now I know]."
    [Then {he} went home and invited everyone to supper.|And {he} ran home, as happy as if {he} had wished for it.]
    """,
    """
    How many wishes did {h} have?=>{He} had three wishes.
    What was the first wish?=>{He} wished for {wish1}.
    What was the last wish?=>{He} wished that everything was as before.
    How does it end?=>Everything is as before, and {h} is happy with what {he} has.
    """,
    where=("village", "farm", "meadow", "forest", "garden", "mountain"), ban="swim fly creature", friend_ban="swim", themes=("wishes", "being content"), weight=1.1,
    picks={"wish1 got1": ["as many pancakes as I can eat // Pancakes fell from the sky. They hung in the trees, they lay on the roof, and one sat on {his} head.", "a hundred new toys // The whole house was so full of toys that {he} could not find {his} own bed.",
                          "the sweetest cake in the world // There it stood, as high as a house, and all the ants in the land came marching.", "a singing teapot // It sang beautifully. But it sang by day and by night, and it only knew one song."],
           "wish2 got2": ["that nobody disturbs me any more // And it was quiet. There was nobody by the stream, nobody on the path, nobody anywhere. {h} called, and no one answered.", "to be as big as a tree // Up {he} shot. But now {he} did not fit through {his} own door, and {his} friends ran away.",
                          "that it would never be bedtime // The sun stood still. {h} played and played, and {he} grew so tired that {he} fell over {his} own feet, but {he} could not sleep."]})
