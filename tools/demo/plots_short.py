"""Very short frames: a small moment, told in one to two hundred words."""

from tools.demo.frames import GREEN, TEMPERATE, Frame, as_hero

Frame(
    "hurt_bird",
    ["a little bird", "a bird with a hurt wing", "{h} and the {bird}", "a {kind} who helped a bird", "letting go"],
    ["{h} and the {Bird}", "The Hurt Wing"],
    """
    {@open}
    ? {@about}
    {@oneday}, {he} found a {bird} {spot1}. It could not fly, because [one wing was hurt|its wing hung down]. "[Do not be afraid|I will take care of you]," said {h}. {He} carried it home and made it a bed of {bed}.
    --
    Every day {he} brought it {fed}[, and every night {he} sat beside it|]. [At first the {bird} only looked at {him} with round black eyes.|At first it trembled whenever {he} came near.] After a week, it [hopped onto {his} knee|sang its first small song]. After two weeks, it [flapped its wings|flew from the table to the chair].
    ? {@sense}
    "[It is well again|Its wing has healed]," said {his} {elder}. "[Now you must let it go|It belongs to the sky]." {h} [looked at the floor|felt a lump in {his} throat]. [{He} wished that the {bird} could stay for ever.|{He} loved the {bird} very much.]
    But in the morning, {he} carried it outside and opened {his} {hands}. The {bird} [sat there for a moment|looked at {him} once more]. Then it [spread its wings and flew|flew up], higher and higher, until it was [only a dot|out of sight].
    ~~
    [The house was very quiet that winter.|For a long time {h} looked up at the sky.] But in spring, there was a tapping at the window. There sat the {bird}, [and it was not alone|with three little ones beside it].
    / {h} was sad, but {he} was happy, too. And the next morning, and every morning after that, a song came in through the window.
    """,
    """
    What did {h} find?=>{He} found a {bird} with a hurt wing.
    What did {h} give to the {bird}?=>{He} gave it {fed}.
    How does it end?=>The {bird} gets well, and {h} lets it fly away.
    """,
    ban="swim fly creature hoof", not_traits="clumsy restless", themes=("birds", "kindness"), weight=1.56,
    picks={"bird": ["swallow", "blackbird", "robin", "finch", "lark", "thrush", "titmouse", "starling"], "bed": ["wool and moss", "soft feathers", "hay and an old scarf", "dry leaves", "an old cap and some wool"],
           "fed": ["seeds and water", "crumbs and water", "berries and fresh water"]})

Frame(
    "hiccups",
    ["a {kind} with the hiccups", "the hiccups", "{h} who had the hiccups", "a funny day"],
    ["{h} Has the Hiccups", "Hic!"],
    """
    {@open}
    ? {@about}
    One {morning} morning, after {he} had swallowed {food} much too fast, {h} got the hiccups. Hic! [{His} hat jumped.|{His} whole body jumped.] Hic!
    "[Stand on your head|Hold your breath]," said {ff}. {h} did so. Hic! It did not help. ["Drink some water backwards," said {oo}. {h} did that as well. Hic! Now {he} was also wet.|"Hop around in a circle," said {oo}. {h} did that as well. Hic! Now {he} was also dizzy.]
    --
    [{h} went to {wise}.|So {he} went to see {wise}.] "[Hiccups?|I see]," said {wisethe}. "[They must be frightened away|You need a good fright]." And all of them tried to frighten {him}. {f} jumped out from behind {near}. Boo! {o} [made a terrible face|came in a bed sheet]. Whoo! But {h} only laughed. Hic!
    ~~
    [By evening {h} was very tired.|The sun was already low.] {Small}
    "[Look!|Did you see that?]" said {h}. And then {he} noticed something. {He} waited. Nothing jumped. [The hiccups were gone!|Not one hic!] "[I forgot to have them|They went away when I was not thinking about them]," {he} said.
    ? "[That is the best way to lose a thing that you do not want|Of course]," said {wisethe}.
    {@happy} [And that evening {he} ate very, very slowly.|"Who is hungry?" asked {f}. "Me," said {h}, "but I will chew this time."|"Hic," said {f}. "Oh no!"]
    """,
    """
    What was the matter with {h}?=>{He} had the hiccups.
    Why did {h} get the hiccups?=>{He} had swallowed {his} food too fast.
    How does it end?=>{h} forgets about the hiccups, and they go away.
    """,
    where=TEMPERATE, ban="swim fly creature", friend_ban="swim fly", themes=("funny things",), weight=1.44,
    picks={"small": ["Then {he} saw a snail that was climbing up a blade of grass. It climbed, and the grass bent, and bent, and set the snail down exactly where it had started.", "Then the first star came out, right above {his} head, and it was so bright that {he} forgot everything else.",
                     "Then a butterfly sat down on {his} nose. {He} did not dare to move. It opened its wings and closed them, and then it flew away.", "Then a spider began to build its web. It went round and round, and {h} watched it until the last thread was in place."]})

Frame(
    "quarrel",
    ["a quarrel", "two friends who quarrelled", "a quarrel between {h} and {f}", "making up", "saying sorry"],
    ["The Quarrel", "{h} and {f}", "Who Was First?"],
    """
    {@open}
    {@friendintro}
    One day they both {found}. ["I saw it first!" said {h}. "No, I did!" said {f}.|"It is mine!" said {h}. "No, it is mine!" said {f}.|"I found it!" said {h}. "No, I found it!" said {f}.] They pulled, one on this side and one on that side. [Neither would let go.|Harder and harder they pulled.] {Broke}
    ["That was your fault," said {h}. "No, it was yours," said {f}.|"You broke it," said {h}. "No, you did," said {f}.|"Now look what you have done," said {h}. "Look what you have done," said {f}.] And they turned around and went home, {h} to the left and {f} to the right.
    --
    [The next day was very long.|It was a long, dull day.] {h} played {alone}, but it is not much fun to play that alone. {He} [told a joke, but nobody laughed|found a funny stone, but there was nobody to show it to].
    ? {@sense}
    {@think} [What was it that they had quarrelled about? It seemed very small now.|"It was such a little thing," {he} said to {himself}.] {He} got up and went to see {f}. And halfway, by {near}, {he} met {f}, who was on {fhis} way to {h}.
    "I am sorry," said both of them at the same time. [Then they had to laugh.|Then they both went red, and then they laughed.]
    ~~
    {Mended} [And after that, when they found something, {h} said, "You first," and {f} said, "No, you first."|They still quarrelled now and then. But never for longer than it takes to walk to {near}.]
    """,
    """
    What did they quarrel about?=>{About}
    Who was {h}'s best friend?=>{f} was {his} friend.
    How does it end?=>They say sorry and are friends again.
    """,
    where=TEMPERATE, ban="swim fly creature", friend_ban="swim fly", themes=("friendship", "quarrels", "forgiveness"), weight=1.56,
    picks={"found broke mended about": [
        "found a long red ribbon // Rip! The ribbon was in two pieces. // They knotted the two halves together, and it made a skipping rope that was just long enough for two. // They quarrelled about a red ribbon.",
        "found a big round cheese // Plop! The cheese rolled down the hill and into {water}. // They fished out the cheese with a net. It was a little wet, but they shared it down to the rind. // They quarrelled about a cheese.",
        "found an old hat with a feather // Crack! The hat was torn down the middle. // They sewed the hat up again, with the feather in the middle, and took turns at wearing it. // They quarrelled about an old hat.",
        "found a yellow umbrella // Snap! The umbrella broke in the middle. // They mended the umbrella with string. It was a little crooked, but there was room for two under it. // They quarrelled about an umbrella.",
        "found a blue blanket // Rip! Now there were two small blankets, and each was too small to sit on. // They sewed the halves together again with big stitches, and they had a picnic on it. // They quarrelled about a blanket."],
        "alone": ["catch", "hide and seek", "tag", "leapfrog", "seesaw"]})

Frame(
    "homemade_gift",
    ["a present", "a birthday present", "{h} and the best present", "a {kind} who had no money", "a gift made by hand"],
    ["The Best Present", "{h}'s Present"],
    """
    {@open}
    ? {@about}
    Tomorrow was the birthday of {e}, and {h} had no present. {He} turned {his} pockets inside out. There was [only a string and a crumb|a button and a bit of fluff], and not one coin.
    In the shop window there were {shop}. [{h} pressed {his} nose against the glass.|{h} looked at them for a long time.] "[If only I had some money|They are much too dear]," {he} sighed[, and walked on|].
    --
    {ff} saw {him}. "[Why do you look so sad?|What is wrong?]" {fhe} asked. {h} told {fhim}. "[What does {ehe} like best?|What makes {ehim} happy?]" asked {f}. {h} thought about it. "{elike}," {he} said. [Then {he} jumped up.|And all at once {he} knew what to do.]
    {Make} It took all [evening|afternoon].
    ? {@sense}
    ~~
    The next day, the others brought their presents. There was [a silk scarf|a silver brush], and there was [a glass bowl|a box with a gold lid]. Last of all came {h}. "[It did not cost anything|It is only a small thing]," {he} said[ very softly|].
    {His} {elder} [opened it|looked at it], and {ehis} eyes grew wet. "[This is the best present of all|I will keep this for ever]," {ehe} said[, and hugged {him}|]. "[It has you in it.|The others came from a shop. This came from you.]"
    [And {it0} had the best place in the house, where {ehe} could see it every day.|{h} had never been so proud.]
    """,
    """
    Whose birthday was it?=>It was the birthday of {e}.
    Why was {h} sad?=>{He} had no money for a present.
    What was the present?=>The present was {present}.
    How does it end?=>{His} {elder} likes {h}'s present best of all.
    """,
    where=("village", "town", "forest", "meadow", "farm", "seaside", "mountain"), ban="swim fly creature", friend_ban="swim", themes=("presents", "birthdays", "family"), weight=1.44,
    picks={"shop": ["golden clocks and silver spoons", "hats with feathers and shoes with bows", "china cups and silk scarves", "music boxes and glass birds"],
           "elike make present it0": [
               "a quiet seat in the sun // {He} took some old boards, sawed and hammered, and built a little bench for the garden. // a little bench // the bench",
               "the smell of summer // {He} picked lavender, mint and rose leaves and sewed them into a small pillow. // a small pillow that smelled of summer // the pillow",
               "stories about the time when I was very small // {He} drew them all, one on each page, and tied the pages together with {his} string. // a book of drawings // the book",
               "the song that we sing in winter // {He} carved a flute from a piece of elder wood and learned the song by heart. // a flute and a song // the flute",
               "when we are all together // {He} found a flat piece of wood and painted the whole family on it, even the cat next door. // a painting of the whole family // the painting",
               "warm feet // {He} asked for the ends of wool that nobody wanted and knitted a pair of socks in eleven colours. // a pair of socks in eleven colours // the pair of socks"]})

Frame(
    "first_whistle",
    ["a {kind} who wanted to learn to {skill}", "learning something new", "{h} who wanted to {skill}", "not giving up"],
    ["{h} Learns to {Skill}", "Not Yet"],
    """
    {@open}
    ? {@about}
    Everyone could {skill}, only {h} could not. {f_can} When {h} tried, {fail}.
    "[I cannot do it|I will never learn it]," said {h}. "[You cannot do it yet|Not yet]," said {wise}. "[Yet is a small word, but it is a good one.|That little word makes all the difference.]"
    --
    So {h} practised. {He} practised in the morning, {he} practised [after lunch|in the rain], and {he} practised [in bed, until somebody knocked on the wall|on the way to {near}]. [On Monday it was bad. On Tuesday it was a little less bad.|"Yet," {he} said after every try. "Yet, yet, yet."]
    ? {@sense}
    ? {@dontgiveup}
    ~~
    And then, one [grey|quiet|perfectly normal] morning, when {he} was not even thinking about it, {success}! {h} [stood still|could not believe it]. {He} did it again. It worked! "{f}! {f}!" {he} shouted. "[I can do it!|Listen! Look!]"
    / [Weeks went by.|The moon grew round and thin again.] One day {he} tried once more, as always, and {success}. "Did you see that?" cried {h}. "I can do it!"
    {f} [clapped and laughed|ran up and clapped]. [And from then on, when somebody small said, "I cannot do it," {h} said, "Yet."|And the next day {h} said, "Now I want to learn to {next}. I cannot do it. Yet."]
    """,
    """
    What did {h} want to learn?=>{He} wanted to learn to {skill}.
    What did {wise} say?=>{wisethe} said that {h} could not do it yet.
    How does it end?=>{h} practises every day, and at last {he} can {skill}.
    """,
    where=TEMPERATE, ban="swim fly creature hoof slow", friend_ban="swim fly slow", themes=("learning", "patience"), weight=1.44,
    picks={"f_can": ["{f} could do it best of all.", "Even {f}, who was younger, could do it.", "{f} could do it with {fhis} eyes shut."],
           "skill fail success": ["whistle // nothing came out but air // out came a whistle, high and clear", "stand on one leg // {he} fell over like a sack of flour // {he} stood on one leg and counted to twenty", "juggle // the nuts rained down on {his} head // three nuts danced in the air, round and round",
                                  "turn a cartwheel // {he} ended up in the bushes // {he} went over like a wheel and landed on {his} feet", "skip with a rope // the rope caught {his} feet every time // the rope went round five times, ten times, twenty times", "tie a bow // {he} made a knot that only scissors could open // there was a bow, with two ears that were the same size"],
           "next": ["yodel", "bake bread", "play the fiddle", "walk on stilts", "tell the time"]},
    prepare=lambda w: w.__setitem__("f_can", w["f_can"].replace(w["f"], w["ff"], 1) if not w.child else w["f_can"]))

Frame(
    "firefly_jar",
    ["a firefly", "a firefly in a jar", "{h} and the firefly", "a summer night"],
    ["{h} and the Firefly", "A Light in a Jar"],
    """
    {@open}
    ? {@about}
    One warm summer night, [the air was full of fireflies|fireflies were dancing in the dark]. {h} had never seen anything so [lovely|beautiful]. {He} ran here and there, and at last {he} caught one in a jar. "[Now I have my own little lamp|Now you are mine]," {he} said, and {he} set the jar [beside {his} bed|on the window sill].
    The firefly [glowed once|blinked|shone a little]. Then its light grew weak. [{h} gave it a leaf. {He} gave it a drop of water.|{h} tapped on the glass. {He} sang it a song.] But the light only grew weaker and weaker.
    --
    "[Is it hungry|What does it need]?" asked {h}. {His} {elder} sat down beside {him}. "[Look outside|What do you see out there?]," {ehe} said. Out in the dark, the others were dancing[, up and down, like little stars|]. "[A firefly shines because it is calling its friends|It does not shine for the jar. It shines for them]," said {his} {elder}.
    {@silence} Then {h} [took the jar|carried the jar outside] and opened the lid. [The firefly crept to the edge. It waited.|For a moment nothing happened.] Then it flew up, and its light came on, [as bright as a spark|brighter than ever].
    ~~
    {h} [sat in the grass|sat on the doorstep] and watched until late. [One firefly flew three times around {his} head.|One of them came very close and blinked.] {He} [had no lamp of {his} own now|held the empty jar on {his} lap]. But the whole night was full of lights, and in a way they were all {own}.
    """,
    """
    What did {h} catch?=>{He} caught a firefly in a jar.
    Why did the light grow weak?=>The firefly needed its friends.
    How does it end?=>{h} lets the firefly go, and it shines again.
    """,
    where=("forest", "meadow", "farm", "village", "garden", "river"), ban="swim fly creature hoof", themes=("summer", "the night", "letting go"), weight=1.32)

Frame(
    "many_apples",
    ["too many {fruit}", "{h} and the {fruit}", "a good harvest", "a {kind} and a tree full of {fruit}"],
    ["Too Many {Fruit}", "{h} and the {Fruit}"],
    """
    {@open}
    ? {@about}
    In {his} garden stood an old {tree} tree, and that year it bore more {fruit} than ever before. [There were {fruit} in the baskets, in the bathtub and under the bed.|{h} filled every basket, every pot and both {his} boots.]
    {He} ate {fruit} in the morning, at noon and at night. {He} [baked|cooked] {made1}. {He} [baked|cooked] {made2}. [There were still more {fruit}.|And still the branches were full.] "[I do not want to see another one|Help]," groaned {h}.
    --
    {ff} came by. "[I have too many eggs|I have too many potatoes|My hens will not stop laying]," said {f}, and sighed. {oo_c} came by. "[I have too much honey|We have more milk than we can drink]," said {o}, and sighed as well. {@silence} Then all three began to [laugh|smile].
    They carried three tables out to {near}. On the first they put the {fruit}, on the second what {f} had brought, and on the third what {o} had brought. [And whoever had too much of something brought it along, and whoever had too little took some home.|Soon there were ten tables, and then twenty.]
    ? Somebody brought [a fiddle|a drum], and that was never too much.
    ~~
    By evening, {h} had no {fruit} left, except one. But {he} had {got}. [{He} ate the last one slowly, and it tasted good again.|{He} gave the last one to the {tree} tree. "Thank you," {he} said. "But next year, a few less, please."]
    """,
    """
    What did {h} have too many of?=>{He} had too many {fruit}.
    What did they do?=>They shared everything that they had too much of.
    How does it end?=>Everyone shares, and nobody has too much or too little.
    """,
    where=("village", "farm", "meadow", "garden", "forest"), ban="swim fly creature", friend_ban="swim fly", themes=("autumn", "sharing"),
    picks={"fruit tree made1 made2": ["apples // apple // seven apple pies // a pot of apple soup", "plums // plum // nine plum cakes // forty jars of plum jam", "pears // pear // five pear tarts // pear soup with pepper", "cherries // cherry // a cherry cake as big as a wheel // thirty jars of cherry jam"],
           "got": ["eggs, cheese, a jar of pickles and a new pair of mittens", "bread, butter, honey and a whole evening of songs", "a sack of flour, a pot of jam and eleven new friends"]},
    prepare=lambda w: w.__setitem__("oo_c", "then " + w["oo"]))

Frame(
    "scarecrow",
    ["a scarecrow", "a lonely scarecrow", "{name} the scarecrow", "a scarecrow and the birds"],
    ["The Lonely Scarecrow", "{name} the Scarecrow"],
    """
    [Once upon a time, in the middle of a field, there stood a scarecrow named {name}.|In the middle of a wide field stood a scarecrow, and his name was {name}.|There was once a scarecrow named {name}, who had a {plain} coat and a straw hat.]
    All day long he had to frighten the birds. [When he lifted his arms, they flew away.|Whenever they saw him, they flew away.] {name} did his work well. But he was lonely. [Nobody ever stayed long enough to say hello.|"I would so much like to talk to somebody," he thought.]
    --
    One evening, when it was growing cold, a little {bird} fell into the corn. Its wings were wet, and it [shivered|was too tired to fly]. "[Please do not frighten me|I know that I am not allowed here]," it said.
    "[I am not working now|My work ends at sunset]," said {name}. "[Come into my pocket. It is full of warm straw.|You may sleep in my hat.]" And the {bird} crept in and slept.
    ? {@snight}
    ~~
    In the morning it thanked him and flew away. [{name} was alone again.|{name} looked after it for a long time.] But that evening, the {bird} came back, and it brought its {family}. "[Is there room?|Is there still some space]?" it asked. There was.
    So by day, {name} waved his arms and looked fierce, and the birds kept away from the corn. [But every evening after sunset|But as soon as the sun was down], they came and sat in his hat, in his sleeves and in his pockets, and they told him [everything that they had seen from above|what the world looks like from above]. And the farmer wondered why his scarecrow [had begun to smile|was smiling].
    """,
    """
    What was the scarecrow's name?=>The scarecrow's name was {name}.
    Why was he lonely?=>He frightened all the birds away, and nobody stayed to talk.
    Where did the {bird} sleep?=>It slept in the scarecrow's clothes, in the warm straw.
    How does it end?=>The birds visit the scarecrow every evening, and he is not lonely any more.
    """,
    where=("farm",), hero="child", themes=("loneliness", "birds", "friendship"), weight=1.08,
    picks={"name": ["Strawbert", "Jack", "Rags", "Barley", "Old Patch", "Tatters", "Humphrey", "Oats"], "bird": ["sparrow", "wren", "finch", "robin", "swallow"],
           "family": ["three brothers", "whole family", "four cousins", "mother and its sisters"]},
    prepare=lambda w: as_hero(w, "scarecrow", "he", "in the middle of a field"))

Frame(
    "caterpillar",
    ["a caterpillar", "a caterpillar who wanted to dance", "{name} the caterpillar", "a butterfly", "growing up"],
    ["The Caterpillar", "{name} the Caterpillar"],
    """
    [Once upon a time, on a {leaf} leaf, there lived a small green caterpillar named {name}.|On a {leaf} leaf lived a little caterpillar whose name was {name}.|There was once a caterpillar named {name}, who was as green as her {leaf} leaf.]
    [She was slow and round|She had sixteen short legs], and there was one thing that she wanted more than anything: she wanted to {wish}.
    "[You?|With those legs?]" laughed {laugher}. "[You can only crawl and eat|Caterpillars cannot do that]." {name} [crawled under her leaf|hid her face] and was sad.
    --
    "[What can I do?|Is it true?]" she asked {adviser}. "[Eat, and sleep, and be patient|Wait]," said {adviser2}. "[There is something in you that even you do not know.|Some things have to grow in the dark.]"
    So {name} ate until she was full, and then she was very tired. She [spun herself a blanket of silk|wrapped herself in a silk blanket], from her nose to her toes, and fell asleep. [Rain fell, and wind blew, and she did not wake.|She slept for a day, and a week, and another week.]
    ? [It was dark and warm in there.|In her sleep she dreamed of colours.]
    ~~
    Then one morning the blanket grew too tight. [Crick, crack!|She pushed and she wriggled.] She crept out into the light, and something on her back unfolded, [wet and soft|like a letter]. They were wings! They were {plain} with {golden} dots.
    [A breath of wind lifted her up.|She let go of the leaf and did not fall.] And there, above the {flowers}, {name} could {wish} at last.
    "[Who is that?|How lovely!]" cried {laugher}. "[It is me, the one with the short legs|You know me]," called {name}. "[I only had to sleep on it|I was in here all the time]!"
    """,
    """
    What did {name} want?=>She wanted to {wish}.
    What did {name} become?=>She became a butterfly.
    How does it end?=>{name} becomes a butterfly, and she can {wish}.
    """,
    where=("meadow",), hero="child", themes=("butterflies", "growing up", "patience"), weight=1.08,
    picks={"name": ["Cleo", "Minna", "Tilly", "Greenie", "Dot", "Flora", "Pim", "Lettice"], "leaf": ["cabbage", "nettle", "oak", "rose", "lime"], "wish": ["dance in the air", "see the tops of the flowers", "look over the garden wall", "fly to the other side of the garden"],
           "laugher": ["the grasshopper", "the ladybird", "the beetle", "the bee"], "adviser adviser2": ["the old snail // the old snail", "the toad // the toad", "the garden spider // the spider"], "golden": ["golden", "silver", "white", "black"],
           "flowers": ["daisies", "poppies", "lavender bushes", "roses"]},
    prepare=lambda w: as_hero(w, "caterpillar", "she", f"on a {w['leaf']} leaf"))

Frame(
    "gentle_pirate",
    ["a pirate", "a gentle pirate", "Captain {name} the pirate", "a pirate who did not like to fight", "pirates"],
    ["Captain {name}", "The Gentle Pirate"],
    """
    [Once upon a time there was a pirate captain named {name}.|On the seven seas sailed a pirate captain named {name}.|Long ago, a pirate captain named {name} sailed the seven seas.] She had [a black hat and a wooden leg|an eye patch and a red coat], and her ship was called the {ship}. But she had a secret. She did not like to rob and fight. What she really liked was {likes}.
    [Her crew must never know.|She only did it at night, when her crew was asleep.] "[A pirate who does that?|What would they say]?" she thought[, and she locked her cabin door|].
    --
    One day they met a big merchant ship. "[Attack!|At them!]" cried the crew, and they shook their swords. The merchant sailors [trembled|turned as white as their sails]. {name} [stood at the rail|climbed on the rail]. She was about to shout, "[Hand over your gold|Your money or your life]!" Then she saw {saw}.
    {@pirsil} "Stop!" cried {name}. [She put away her sword.|She took off her hat.] And she {did}.
    ~~
    The crew stared at her. [Now they knew her secret.|"So that is what you do at night," said the cook.] {name} turned as red as her {redthing}. But then the [first mate, a giant with a beard,|old helmsman] cleared his throat. "[I have always wanted to learn that|My mother taught me that, too]," he [mumbled|said]. "[I write poems|I like to knit]," said another. "[And I am afraid of blood|And I only wanted to see the dolphins]," said a third.
    --
    [From that day on, the {ship} was a different kind of ship.|They turned the ship around.] They sailed from harbour to harbour, and wherever the black flag appeared, people came running, [with empty plates and big smiles|and nobody was afraid], because {result}.
    """,
    """
    What was the captain's name?=>The captain's name was {name}.
    What was the name of the ship?=>The ship was called the {ship}.
    What did {name} really like?=>She really liked {likes}.
    How does it end?=>{name} and her crew stop fighting and do what they really like.
    """,
    where=("seaside",), hero="child", themes=("pirates", "the sea", "secrets"), weight=1.56,
    picks={"name": ["Black Bess", "Redbeth", "Molly Hook", "Storm Kate", "Salty Sal", "Iron Anne", "Wild Nell"], "ship": ["Hungry Shark", "Black Gull", "Sea Wolf", "Flying Herring", "Wicked Wave"],
           "likes saw did result": [
               "baking // that the sailors were thin and that there was nothing on their table but dry crusts // carried over a whole tray of warm rolls // the pirates brought the best rolls in the world",
               "mending things // that the sail of the other ship was torn from top to bottom // fetched her needle and thread and sewed up the sail // the pirates mended whatever was broken",
               "singing lullabies // a mother with a crying baby in her arms // sang, very softly, the lullaby of the whale // the pirates sang so beautifully that every baby in the harbour slept",
               "growing flowers // an old sailor with one poor dry flower in a pot // fetched her watering can and gave the flower fresh earth and water // the pirates sold roses that smelled of the sea"],
           "redthing": ["coat", "scarf", "flag"]},
    prepare=lambda w: as_hero(w, "pirate", "she", "on the seven seas"))

Frame(
    "snail_journey",
    ["a snail", "a snail who wanted to see the {goal}", "{h} the snail", "a slow journey", "a very small hero"],
    ["The Journey of {h}", "{h} and the {Goal}"],
    """
    {@open}
    ? {@about}
    {h} wanted to see the {goal}. [It was not far, only to the other end of {placethe}.|It was only on the other side of {placethe}.] But for a snail that is as far as the moon. "[You will never get there|By the time you get there, it will be winter]," said {passer}. "[Then I will see it in winter|I have my house with me, so I can take my time]," said {h}.
    --
    On the first day {he} came as far as {near}. On the second day it rained, and {he} [was very pleased|went twice as fast]. On the third day {he} met {met}. {Helpmet}
    ? {@sense}
    [Sometimes {he} was tired. Then {he} went into {his} house, shut the door and slept.|At night {he} slept in {his} house, wherever {he} was.] [Every evening {he} looked back and saw a silver line, and that was the way {he} had come.|And behind {him}, a thin silver line showed how far {he} had come.]
    ~~
    On the tenth day, [very early|just as the sun came up], {h} crawled over one last leaf, and there it was: the {goal}! {Sight} {h} [put out both {his} horns and looked and looked|sat there and did not move for a long time].
    "[You have been slow|You are here at last]," said {passer2}, who was sitting there already. "[What took you so long?|I was here long ago, but I did not look closely. What is there to see?]"
    "[I was not slow|Sit down]," said {h}. "[I did not want to miss anything.|I will show you.]"
    """,
    """
    What did {h} want to see?=>{He} wanted to see the {goal}.
    Who did {h} meet on the way?=>{He} met {met}.
    How does it end?=>{h} arrives on the tenth day and sees the {goal}.
    """,
    where=("garden",), hero="bug", kinds=("snail",), themes=("journeys", "being slow", "patience"), weight=0.72,
    picks={"goal sight": ["fountain // The water rose and fell, and every drop held a small rainbow.", "rose bush // A hundred roses were just opening, and they smelled like a whole summer.", "sunflower // It was as tall as a tower, and it turned its golden face toward {him}.", "pond // It was as smooth as glass, and the whole sky lay in it."],
           "passer": ["a grasshopper", "a mouse", "a beetle", "a sparrow"], "met helpmet": ["an ant with a crumb // The crumb was too heavy, so {he} carried it on {his} shell for a while.", "a lost ladybird // {He} let it ride on {his} shell until it saw its own leaf.", "a worm // They talked about the rain until it was dark.", "a very small spider // It was afraid of the wind, so it held on to {his} shell until the wind was gone."]},
    prepare=lambda w: w.__setitem__("passer2", w["passer"].replace("a ", "the ", 1)))

Frame(
    "ant_crumb",
    ["an ant", "a small {kind} and a big {load}", "{h} the {kind}", "being small", "working together"],
    ["The Big {Load}", "{h} and the {Load}"],
    """
    {@open}
    ? {@about}
    {@oneday}, {h} found a {load}. [It was ten times as big as {he} was.|What a find! It was enough for the whole family.] {He} pulled at it. It did not move. {He} pushed it. It [rolled half an inch and rolled back|did not move].
    "[Leave it|It is much too big for you]," said {passer}. "[I will think of something|I am small, but I am not alone]," said {h}.
    --
    {He} called {his} brother. Together they [pushed until they were red in the face|pushed]. It [moved a little|trembled]. {He} called {his} sister. It moved a little more. Then {he} called the whole family, and {his} cousins, and the cousins of {his} cousins. [One, two, three, heave!|"All together," cried {h}. "Heave!"] And the {load} began to move.
    [Over a twig, around a stone, under a leaf|Past {near}, and around a puddle], [on and on they went|they carried it home]. {@sense}
    ? {Obstacle}
    ~~
    When the moon rose, they [were home|had done it]. There was enough for everybody, and each one got a piece, even the smallest. [And one piece was left over.|One piece was still there.] {h} carried it to {passer}. "[For me? But I did not help|Why do you give it to me?]," said {passer}. "[You can help next time|There is enough]," said {h}.
    [And the next time, {passer} pulled harder than anybody.|And that is how the big {load} became a feast.]
    """,
    """
    What did {h} find?=>{He} found a {load}.
    How did they move it?=>They all pulled together.
    How does it end?=>Everybody gets a share of the {load}.
    """,
    where=("garden", "meadow", "forest"), hero="bug", kinds=("ant",), themes=("ants", "working together"), weight=0.72,
    picks={"load": ["crumb of cake", "strawberry", "raspberry", "piece of cheese", "sugar lump", "slice of pear", "crust of bread"], "passer": ["a beetle", "a fly", "a cricket", "a snail"],
           "obstacle": ["Then they came to a puddle. They laid a straw across it and went over in a long line.", "A drop of rain fell, as big as a bucket, and they all sat under the leaf of a clover until it was over."]},
    prepare=lambda w: w.__setitem__("passer", w["passer"].replace("a ", "the ", 1)))

Frame(
    "rainbow",
    ["a rainbow", "{h} and the end of the rainbow", "a {kind} who looked for the end of the rainbow", "colours"],
    ["The End of the Rainbow", "{h} and the Rainbow"],
    """
    {@open}
    ? {@about}
    After a long rain, a rainbow stood [over {placethe}|in the sky]. "[They say that there is a treasure at its end|At the end of the rainbow there is a pot of gold]," said {ff}. "[Let us find it!|Come on!]" cried {h}, and off they ran.
    They ran to {near}. But the end of the rainbow was [further on|now behind {near2}]. They ran to {near2}. But it was [further on still|now behind {near3}]. [However fast they ran, the rainbow ran just as fast.|It always kept the same distance, like a shy animal.]
    --
    On the way they {way}.
    ? {@sense}
    [At last|Out of breath], they came to {near3}, and there the rainbow [grew pale and was gone|faded, first the red, then the yellow, and last of all the blue]. "[No treasure|All that for nothing]," said {f}, and [sat down in the grass|threw {fhimself} into the grass].
    ~~
    [{h} sat down beside {fhim}. Then {he} looked at {f} and began to laugh.|{h} looked at {f}. "You should see yourself," {he} said.] There was [red|purple] from the berries on {fhis} nose, yellow from the flowers on {fhis} knees, [and green from the grass everywhere|and green, and brown, and even a little blue]. "[You look like a rainbow yourself|I have found the end of the rainbow]," said {h}. "[It ends at you|It ends right here]."
    [They laughed all the way home.|And they both agreed that no pot of gold could be so funny.]
    / "[Then I am the pot of gold|Then where is my gold]?" said {f}. {h} gave {fhim} a yellow flower, and they went home, arm in arm.
    """,
    """
    What did they look for?=>They looked for the end of the rainbow.
    Who went with {h}?=>{f} went with {him}.
    How does it end?=>The rainbow fades, but they have had so much fun that they laugh all the way home.
    """,
    where=GREEN, ban="swim fly creature slow", friend_ban="swim fly slow", themes=("rainbows", "fun", "friendship"), weight=1.32,
    picks={"way": ["crawled through a bush full of ripe berries, slid down a bank, and ran through a field of yellow flowers", "rolled down a green hill, picked yellow flowers, and ate berries from a hedge with both {hands}", "jumped over a ditch, and not quite over another one, picked yellow flowers, and found a hedge full of berries"]})

Frame(
    "kitten_tree",
    ["a kitten in a tree", "{h} and the kitten", "a {kind} who rescued a kitten", "a kitten who climbed too high"],
    ["The Kitten in the Tree", "{h} to the Rescue"],
    """
    {@open}
    ? {@about}
    One {morning} morning, {he} heard a thin little meow. High up in {tree} sat a {kcol} kitten, and it [did not dare to come down|clung to a thin branch]. "[Jump!|Come down!]" called {both}. The kitten only [dug its claws into the bark|meowed more loudly].
    {f} fetched a ladder, but it was too short. {o} [shook a bag of food|held up a fish]. The kitten looked at it sadly and stayed where it was. [More and more people came and shouted.|Everybody shouted something different.] The more they shouted, the higher the kitten climbed.
    --
    {@think} "[Please be quiet, all of you|Hush]," {he} said. "[You would not come down either, if everyone shouted at you.|It is afraid of us.]" [They all went a few steps back.|One after the other, they fell silent.]
    {h} sat down [under the tree|on a root], and {he} {did}. {He} did not look up. [The leaves rustled.|It was very still.]
    ~~
    [After a while, there was a scratching sound.|By and by, something scratched on the bark.] One paw, two paws, three paws, four: [backwards and very slowly|step by step], the kitten came down. It [sniffed at {his} sleeve|sat down on {his} lap] and began to purr.
    "[How did you do that?|What is your trick?]" whispered {f}. "[I only waited|I did nothing at all]," said {h}. "[Sometimes that is the hardest thing to do.|It wanted to come down. It only needed some quiet.]"
    ? The kitten stayed with {him} from that day on, and {he} called it {kname}.
    """,
    """
    Where was the kitten?=>It was high up in {tree}.
    What did {h} do?=>{He} {did}, and {he} waited quietly.
    How does it end?=>The kitten comes down by itself, because {h} is quiet and patient.
    """,
    where=("village", "town", "farm", "garden", "meadow"), hero="child", not_traits="clumsy restless", themes=("kittens", "patience", "helping"), weight=1.32,
    picks={"tree": ["the old lime tree", "a tall pear tree", "the big oak", "a chestnut tree", "the highest elm"], "kcol": ["grey", "black", "white", "striped", "little red", "spotted"],
           "did": ["hummed a soft tune", "opened a book and read aloud in a low voice", "spun a little string between {his} fingers", "unpacked {his} bread and butter and ate it slowly"], "kname": ["Chestnut", "Captain", "Cloud", "Velvet", "Mouse", "Pudding"]})

Frame(
    "own_shadow",
    ["a shadow", "{h} and {his} shadow", "a {kind} who was afraid of {his} shadow", "being afraid"],
    ["{h} and the Shadow", "Someone Is Following Me"],
    """
    {@open}
    ? {@about}
    One evening, when the sun was low, {h} was walking along {path}. [Then {he} looked round and stopped.|Suddenly {he} had a strange feeling.] Somebody was following {him}! It was long and dark, and it did not make a sound.
    {h} walked faster. It walked faster, too. {h} ran. It ran as well. {h} hid behind {near}, and it was gone. [{He} came out again, and there it was!|But as soon as {he} came out, it was back.]
    ? {@breath}
    --
    "[Help!|Help me!]" cried {h}, and ran right into {ff}. "[Something is after me|A long black thing is chasing me]! [There!|Look!]" {f} looked. Then {fhe} [began to giggle|hid a smile]. "[Lift one arm|Wave to it]," said {f}. {h} did so. The long dark thing [lifted one arm|waved back].
    "[Hop on one leg|Now dance]," said {f}. {h} did, and so did the thing. [{h} stuck out {his} tongue, and it did not get angry.|{h} made a bow, and it bowed, too.]
    "[It does everything that I do!|It is copying me!]" said {h}. "[It is your shadow|That is only your shadow]," said {f}. "[I have one, too. Look.|Everybody has one. It is tied to your feet.]"
    ~~
    Then {h} [laughed at {himself}|was a little ashamed, but then {he} laughed]. [They made shadow rabbits and shadow birds until the sun was gone.|They danced, all four of them, until the sun went down.]
    "[Where is it now?|Will it be afraid at night?]" asked {h} when it was dark. "[It has gone to bed|It sleeps when you sleep]," said {f}. [So {h} said good night to it, to be polite.|"Good night, shadow," said {h}. And in the morning it was back.]
    """,
    """
    What was following {h}?=>It was {his} own shadow.
    Who helped {h}?=>{f} showed {him} that it was only a shadow.
    How does it end?=>{h} laughs and plays with {his} shadow.
    """,
    where=TEMPERATE, ban="swim fly creature night", friend_ban="swim fly", not_traits="brave", themes=("shadows", "fear", "fun"), weight=1.32)

Frame(
    "sick_grandmother",
    ["a {kind} who cooked soup", "{h} and the sick {grand}", "a pot of soup", "helping at home"],
    ["Soup for {Grand}", "{h} Cooks Soup"],
    """
    {@open}
    ? {@about}
    {His} {grand} was ill in bed, with a red nose and cold feet. "[What I would like is a bowl of my own {soup} soup|Nothing would help me as much as {soup} soup]," {ghe} sighed. "[But I am too weak to stand up.|But who should cook it?]"
    "I will cook it," said {h}. {He} had never cooked anything before[, except mud|]. {He} took the big pot and put in water and {soupthings}. [What came next?|Then {he} stopped.] {He} could not remember. {He} put in [a whole cup of salt|seven spoons of pepper], to be on the safe side, and tasted it. [Brrr!|Ugh!]
    ? {@sad}
    --
    {@dontgiveup} {He} shut {his} eyes and tried to remember how it smelled when {his} {grand} cooked. [It smelled of {herb}.|There was {herb}, for certain.] And what did {ghe} do? {Ghe} hummed all the time, and {ghe} never, never hurried.
    So {h} began again. {He} put in {soupthings}, some {herb} and one small pinch of salt, and {he} stirred slowly, and {he} hummed. [A good smell filled the kitchen.|Little by little, it began to smell just right.]
    ~~
    {His} {grand} tasted the soup. {Ghe} [shut {ghis} eyes|put down the spoon]. "[It is not like mine|That is not my soup]," {ghe} said. {h}'s face fell. "It is better," said {his} {grand}. "[What is in it?|How did you do that?]" "[I put the humming in|Only what you always put in, and a song]," said {h}.
    [The next day {his} {grand} was up again, and they cooked together, and hummed in two voices.|And by the time the pot was empty, {his} {grand}'s feet were warm and {ghis} nose was not red any more.]
    """,
    """
    Who was ill?=>{His} {grand} was ill.
    What did {h} cook?=>{He} cooked {soup} soup.
    How does it end?=>{h} cooks a good soup, and {his} {grand} gets well.
    """,
    where=TEMPERATE, ban="swim fly creature hoof", themes=("family", "cooking", "helping"), weight=1.32,
    picks={"grand ghe ghis": ["grandmother // she // her", "grandfather // he // his"], "soup soupthings": ["potato // potatoes and an onion", "carrot // carrots and a little butter", "bean // white beans and a carrot", "pumpkin // pumpkin and a spoon of cream", "mushroom // mushrooms and barley"],
           "herb": ["thyme", "parsley", "mint", "sage", "dill"]})
