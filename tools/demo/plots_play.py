"""Frames about contests, tricks, building and playing together."""

from tools.demo.frames import GREEN, Frame

Frame(
    "contest",
    ["a baking contest", "a contest", "{h} and the {contest} contest", "a {kind} who wanted to win", "winning and losing", "a {contest} contest"],
    ["The Great {Contest} Contest", "{h} and the Contest", "First Prize"],
    """
    {@open}
    ? {@about}
    Once a year there was a {contest} contest[ near {near}|], and {h} wanted to win it. {He} had {prepared}. "[This year I will win|The golden cup will be mine]," {he} said[, and {he} could hardly sleep the night before|].
    --
    On the morning of the contest, {h} set off early. On the way {he} met {ff}, who was [sitting by the road|standing on the path] in tears. "{problem}," said {f}. "[I was going to be in the contest, too|Now I cannot be in the contest]."
    {h} [looked at the sun|looked down the road]. [The contest would start soon.|There was not much time.] If {he} stopped, {he} [would be late|might come too late]. {He} took one step, and another. Then {he} turned round. "[I will help you|Come, we will do it together]," {he} said.
    {Help}
    ? {@sense}
    --
    When they got there, they were the last. {h} was out of breath, and {his} {entry} was {entrystate}. [First prize went to somebody else.|The golden cup went to {oo}.] {h} [clapped politely, but there was a lump in {his} throat|tried to smile].
    Then the judge, [a very old lady with a very tall hat|a fat man with a tiny trumpet|a tall man with a white beard], [tapped on the table|rang a bell]. "There is one more prize," said the judge. "[Somebody saw what happened on the road this morning.|A little bird told me why two of you were late.] [Anyone can win a cup. Not everyone can turn round.|There are many who can win, but few who stop for a friend.]"
    ~~
    And the judge gave {h} {prize}.
    ? {@happy}
    "[We won it together|Half of it is yours]," {he} said to {f}. And on the way home they [talked about next year|sang all the songs they knew|ate what was left of everything].
    [Next year they entered the contest together, and what they made was very odd and very good.|It was only a small prize, but {h} was prouder of it than of any cup.]
    """,
    """
    What kind of contest was it?=>It was a {contest} contest.
    Who did {h} help?=>{He} helped {f} on the way to the contest.
    Did {h} win the first prize?=>No, but {he} got {prize} for helping a friend.
    How does it end?=>{h} does not win the cup, but {he} gets a special prize for stopping to help.
    """,
    where=("forest", "meadow", "farm", "village", "mountain", "garden"), ban="fly swim creature", friend_ban="fly swim", themes=("contests", "kindness"), weight=1.2,
    picks={"contest prepared entry entrystate problem help": [
        "baking // practised a pie with a golden crust // pie // cold // My basket tipped over, and all my eggs are broken // {He} took out {his} own bread and cheese, and together they made a new dish from what was left, right there by the road.",
        "kite // built a kite with a long tail // kite // a little crumpled // The wind has torn my kite // {He} cut a piece from the tail of {his} own kite, and they mended the hole together.",
        "singing // practised a song // voice // hoarse // My throat is dry, and I have lost the words of my song // {He} gave {f} {his} water and sang the song with {fhim}, again and again, until {fhe} knew every word.",
        "flower // grown a rose as big as a cup // rose // a little bent // A cow has eaten my flowers // {He} helped {f} to look for wild flowers along the path, and they made a wreath of them.",
        "pumpkin // grown a pumpkin as big as a chair // pumpkin // scratched // The wheel of my cart is broken, and I cannot carry my pumpkin // {He} put {f}'s pumpkin on {his} own cart, right beside {his} own, and they pulled together.",
        "jam // cooked a jam of seven kinds of berries // jam // shaken up // I fell, and my only jar is broken // {He} had two jars, and {he} gave one to {f}. They picked fresh berries to put on top.",
        "boat // built a boat with a red sail // boat // missing its flag // My boat has lost its mast // {He} gave {f} the flagpole of {his} own boat, and they made a new mast of it."],
        "prize": ["a ribbon that said BEST FRIEND", "a small silver spoon", "a basket of sweets, big enough for two", "a tiny golden heart on a string", "a medal made of gingerbread"]})

Frame(
    "bully_trick",
    ["a bully", "a kind trick on a bully", "{h} and the bully", "a clever {kind} and a bully", "being clever"],
    ["{h} and the Bully", "The Kind Trick", "The Strongest of All"],
    """
    {@open}
    ? {@about}
    {Inplace2} lived a {fkind} [named|called] {f}, who was [big and loud|strong and rude] and liked to frighten the others. {Fhe} [took their {snack}|pushed in at the front of every line|knocked over their towers of stones] and laughed. "[I am the strongest|Nobody is as strong as me]," {fhe} shouted[ all day long|].
    "[Somebody should teach {fhim} a lesson|If only {fhe} would stop]," said {oo}. "[I could not beat {fhim}|I am not strong]," said {h}. "But I can think."
    --
    The next morning {h} went to {f}. "[I hear that you are very strong|They say that you are stronger than anyone]," {he} said. "[Of course I am!|I am the strongest of all!]," roared {f}. "[Try me!|I can do anything!]"
    "Then {dare}," said {h}.
    {f} laughed. "[That is easy|Nothing easier]!" {Tried} {@silence}
    ~~
    All the others were watching now. {f} turned red. [{Fhe} waited for them to laugh.|"Go on, laugh," {fhe} muttered.] But {h} did not laugh. "[Nobody can do it alone|It cannot be done alone, however strong you are]," {he} said. "[Let us try it together|That is the secret. Come, I will help you]." {Solved}
    ? {@sense}
    --
    "[That was fun|It worked]," said {f}[, and looked surprised|]. Then {fhe} said very quietly, "[Nobody ever wants to play with me.|I thought nobody liked me, so I shouted.]" "[You never asked|It is hard to play with somebody who shouts]," said {o}.
    {f} looked at {fhis} feet. "May I play with you?" {fhe} asked. "[Yes|Of course]," said {h}, "[if you wait your turn|and you can start by saying sorry]."
    [And {f} did.|So {f} said sorry, to one after the other.] {Fhe} was still the strongest of them all. But now {fhe} [carried the little ones on {fhis} back|built the highest towers of stones for everyone|held the other end of the skipping rope], and that is a much better thing to be strong for.
    """,
    """
    Who was the bully?=>The bully was {f}.
    What did {h} ask {f} to do?=>{He} asked {fhim} to {dareshort}.
    How did they do it?=>They did it together.
    How does it end?=>{f} says sorry and plays with the others.
    """,
    where=("forest", "meadow", "farm", "village", "mountain", "town", "savanna", "jungle"), ban="fly swim creature big", friend_ban="fly swim small slow hoof", not_traits="shy clumsy", themes=("bullies", "cleverness", "friendship"), weight=1.0,
    picks={"dare dareshort tried solved": [
        "play seesaw all by yourself // play seesaw alone // {Fhe} sat down on one end of a long board on a log. Bump! The end went down and stayed down. {Fhe} ran to the other end. Bump! That went down, too. // {h} and two of the little ones sat down at the other end, and up went {f}, and down, and up again.",
        "turn the long rope and jump over it at the same time // turn a rope and jump over it // {Fhe} swung one end of the long rope. It lay on the ground like a sleepy snake. {Fhe} tried again and got a knot around {fhis} legs. // {h} took one end and {o} took the other, and they turned the rope while {f} jumped, ten times, twenty times, thirty times.",
        "carry this water in your two hands all the way up the hill // carry water up the hill // {Fhe} scooped up the water and ran. At the top, {fhis} hands were empty. {Fhe} tried it three times. // They stood in a line, from the bottom to the top, and passed a bucket from hand to hand, and not one drop was spilled.",
        "throw this feather over the wall // throw a feather over a wall // {Fhe} threw with all {fhis} might, but the feather only sailed back and landed on {fhis} nose. // {h} held up the feather, everybody took a deep breath, and they blew together. Up went the feather, and over the wall.",
        "fold this big blanket without one crease // fold a big blanket // {Fhe} pulled it here and tugged it there, and in the end {fhe} was sitting under it. // {h} took two corners and {f} took two corners. They walked together, and apart, and together, and there lay the blanket, neat and square."],
        "snack": ["nuts", "apples", "berries", "cakes"]},
    prepare=lambda w: w.__setitem__("inplace2", "not far away"))

Frame(
    "build_bridge",
    ["building a bridge", "{h} and the bridge", "working together", "a {kind} who built a bridge", "two neighbours and a river"],
    ["The Bridge", "{h} Builds a Bridge", "From Both Sides"],
    """
    {@open}
    ? {@about}
    Through the middle of {placethe} ran a [deep, fast|cold, wide] stream. On this side lived {h}, and on the other side lived {ff}. Every day they waved to each other, but [the water was too wild to cross|they could not come together]. When they talked, they had to shout. "[Good morning!|How are you?]" shouted {h}. "[What did you say?|Thursday!]" shouted {f}.
    "[This is silly|I would like to talk without shouting]," thought {h}. "I will build a bridge."
    --
    First {he} {try1}. {Fail1} Then {he} {try2}. {Fail2}
    ? {@sad}
    {f} had watched it all. "[Alone you will never do it!|You are doing half of it!]" {fhe} shouted. "What?" shouted {h}. "[I said, build half!|I said, half!]" shouted {f}, [and held up a hammer|and pointed at {fhimself}].
    ~~
    {h} understood. {He} would build from this side, and {f} would build from that side. [All day long there was hammering on both banks.|They sawed and hammered on both banks.] [Every day the two halves grew a little.|{h} found that {f} was good at knots, and {f} saw that {h} was good at measuring.]
    ? {@sense}
    On the last day only one plank was missing, the one in the very middle. [They laid it together.|{h} held one end, and {f} held the other end.] It fitted!
    --
    And there they stood in the middle of the bridge, nose to nose. Suddenly they did not know what to say. "[Hello|Good morning]," said {h}, quite softly. "[Hello|Good morning]," said {f}, and they both laughed. [It was so nice not to have to shout.|After all that shouting, it was lovely to whisper.]
    They [sat down with their feet above the water|sat down right there] and shared {food}.
    [And before the week was over, everybody used the bridge.|Soon the others came over, too, from both sides, with baskets and carts and cousins.] "[Who built it?|Who made this fine bridge?]" strangers asked. ["I built half of it," said {h}. "And I built the other half," said {f}.|"Only half of it is mine," said {h}. "The other half is mine," said {f}.]
    """,
    """
    Where did {f} live?=>{f} lived on the other side of the stream.
    What did they build?=>They built a bridge.
    How did they build the bridge?=>{h} built from one side and {f} from the other.
    How does it end?=>The bridge meets in the middle, and they do not have to shout any more.
    """,
    where=("forest", "meadow", "farm", "mountain", "village", "garden"), ban="fly swim creature", friend_ban="fly swim", themes=("building", "working together", "neighbours"),
    picks={"try1 fail1": ["threw in big stones // The water carried them away.", "laid a long branch across // It was too short, and it fell in with a splash.", "tied a rope to a tree and threw it over // It fell into the water every time."],
           "try2 fail2": ["built a raft // It spun around and came back without its rudder.", "piled up a wall of mud // The next morning it was gone.", "nailed three boards together // They bent in the middle like a sad smile, and then they broke."]})

Frame(
    "treehouse",
    ["a tree house", "{h} and the tree house", "building something together", "three friends and a tree house"],
    ["The Tree House", "A House in the Tree", "{h} and the Tree House"],
    """
    {@open}
    ? {@about}
    {h} and {his} friends {f} and {o} wanted to build a tree house. [They had found the perfect tree.|There was a tree with three strong branches, just right for it.] {h} brought {thing1}, {f} brought {thing2}, and {o} brought {thing3}.
    But [each of them wanted something different|they could not agree]. {h} wanted {want1}. {f} wanted {want2}. {o} wanted {want3}. [They shouted until the birds flew away.|They talked all at once, and nobody listened.] In the end, each of them began to build alone, on a different branch.
    --
    {h} had no {lack1}. {f} had no {lack2}. {o} had no {lack3}. By evening there were [three piles of wood and three cross faces|three crooked floors and not one house]. Then it began to rain.
    ? {@rain}
    [All three of them|They] huddled under the same big leaf, because it was the only dry place in the whole tree. Nobody spoke. [Then {o} sneezed, and {f} giggled, and {h} had to laugh, too.|Then a drop fell on all three noses, one after the other, and they began to giggle.]
    "[We are silly|How silly we are]," said {h}. "[You have what I need, and I have what you need|We have everything for one house, and we tried to build three]."
    ~~
    The next day they put everything together. {Together} [It was not quite straight.|One corner was a little lower than the others.] But it had {want1}, it had {want2}, and it had {want3}.
    --
    "[It is the best tree house in the world|It is perfect]," said {f}. [They shared {food} up there|They spent the whole summer up there], and when it rained, they [sat inside and listened to the drops|told each other stories].
    [They painted a sign and hung it by the door. ONE HOUSE, THREE BUILDERS, it said.|And over the door they hung the big leaf, so that they would never forget how it had begun.]
    """,
    """
    What did they want to build?=>They wanted to build a tree house.
    Who were the friends?=>The friends were {h}, {f} and {o}.
    Why did it not work at first?=>Each of them wanted something different and built alone.
    How does it end?=>They put everything together and build one good tree house.
    """,
    where=("forest", "meadow", "garden", "farm", "village"), ban="fly swim creature big slow", friend_ban="fly swim big slow", themes=("working together", "friendship", "summer"),
    picks={"thing1 lack1 thing2 lack2 thing3 lack3": ["the boards // nails // a bag of nails // rope // a long rope // boards", "the ropes // boards // a stack of boards // saw // a saw and a hammer // ropes"],
           "want1 want2 want3": ["a round window // a red roof // a secret door", "a soft bench // a flag // a bell", "a lookout // a rope ladder // a shelf for books", "a blue door // a swing // a basket on a string"],
           "together": ["{h} measured, {f} hammered, and {o} tied the knots.", "They sawed and tied and hammered, and nobody shouted, except when {h} hit {his} own thumb.", "One held, one hammered and one told jokes, and then they changed places."]})

Frame(
    "race",
    ["a race", "{h} and the big race", "a slow {kind} and a race", "a {kind} who was too slow", "running a race"],
    ["The Big Race", "{h} Runs a Race", "Last and First"],
    """
    {@open}
    ? {@about}
    {h} was not fast. [Everyone knew it, and {h} knew it, too.|When the others ran, {he} always came last.] But when the big race [of the year |]was announced, once around {placethe} and back, {he} put down {his} name.
    "[You?|You will come in next week!]" laughed {ff}, who was the fastest of them all. "[I would like to see the way|Somebody has to be last, and I do not mind]," said {h}[ calmly|].
    --
    Ready, steady, go! [The others shot away in a cloud of dust.|Off they went, and soon {h} was alone on {path}.] {h} went step by step, [and hummed|and looked around]. {@sense}
    Because {he} was slow, {he} saw things that the fast ones did not see. {Saw}
    ? {He} passed {near}, and {he} did not hurry.
    ~~
    Then came the fork in the road. There the fast ones had [run the wrong way, because the sign had fallen over|gone wrong, because the wind had turned the sign]. {h} saw [their footprints|the dust], and {he} saw the sign in the grass. "[They will run all the way to the swamp|That way leads to the deep mud]," {he} thought.
    {He} could have gone on alone and won. [It was a nice thought, and {he} thought it for three steps.|For a moment, {he} thought about it.] Then {he} [put up the sign again and |]called as loudly as {he} could, and {he} {signal}.
    --
    [Out of the mud|After a while], one after another, they came back, [brown up to the ears|wet and tired]. "[We were lost|We were stuck]," said {f}, and {fhe} was not laughing any more. "[Why did you not go on?|You could have won!]" "[And who would have clapped?|A race is no fun alone]," said {h}.
    So they all walked the last part together, at {h}'s speed, [and {h} showed them everything that {he} had seen|and it was the nicest part of the whole race]. And when they came to the finish line, [{f} stepped back and said, "After you."|they stopped, and they pushed {h} in front.]
    [That is how the slowest of them all won the big race.|So {h} won, by one small step.]
    """,
    """
    Who was the fastest?=>{f} was the fastest of them all.
    Why did the others get lost?=>The sign at the fork had been turned or had fallen over.
    What did {h} do?=>{He} called the others back instead of going on alone.
    How does it end?=>They all walk together, and they let {h} win.
    """,
    where=GREEN + ("savanna", "desert", "outback", "jungle"), ban="fly swim fast creature", friend_ban="fly slow swim", not_traits="restless eager", themes=("races", "being slow", "kindness"),
    picks={"saw": ["{He} saw a bird's nest with five blue eggs, and a spider mending its web.", "{He} saw a beetle in shining green armour, and a stone that looked like a face.", "{He} found ripe berries, and {he} ate three of them without stopping.", "{He} turned over a small bug that lay on its back, and it said thank you."],
           "signal": ["waved {his} scarf", "beat two stones together", "whistled on a blade of grass", "sang the loudest song {he} knew"]})

Frame(
    "picnic_rain",
    ["a picnic", "a picnic in the rain", "{h} and the picnic", "a rainy day", "a day that went wrong"],
    ["The Picnic in the Rain", "{h} and the Rainy Day", "The Best Picnic"],
    """
    {@open}
    ? {@about}
    {h} had planned a picnic with {f} and {o}. [{He} had packed everything twice.|{He} had looked forward to it all week.] There was {dish1}, there was {dish2}, and there was a blanket [with red squares|as blue as the sky]. {He} woke up early, opened the curtain, and [{his} mouth fell open|{his} smile went away]. It was raining!
    ? {@rain}
    "[It will stop|It is only a shower]," {he} said. But it did not stop. [The path turned into a brook.|The sky was grey from end to end.]
    --
    Knock, knock. There stood {both}, dripping. "[What a pity|So, no picnic]," said {f}. [{h} looked at the basket, and {his} lip trembled.|{h} nearly cried. "Everything is spoiled," {he} said.]
    {o} looked out at the rain. "[Who says that a picnic must be dry?|A picnic is only eating on a blanket]," {ohe} said. "{idea}"
    ~~
    [So that is what they did.|And they did just that.] {Did} {dish1c} [tasted even better than in the sun|had never tasted so good], and they [told each other stories about the sea|made up a song about rain|played that they were sailors on a ship].
    ? {o} put a bowl on {ohis} head and said that it was a rain hat.
    --
    In the afternoon they went out after all and jumped into the puddles, [from the smallest to the biggest|one, two, three, splash]. [They were so wet that they could not get any wetter.|They floated little boats of bark down the path.] And just before evening, the sun came out, and over {placethe} stood a rainbow, [with both feet on the ground|from one end to the other].
    "[If it had not rained, we would not have seen that|A dry picnic has no rainbow]," said {h}.
    [After that, whenever it rained, somebody knocked at {h}'s door with a basket.|"Next week again?" asked {f}. "Only if it rains," said {h}.]
    """,
    """
    What went wrong?=>It rained on the day of the picnic.
    What was in the basket?=>There was {dish1} and {dish2}.
    Where did they have the picnic?=>They had it {whereshort}.
    How does it end?=>They have fun in the rain and see a rainbow.
    """,
    where=("forest", "meadow", "farm", "village", "mountain", "garden", "town"), ban="fly swim creature", friend_ban="swim fly", themes=("rain", "friendship", "making the best of things"),
    picks={"dish1 dish1c dish2": ["potato salad // The potato salad // lemonade", "bread with cheese // The bread with cheese // a jar of pickles", "a nut cake // The nut cake // apple juice", "cold soup in a bottle // The cold soup // a bag of buns", "a big berry pie // The big berry pie // mint tea"],
           "idea did whereshort": ["Let us have it under the table! // They spread the blanket under the kitchen table and hung a sheet over the sides like a tent. // under the kitchen table",
                             "Let us have it in front of the fire! // They spread the blanket in front of the fire, took off their wet socks and hung them up like flags. // in front of the fire",
                             "Let us have it in the attic, right under the rain! // They climbed up to the attic and spread the blanket between old boxes, with the rain drumming just above their heads. // in the attic"]})

Frame(
    "treasure_map",
    ["a treasure map", "{h} and the treasure map", "a treasure hunt", "a {kind} who found a treasure", "buried treasure"],
    ["The Treasure Map", "{h} and the Treasure", "The Real Treasure"],
    """
    {@open}
    ? {@about}
    {@oneday}, {h} found {a_map} in {mapplace}. On it somebody had drawn a path, three trees and a big red cross. "[A treasure map!|Treasure!]" {he} shouted, and {he} ran to {ff}. "[Come on|Get a spade]! [We will be rich!|Let us find it!]"
    They set off with a spade and [two sandwiches|a bag of apples]. On the back of the map were three lines. The first was: {line1}.
    --
    [That was easy.|They did not have to think long.] {Step1}
    The second line was: {line2}. {Step2} [Here they nearly quarrelled, because {h} wanted to go left and {f} wanted to go right.|{f} got a stone in {fhis} shoe, and {h} pulled it out.]
    ? {@sense}
    The third line was harder: {line3}. {@think} "I know!" cried {f}. {Step3}
    ? There stood three trees, just as on the map.
    ~~
    They dug and dug. [The hole was already as deep as {h} was tall.|Earth flew in all directions.] Then the spade went clonk. It was a box! {@breath} They opened the lid.
    There was no gold in it. They found {inside}, and a letter. "[Dear finder|Dear friend]," it said. "{letter}"
    --
    {h} and {f} looked at each other. [They were dusty, they were tired, and they had laughed more than ever before.|They thought of the long way and of everything that they had done that day.] "[It is true|Whoever wrote this was clever]," said {h}.
    So they {finish}. Then they put a new letter into the box, buried it again, and [hid the map where somebody else would find it|hung the map in an old tree, for the next one].
    [And on the way home they took the long path, because it had been the best part.|It was the best treasure that anybody ever found.]
    """,
    """
    What did {h} find?=>{He} found a treasure map in {mapplace}.
    What was in the box?=>They found {inside} and a letter in the box.
    Who went with {h}?=>{f} went with {him}.
    How does it end?=>They find the box and leave a new letter in it for the next finder.
    """,
    where=("forest", "meadow", "farm", "village", "mountain", "seaside", "island"), ban="fly swim creature", friend_ban="fly swim", themes=("treasure", "adventure", "friendship"), weight=1.2,
    picks={"a_map mapplace": ["an old map // a hollow tree", "a rolled-up map // an empty bottle", "a yellow piece of paper // an old book", "a torn map // a box of old buttons", "a map with brown edges // the pocket of an old coat"],
           "line1 step1": ["walk toward the morning sun until you hear water // They walked east until they heard a brook.", "begin where the road has a knot // They went to the crossroads, where four roads met.", "ask the one that has one foot and a hat // \"A mushroom!\" said {h}, and they went to the place where the big mushrooms grew."],
           "line2 step2": ["go as many steps as a spider has legs, ten times over // They counted eighty steps.", "cross over without getting wet // They looked until they found a log that lay across the brook.", "follow the wall that nobody needs // They followed an old wall that was half covered in moss."],
           "line3 step3": ["stop where one stands like three // \"It is one tree with three trunks!\" And there it was.", "dig where the shadows meet at noon // \"The shadows of the trees! They meet right here!\"", "look where the giant sleeps // \"That long hill looks like a sleeping giant, and there is his nose!\""],
           "inside finish": ["a tin of biscuits // ate the biscuits, every crumb", "two wooden whistles // blew the whistles until the birds answered", "a pair of paper crowns // put on the crowns and bowed to each other", "two cups and a bottle of juice // drank the juice and clinked their cups", "a bag of marbles // divided the marbles, one for you and one for me"],
           "letter": ["The real treasure is the day you had on the way.", "If you came with a friend, you had the treasure with you all the time.", "Gold is heavy. A good day is light, and you can keep it for ever."]})

Frame(
    "boaster",
    ["a {kind} who told tall tales", "{h} who boasted", "telling the truth", "a boastful {kind}", "a {kind} who said {he} was not afraid of anything"],
    ["{h} Who Boasted", "The Tall Tale", "The Bear That Was Not There"],
    """
    {@open}
    [{h} liked to tell tall tales.|There was one thing about {h}: {he} liked to boast.] "[Yesterday I fought a {monster}|This morning I chased away a {monster}]," {he} would say. "[It was as big as a barn|It had a hundred teeth], but I was not afraid."
    [The little ones listened with open mouths.|At first everyone believed {him}.] And every time {h} told the tale, the {monster} got bigger. [In truth, {he} had never seen one.|But in truth, {he} had only seen a picture of one.]
    --
    One evening {both} came running. "{h}! [Come quickly!|We need you!] There is a {monster} {where0}! It is [growling|making a terrible noise]! [You have fought one before.|You are not afraid of anything.]"
    {h} turned [pale|cold]. "[I have a sore foot|I have to wash my hair|It is nearly my bedtime]," {he} said. But they [took {his} {hands} and pulled {him} along|were already pushing {him} forward].
    It was dark {where0}. Something [growled|rumbled and snorted]. {h}'s knees knocked together. [{He} wanted to run.|{He} could not move.] {@breath}
    ~~
    "[I must tell you something|Wait]," {he} said in a small voice. "I have never fought a {monster}. [I made it all up.|Not one word of it was true.] I wanted you to [think that I was brave|like me]. And now I am so afraid that my teeth are rattling."
    ? {@silence}
    "[Then we are all afraid|I am afraid, too]," said {f}[ at last|]. "[Let us be afraid together|Three afraids make one brave]." So they held on to each other and went forward, [one small step at a time|very slowly].
    --
    And there, {where0}, lay {truth}. [They looked at it. Then they laughed until they had to sit down.|"Hush," said {h}, and they tiptoed away and giggled all the way home.]
    "[You know|Do you know]," said {o}, "that was the bravest thing I have ever seen." "Going in there?" asked {h}. "No. Telling the truth."
    [After that, {h} still told stories. But at the end {he} always winked, and everyone knew.|{h} still tells the story of that night. The {monster} gets a little smaller every time.]
    """,
    """
    What did {h} boast about?=>{He} said that {he} had fought a {monster}.
    What was really there?=>It was only {truth0}.
    What was the bravest thing?=>Telling the truth was the bravest thing.
    How does it end?=>{h} tells the truth, and they find out that there was no {monster}.
    """,
    where=("forest", "meadow", "farm", "village", "mountain"), ban="fly swim creature big", friend_ban="fly swim big", traits="proud merry playful restless dreamy eager", themes=("truth", "courage", "boasting"),
    picks={"monster": ["dragon", "giant bear", "sea snake", "troll", "mountain lion", "monster"],
           "where0 truth truth0": ["behind the old mill // the miller, fast asleep on his sacks and snoring // the miller, who was asleep and snoring", "in the barn // a fat old sow with nine piglets, and all ten of them were snoring // a sow with nine piglets",
                            "behind the woodpile // the blacksmith's dog, who was chewing on an enormous bone // a dog with a bone", "in the old shed // somebody's grandfather, who had fallen asleep in his chair with a newspaper over his face // a sleeping grandfather"]})
