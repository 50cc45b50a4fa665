"""Frames about going out: storms, journeys, riddles, nights in the open, helpers on the way."""

from tools.demo.frames import Frame

Frame(
    "lighthouse_storm",
    ["a lighthouse and a storm", "{h} and the lighthouse", "a storm at sea", "a {kind} who saved a ship", "a lighthouse", "a brave {kind} and a storm"],
    ["The Light in the Storm", "{h} and the Lighthouse", "A Light for the Ship"],
    """
    {@open}
    ? {@about}
    Near {his} home stood a lighthouse, and every evening old {keeper} climbed the [hundred|ninety-nine|two hundred] steps and lit the lamp, so that the ships could find their way. [{h} often went along|{h} liked to visit {keeper}], and {keeper} {planted}.
    ? "[One day it may be useful|You never know when you may need it]," said {keeper}.
    --
    One evening the sky turned as black as {ink}. The wind [howled|roared|whistled], and the waves were as high as houses. [Then {h} looked up and was frightened.|{h} looked out of the window.] The lighthouse was dark!
    {He} ran through the rain to the tower. [At the foot of the stairs sat {keeper}|There sat {keeper} on the lowest step], holding {keephis} leg. "[I slipped|I fell on the wet steps]," {keephe} groaned. "I cannot climb. And there is a ship out there!"
    "I will go," said {h}.
    ? {@breath}
    --
    Up and up {he} climbed, [round and round|step after step], while the wind shook the [tower|windows]. [At the top|In the lamp room] {he} tried to light the lamp. But {trouble}!
    ? {h} almost cried. [Far out|Down there], a ship's bell was ringing: ding, ding, ding.
    Then {he} remembered {remembered}. {Solved}. [The great lamp|And the lamp] [burst into light|shone out over the sea|threw its long white arm across the waves].
    ~~
    [Out in the dark|Far out], the ship turned, slowly, slowly, away from the rocks. [{h} watched until it was safe in the harbour.|A horn called three times, which means thank you.]
    --
    In the morning the sea was [flat and blue|calm again]. [The captain|The captain of the ship, a big woman with a gold ring in her ear,|The captain, a man with a white beard,] came up to the tower. "Who lit the lamp?" [asked the captain|the captain asked]. {keeper} pointed at {h}.
    "[So small, and such a big light|Such a big light from such a small keeper]," said the captain, and gave {him} {reward}.
    From that day on, {h} climbed the steps with {keeper} every evening. And when the lamp was lit, they [sat together and watched the ships go by|drank cocoa and counted the ships|waved to every ship that passed].
    """,
    """
    Who kept the lighthouse?=>Old {keeper} kept the lighthouse.
    Why was the lighthouse dark?=>{keeper} had hurt {keephis} leg and could not climb the stairs.
    What did the captain give to {h}?=>The captain gave {him} {reward}.
    How does it end?=>{h} lights the lamp, and the ship comes home safely.
    """,
    where=("seaside", "island"), ban="fly swim big creature slow", themes=("storms", "the sea", "courage"), weight=1.2,
    picks={"keeper keephe keephis": ["Captain Barlow // he // his", "Mrs. Salt // she // her", "Mr. Gray // he // his", "Aunt Hilda // she // her", "Tobias // he // his", "Marta // she // her"],
           "ink": ["ink", "coal", "a stove", "a boot"],
           "planted trouble remembered solved": [
               "had shown {him} the little drawer where the dry matches were kept // the matches on the table were wet // the little drawer // {He} pulled it open, and there lay a box of dry matches. {He} struck one, and held it to the wick",
               "had taught {him} how to turn the wheel by hand // the wheel that turned the lamp was stuck // what {keeper} had taught {him} // {He} pushed the wheel by hand with all {his} strength, and it moved. {He} lit the wick",
               "had let {him} polish the mirror behind the lamp, until {he} could see {his} face in it // the lamp would only give a tiny flame // the mirror // {He} turned the big mirror until it caught the tiny flame and made it a hundred times brighter",
               "had shown {him} where the spare can of oil stood // there was no oil left in the lamp // the spare can // {He} found it under the stairs and filled the lamp to the top. {He} lit the wick",
               "had given {him} a thick piece of candle for {his} pocket // the wind blew out every match // the candle in {his} pocket // {He} lit it inside a tin cup, where the wind could not reach it, and carried the flame to the wick"],
           "reward": ["a brass telescope", "a silver whistle", "a captain's hat", "a tiny ship in a bottle", "a big shell that sang of the sea", "a blue coat with gold buttons"]})

Frame(
    "bridge_riddle",
    ["a riddle", "a troll under a bridge", "{h} and the troll", "a {kind} who solved a riddle", "a bridge and a riddle"],
    ["The Riddle on the Bridge", "{h} and the Troll", "The Troll's Riddle"],
    """
    {@open}
    ? {@about}
    {@oneday}, {h} wanted to [visit {his} aunt on the other side of the river|go to the market across the river|pick plums on the far side of the river]. But on the bridge sat a troll, [as green as moss|with a nose like a potato|with moss growing in his ears].
    ? {@sense}
    "[Stop!|Halt!|Not so fast!]" said the troll. "[Nobody crosses my bridge without answering a riddle.|First you must answer my riddle.] If you cannot answer, you must [go home|turn back|walk all the way around]."
    "[I like riddles|I will try|Ask me, then]," said {h}.
    --
    The troll [cleared his throat|scratched his belly|folded his big hands]. "{riddle}"
    {@think} "Is it {wrong1}?" {he} asked. "[No!|Wrong!]" said the troll, [and laughed|and the bridge shook]. "[Is it|Could it be] {wrong2}?" "[Wrong again!|No, no, no!]"
    ? "[One more try|You have one guess left]," said the troll[, and held up one thick finger|].
    ~~
    {h} [looked around|sat down on a stone]. {Clue} Then {he} began to smile. "I know," {he} said. "It is {answer}!"
    The troll's mouth fell open. "[Nobody has ever guessed it|How did you know?]," he [said|muttered].
    --
    [The troll stood up to let {him} pass, but his eyes were sad.|The troll moved aside. But a big tear ran down his nose.] "What is wrong?" asked {h}. "[Now I have no riddle left|That was my only riddle]," said the troll. "[Nobody will stop and talk to me any more.|I only ask riddles so that somebody will stop and talk to me.]"
    "[Is that all?|Oh!]" said {h}. "[You do not need a riddle for that.|People like to talk to friendly trolls.] I will come back this way tomorrow[, and I will bring {a_cake}|]."
    {He} kept {his} word. [The next day|Every week after that] {he} sat on the bridge with the troll, and they [talked|made up new riddles together|ate and told jokes] until the sun went down.
    ? [Soon everyone stopped at the bridge to say hello.|And the troll never stopped anyone again, except to say good morning.]
    """,
    """
    What was the riddle?=>{riddle}
    What was the answer to the riddle?=>The answer was {answer}.
    Why was the troll sad?=>He was lonely and wanted somebody to talk to.
    How does it end?=>{h} solves the riddle and becomes a friend of the troll.
    """,
    where=("forest", "meadow", "farm", "village", "mountain", "river"), ban="fly swim creature", themes=("riddles", "trolls", "friendship"),
    picks={"riddle wrong1 wrong2 clue answer": [
        "I have a bed, but I never sleep. I have a mouth, but I never eat. What am I? // a doll // a cave // Below {him}, the water rushed along in its bed. // a river",
        "The more you take away from me, the bigger I grow. What am I? // a cake // a hunger // A mole was busy at the side of the path. The more earth it threw out, the deeper it went. // a hole",
        "I follow you all day, but when night comes I am gone. What am I? // a dog // a bird // On the ground, something dark lay at {his} feet. When {he} lifted {his} arm, it lifted its arm too. // my shadow",
        "I can run, but I have no legs. I can whistle, but I have no lips. What am I? // a snake // a kettle // Just then something cool ran through the grass and whistled under the bridge. // the wind",
        "I have teeth, but I cannot bite. What am I? // a baby // a saw without a handle // A gust of wind blew, and the troll's long green beard was all in a tangle. // a comb",
        "I am full of holes, but I can hold water. What am I? // a net // a sock // On the bank, somebody had left a bucket and the thing one washes a cart with. // a sponge",
        "I fall all day, but I never get hurt. What am I? // an apple // a clumsy goose // A cold drop landed on {his} nose, and then another. // the rain",
        "I speak when you speak, and I am silent when you are silent. What am I? // a parrot // a book // \"Hello!\" {he} called, to hear how it sounded under the bridge. \"Hello!\" said the bridge. // an echo",
        "I have a face and two hands, but no arms and no legs. What am I? // a mirror // a mask // Far away a bell struck: one, two, three. // a clock",
        "I have many leaves, but I am not a tree. I can tell a story, but I cannot speak. What am I? // a bush // an old letter // {He} felt something flat in {his} bag, the thing {he} read every night before bed. // a book"],
        "a_cake": ["a cake", "some plums", "a pot of jam", "a bag of nuts", "a pie"]})

Frame(
    "night_forest",
    ["a night in the forest", "{h} lost in the forest", "a {kind} who lost {his} way", "getting lost", "a {trait} {kind} and the fireflies"],
    ["A Night in the Forest", "{h} Finds the Way Home", "Lost in the Forest"],
    """
    {@open}
    ? {@about}
    One afternoon {h} went into the deep forest to [pick mushrooms|look for nuts|gather wood|pick blackberries]. "[Be home before dark|Do not go too far]," said {his} {elder}, "and {advice}."
    [{He} found a good place, and then a better one|{He} went a little further, and then a little further still]. When {he} looked up, the sun was gone, [and every tree looked the same|and {he} did not know which way was home].
    ? {@sad}
    --
    {He} walked to the left, but there was only a thick hedge of thorns. {He} walked to the right, but there the ground was soft and wet, and {he} nearly lost a shoe. "[Hello?|Is anyone there?]" {he} called. Only {his} echo answered.
    ? {@night}
    / {He} ran one way and came to a dark pond. {He} ran the other way and came back to the same crooked stump. {@night}
    ~~
    Then {he} heard a tiny voice. "Help! [I am stuck!|I cannot get out!]" It was {a_small}, caught in {trap}. {h} was [tired and afraid|cold and worried], but {he} knelt down and, very gently, {freed}.
    "[Thank you|You are kind]," said the {small}. "Why are you out so late?" "I am lost," said {h}.
    --
    {Helped} And at that moment {h} remembered what {his} {elder} had said: {advice}. {Used}
    ~~
    [At last|After a long walk] {he} saw a yellow light between the trees. It was {home_window}! {His} {elder} [stood in the door with a lantern|was just coming out to look for {him}]. "[There you are!|I was so worried!]" {ehe} cried, and hugged {him} tightly.
    / [Soon|Before long] {he} smelled smoke and soup, and there was {his} own front door. {His} {elder} put a blanket around {him} and a bowl in {his} {hands}.
    {h} told the whole story. "[I did not find the way alone|A very small friend helped me]," {he} said. And before {he} went to bed, {he} [looked out at the dark trees and waved|called "Good night!" into the dark], and something tiny [blinked|answered] far away.
    """,
    """
    What did {h} do in the forest?=>{He} helped {a_small} that was caught in {trap}.
    What did {his} {elder} say?=>{His} {elder} said: {advice}.
    How does it end?=>With the help of the {small}, {h} finds the way home.
    """,
    where=("forest", "meadow", "farm", "village", "mountain"), ban="fly swim small big creature night", themes=("the forest", "the night"), weight=1.2,
    picks={"advice used": [
        "if you are lost, follow the water, because the stream runs past our house // {He} listened. Very softly, the stream was murmuring between the stones. {He} followed it, step by step.",
        "if you are lost, look for the bright star above our roof // {He} looked up between the branches. There it was, the bright star! {He} walked toward it.",
        "if you are lost, look for the trees with moss and keep the moss behind you // {He} felt the bark of the trees. Here was the moss! {He} kept it behind {him} and walked on.",
        "if you are lost, stand still and listen for the bell // {He} stood quite still. Ding, dong, went a bell, very far away. {He} walked toward the sound."],
        "a_small small trap freed helped": [
            "a firefly // firefly // a spider's web // pulled the threads away // The firefly called its brothers and sisters. Ten, twenty, a hundred little lights came, and they lit up the path for {him}.",
            "a moth // moth // a sticky leaf // loosened its wings // \"I know every tree here,\" said the moth, and its white wings shone in the dark as it flew ahead of {him}.",
            "a baby bat // baby bat // a thorn bush // bent the thorns apart // The baby bat's mother came. \"I can find my way with my ears,\" she said, and she flew ahead of {him} through the trees, calling softly.",
            "a glow-worm // glow-worm // a crack in the bark // made the crack a little wider // \"Put me on your {hand},\" said the glow-worm, and it shone like a tiny green lamp, so that {he} could see the ground."]},
    prepare=lambda w: w.__setitem__("home_window", f"the window of {w['his']} own home"))

Frame(
    "bottle_message",
    ["a message in a bottle", "{h} and the bottle", "a letter from the sea", "a {kind} who found a bottle", "friends across the sea"],
    ["The Message in the Bottle", "{h} and the Bottle", "A Letter from the Sea"],
    """
    {@open}
    ? {@about}
    ? {@likes}
    {@oneday}, {he} was [walking along the beach|looking for shells|building a castle of sand] when something [green|shiny|blue] rolled out of the waves. It was a bottle with a cork in it, and in the bottle was a piece of paper!
    ? {@sense}
    {h} pulled [and pulled |]until the cork went pop. "{letter}," {he} read. "Please write back. Your friend, {pen}."
    --
    {h} ran home and wrote a letter at once. {He} told {pen} about {told}. {He} put {gift} into the bottle too, pushed in the cork, and threw it [as far as {he} could|far out] into the sea.
    But the next wave brought it back. {He} threw it again, and the sea brought it back again. [Splash. Plop.|Three times {he} threw it, and three times it came back.]
    "[The sea does not want my letter|It will never get there]," {he} said to {wise}, who was [resting nearby|looking out over the water].
    "You must [not throw against the sea|not be in a hurry with the sea]," said {wisethe}. "[Wait for the tide. When it goes out, it takes things with it.|Twice a day the tide goes out. Ask it to carry your letter.]"
    ~~
    So {h} waited. [The sun moved across the sky.|{He} waited until {his} shadow was long.] When the tide began to go out, {he} put the bottle gently on the water. It bobbed, it turned, and it sailed away, [smaller and smaller, until it was gone|out past the rocks and into the wide blue sea].
    --
    Weeks went by. Every day {h} [looked at the waves|stood on the beach]. [And then, one grey morning|One morning, after a windy night], there it was: a bottle with a cork! In it lay {gift2} and a letter. "[I got your letter|I read your letter a hundred times]," it said. "[Now I am not lonely any more|I laughed so much]. [Tell me more!|Write again soon!] Your friend, {pen}."
    So the bottle went back and forth over the sea, [for years and years|in summer and in winter], with the tide. [And though they lived far apart, {h} and {pen} were the best of friends.|And one summer a little sail came over the water, and in the boat sat {pen}.]
    """,
    """
    What did {h} find?=>{He} found a bottle with a letter in it.
    Who wrote the letter?=>{pen} wrote the letter.
    What did {h} put into the bottle?=>{He} put in a letter and {gift}.
    What did {wise} say?=>{wise} told {him} to wait for the tide.
    How does it end?=>The bottle goes back and forth with the tide, and {h} and {pen} become friends.
    """,
    where=("seaside", "island"), ban="swim fly", themes=("the sea", "letters", "friendship"),
    picks={"letter": ["I live on an island with nobody to play with", "I live in a lighthouse far away, and I am lonely", "I have a boat and a parrot, but no friend", "Is there anybody out there?"],
           "pen": ["Isabel", "Matteo", "Kofi", "Yuki", "Astrid", "Pablo", "Noor", "Tove", "Rafael", "Leilani", "Sami", "Ingrid"],
           "told": ["{his} home, {his} {elder}, and the best place to slide down the dunes", "the gulls, the boats and the smell of the harbour", "everything {he} could see from {his} window", "the day {he} fell into a bucket of fish"],
           "gift": ["a pink shell", "a tiny drawing", "a silver button", "a blue feather", "a pressed flower"],
           "gift2": ["a string of beads", "a little wooden fish", "a red leaf", "a pearl", "a yellow ribbon"]})

Frame(
    "deliver_parcel",
    ["a long journey", "{h} and the long road", "a {kind} who carried {medicine} over the mountain", "a journey to help a friend", "a {trait} {kind} on a long journey"],
    ["The Long Road", "{h} Goes Over the Mountain", "The Long Journey of {h}"],
    """
    {@open}
    ? {@about}
    [{His} friend {f} was ill.|{f}, {his} best friend, lay in bed with a fever.] "[Only {medicine} can help|What {fhe} needs is {medicine}]," said {wise}, "and it grows only [far away, on the other side of the mountain|behind the mountain, at the end of the long road]."
    "[Then I will go|I will get it]," said {h}. {He} packed {pack} and set off.
    --
    First {he} came to a wide river. The bridge was broken. An old ferryman sat in his boat, too hungry to row. {h} gave him half of {his} {snack}, and he rowed {him} across.
    / First {he} came to a dark wood. A lost lamb stood there, crying. {h} took it back to its mother, and the mother sheep showed {him} the shortest way through the trees.
    / First {he} came to a field of thorns. A little bird had lost its nest in the wind. {h} put the nest back in its tree, and the bird flew ahead and showed {him} a path between the thorns.
    Then {he} came to the mountain. It was [so steep that {he} slipped back with every step|high and cold]. [The wind pushed {him} from behind and then from the front.|Small stones rolled under {his} feet.] {He} wanted to turn back. {But}
    ~~
    On the other side lay a quiet valley, and there grew {medicine}, just as {wisethe} had said. {h} [took only as much as {he} needed|said thank you to the plant] and put it carefully into {his} bag.
    ? {@evening}
    --
    The way home was easier. [The ones {he} had helped were waiting for {him}, and they helped {him} again.|It always is.] {h} came home [with sore feet|dusty and tired] and made a tea of {medicine}. {f} drank it and [slept a whole day and a whole night|fell asleep].
    When {f} woke up, {fhis} eyes were bright. "I dreamed that you [walked around the world|climbed a mountain] for me," {fhe} said. "[It was almost like that|That was no dream]," said {h}, and rubbed {his} feet.
    ? {@moralfriend}
    """,
    """
    Who was ill?=>{His} friend {f} was ill.
    What did {h} look for?=>{He} looked for {medicine}.
    How does it end?=>{h} brings {medicine} home, and {f} gets well.
    """,
    where=("forest", "meadow", "farm", "village", "river", "garden"), ban="fly swim small slow creature", friend_ban="swim", themes=("journeys", "courage", "friendship"),
    picks={"medicine": ["the silver herb", "the blue moon flower", "golden moss", "the snow rose", "the star leaf", "the red mountain mint"],
           "pack snack": ["a loaf of bread and a water bottle // bread", "three apples and a blanket // last apple", "a cheese and a warm coat // cheese", "some oat cakes and a rope // oat cakes"],
           "but": ["But {he} thought of {f}, and {he} took one more step, and then one more.", "\"One more step,\" {he} told {himself}. \"And now one more.\" And so {he} reached the top.",
                   "But {he} sang {f}'s favourite song, one line for each step, and when the song was over, {he} was at the top."]})

Frame(
    "lost_baby",
    ["a lost {baby}", "{h} and the lost {baby}", "a {kind} who helped a {baby}", "a {baby} who lost its mother", "helping somebody small"],
    ["The Lost {Baby}", "{h} and the Little {Baby}", "Where Is Mother?"],
    """
    {@open}
    ? {@about}
    One {morning} morning, {h} heard a small sound {spot1}. [Peep, peep!|Sniff, sniff.|It was somebody crying.] There sat a {baby}, all alone.
    "[I have lost my mother|I cannot find my mother]," said the {baby}[ in a tiny voice|]. "[I only followed a butterfly, and then she was gone.|I fell asleep, and when I woke up, everyone was gone.]"
    "[Do not cry|Do not worry]," said {h}. "We will find her. What does she look like?" "[She is the most beautiful mother in the world|She is big and soft and kind]," said the {baby}.
    --
    They [set off together|went along {path}]. They met a {wrong1}. "Is that your mother?" asked {h}. "No," said the {baby}. "My mother {not1}."
    They met a {wrong2}. "Is that your mother?" "No," said the {baby}[, and a tear ran down its nose|]. "My mother {not2}."
    ? {@sense}
    ? The {baby} was getting tired, so {h} gave it some water and told it a little story.
    ~~
    {@think} "[Does your mother ever sing?|What does your mother do when you are in bed?]" {he} asked. "[She sings|Every night she sings to me]," said the {baby}, "and it goes like this: {song}."
    So they sat down [on a warm stone|by {near}] and sang it together, as loudly as they could: {song}!
    --
    And from far away, another voice [answered|sang back]. {song}! Something came running [through the grass|along {path}]. "My little one!" called the mother. "I have looked for you everywhere!"
    The {baby} [ran|tumbled] to her and {cuddled}. "This is my friend {h}," it said.
    / "Mother!" cried the {baby}. And they held each other for a long time.
    The mother thanked {h} [again and again|with all her heart]. "[You have a good head and a kind heart|You must come and see us often]," she said.
    [All the way home, {h} hummed the little song.|That night, before {he} fell asleep, {h} hummed the little song: {song}.]
    """,
    """
    Who was lost?=>A {baby} had lost its mother.
    How did they find the mother?=>They sang the song that the mother sang every night.
    How does it end?=>The {baby} finds its mother again.
    """,
    where=("forest", "meadow", "farm", "mountain", "village", "garden"), ban="fly swim bug creature", themes=("helping", "mothers", "songs"),
    picks={"baby wrong1 wrong2 not1 not2 cuddled": [
        "lamb // cow // goat // does not have such big horns // does not have a beard // pushed its nose into her warm wool",
        "duckling // goose // heron // is not so loud // does not have such long legs // hid under her wing",
        "fawn // horse // cow // does not have such a long tail // does not say moo // pressed close to her side",
        "baby rabbit // squirrel // cat // does not climb trees // has long soft ears // snuggled into her soft fur",
        "fox cub // dog // badger // does not bark // has a red coat // rolled over with joy",
        "baby hedgehog // pine cone that was only a pine cone // mole // moves about // has prickles // curled up beside her",
        "kitten // dog // hen // does not bark // does not have feathers // purred like a little mill"],
        "song": ["la, la, little star", "hush, hush, the moon is near", "sleep, my sweet, the wind is low", "lullaby, lullaby, the day is done", "hum, hum, honey and milk"]})
