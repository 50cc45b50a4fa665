"""Frames about small troubles at home: things lost and broken, friends, sharing, mistakes."""

from tools.demo.frames import ANYWHERE, GREEN, Frame

Frame(
    "lost_thing",
    ["{h} and the lost {thing}", "a lost {thing}", "a {kind} who lost a {thing}", "a {trait} {kind} and a {thing}", "losing something and finding it again"],
    ["The Lost {Thing}", "{h} and the Lost {Thing}", "Where Is the {Thing}?"],
    """
    {@open}
    ? {@about}
    The thing {he} loved most was {his} {colour} {thing}[, which {e} had given {him}|, and {he} took it everywhere|, a present from {e}].
    / {h} had a {colour} {thing}[, and {he} never went anywhere without it| that {e} had made for {him}].
    ~~
    {@oneday}, {h} {busy} {bplace}. {Put}.
    ? {@sense}
    When {he} came home, {he} reached for {his} {thing}. It was gone!
    / That evening, {h} looked for {his} {thing}. It was not there.
    / Later, {he} wanted to play with {his} {thing}, but it was nowhere to be seen.
    ? {@sad}
    --
    [First|First of all], {he} looked {spot1}. [There was nothing but an old boot.|{He} found only a brown feather.|There was only a sleepy beetle.|Nothing there!] Then {he} looked {spot2}. [{He} found a button and a cork, but no {thing}.|It was not there either.|Nothing there but dust.]
    / {h} searched {spot1}, and {he} searched {spot2}. {He} found [a rusty key|a round pebble|half a nutshell|three feathers], but no {thing}.
    ? {@dontgiveup}
    "[What is the matter?|Why do you look so sad?|What are you looking for?]" asked {ff}, [who came along {path}|who was passing by].
    "I have lost my {thing}," said {h}. "[I have looked everywhere.|I cannot find it anywhere.|It is gone, and I do not know where to look.]"
    --
    "[Hmm|Well|Let us think]," said {f}. "[Where did you last have it?|What did you do today? Tell me everything.|When I lose something, I walk backwards through my day.]"
    {@think} "[This morning|Before lunch] I {busy} {bplace}," {he} said slowly. "And then..." {His} eyes grew wide. "I know!"
    They ran [as fast as they could|side by side|all the way] {back}. And there, [just where {he} had left it|safe and sound|waiting patiently], was the {colour} {thing}!
    ? {@happy}
    --
    "[Thank you, {f}!|You are a true friend, {f}!]" said {h}. "[I was looking with my eyes. You helped me look with my head.|I would never have found it alone.|You asked just the right question.]"
    ? "[You are welcome|It was nothing|Any time]," said {f}[, and smiled|. "Now let us play!"].
    [From that day on|After that], whenever {h} lost something, {he} did not run about and worry. {He} sat down first and thought, ["Where did I last have it?"|and that worked almost every time.]
    / That night {h} put the {thing} [next to {his} pillow|right beside {his} bed], where {he} could not lose it. {He} was asleep in a minute.
    ? {@happyend}
    """,
    """
    What did {h} lose?=>{He} lost {his} {colour} {thing}.
    Where was the {thing}?=>It was {found}, just where {h} had left it.
    Who helped {h}?=>{ff} helped by asking where {h} had last had the {thing}.
    How does it end?=>{h} remembers where {he} put the {thing}, and they find it together.
    """,
    where=GREEN + ("jungle", "outback"), ban="swim fly", themes=("friendship", "lost things"),
    picks={
        "thing": ["ball", "scarf", "drum", "whistle", "kite", "hat", "blanket", "spinning top", "flute", "paper boat", "toy horse", "lantern", "bell", "little basket",
                  "wooden spoon", "ribbon", "umbrella", "rag doll", "mouth organ", "marble", "toy boat", "pocket mirror", "wooden whistle", "mitten", "picture book"],
        "busy bplace put back found": [
            "picked berries // near {near} // To have both {hands} free, {he} put the {thing} down on a flat stone // to {near} // on a flat stone by {near}",
            "took a nap // beside {near} // Before {he} closed {his} eyes, {he} hid the {thing} in the grass to keep it safe // back to {near} // in the grass beside {near}",
            "helped {oo} carry some wood // past {near} // It was heavy work, so {he} left the {thing} beside the woodpile // to the woodpile behind {near} // beside the woodpile",
            "watched the fish // by {water} // {He} did not want the {thing} to get wet, so {he} hung it on a branch // back to {water} // on a branch by {water}",
            "watched a line of ants // near {near} // {He} put the {thing} down quietly, so that the ants would not be scared // back to {near} // near {near}, where the ants were",
            "built a tower of stones // by {near2} // {He} put the {thing} in a safe place behind the tower // to {near2} // behind the stone tower",
            "shared a snack with {oo} // under {near2} // {He} put the {thing} down to break a bun in two // to the place where they had shared the snack // where they had shared the snack",
        ]})

Frame(
    "broken_thing",
    ["a {kind} who broke {a_thing}", "saying sorry", "{h} and the broken {thing}", "telling the truth", "a mistake and an apology", "an honest {kind}"],
    ["The Broken {Thing}", "{h} Tells the Truth", "{h} and the {Thing}"],
    """
    {@open}
    ? {@about}
    [{He} lived with {e}, who|{His} {elder}] had {a_thing} that [stood|had its place] {tplace}. It was {old}, and it was very dear to {ehim}.
    "[You may look, but please do not play with it|Please be careful near it|It is not a toy]," {his} {elder} always said.
    ~~
    {@oneday}, {h} was [playing with a ball|dancing around the room|chasing a fly|pretending to be a pirate|trying to stand on {his} head] {tplace2}. [Round and round {he} went.|{He} jumped, {he} spun, and then...|It was great fun, until...] Crash! The {thing} lay on the floor in [three|four|five|many] pieces.
    ? {@silence}
    --
    "Oh no," whispered {h}. {He} looked left. {He} looked right. Nobody had seen it. Quickly {he} [swept the pieces under the rug|pushed the pieces behind the cupboard|hid the pieces in a box|wrapped the pieces in an old cloth and hid them].
    [But at dinner|But all that afternoon], {h} could not {worry}. [{His} tummy hurt.|There was a cold stone in {his} tummy.|Every sound made {him} jump.] [Even {food} did not taste good.|{He} tried to hum, but no tune would come.]
    / [But somehow the day was not nice any more.|But something felt wrong.] {h} could not {worry}. The secret [sat on {his} shoulders like a heavy sack|followed {him} everywhere like a shadow|felt bigger and bigger].
    "[Is something the matter?|Are you ill?|You are very quiet today]," said {his} {elder}. "No," said {h}, and that made it even worse.
    --
    {ff}, {his} friend, [found {him} sitting alone|came to play]. {h} told {fhim} everything.
    ? "[What if {ehe} never forgives me?|What if {ehe} shouts?|What if {ehe} cries?]" asked {h}.
    "[A hidden thing stays broken|A secret like that only grows|Hiding it will not mend it]," said {f}. "[But a thing you tell can be mended.|The truth is hard for one minute. A lie is hard every day.|Tell {ehim}. I will wait outside.]"
    ~~
    {@breath} Then {he} took the pieces and carried them to {his} {elder}. "I broke your {thing}," {he} said[ in a very small voice|]. "I hid it because I was afraid. I am so sorry."
    {@silence} Then {his} {elder} [knelt down and hugged {him}|took {his} {hand}|put {ehis} arms around {him}]. "[I am sad about the {thing}|I did love that {thing}]," {ehe} said, "but I am glad that you told me. [You are worth more than any {thing}.|The truth is worth more to me.|That was a brave thing to do.]"
    --
    [Together they|The next day, they sat down together and] glued the pieces, one by one. [It took all evening.|It was slow work.|{h} held each piece until it was dry.] When they were done, there was [a thin line|a fine crack like a river on a map|one tiny hole], but the {thing} {stood} again.
    "[I like it even better now|It is more beautiful than before]," said {his} {elder}. "[When I see that crack, I will think of how brave you were.|Now it has a story.|Now we have both made it.]"
    [That night|At bedtime] {h} felt as light as a feather. [The cold stone in {his} tummy was gone.|There was no secret left to carry.] And {food} tasted good again.
    / {h} smiled. The secret was gone, and {he} felt as light as a feather.
    """,
    """
    What did {h} break?=>{He} broke the {thing} that belonged to {his} {elder}.
    Why did {h} feel bad?=>{He} had hidden the pieces and kept it a secret.
    What did {f} say?=>{f} told {him} that it was better to tell the truth.
    How does it end?=>{h} says sorry, {his} {elder} forgives {him}, and they mend the {thing} together.
    """,
    where=GREEN + ("seaside", "town", "snow", "jungle"), ban="swim fly", not_traits="honest careful brave", themes=("honesty", "forgiveness"),
    picks={
        "a_thing thing tplace tplace2 old stood": [
            "a blue vase // vase // by the window // near the window // very old // held flowers",
            "a teapot with roses on it // teapot // on the shelf // under the shelf // older than {h} // poured tea",
            "a clay jug // jug // on the table // around the table // very old // held water",
            "a painted plate // plate // on the wall // along the wall // a wedding present // hung on the wall",
            "a music box // music box // on the shelf // under the shelf // very old // played its tune",
            "a yellow bowl // bowl // on the table // around the table // a present from an old friend // held apples",
            "a little glass lamp // lamp // by the window // near the window // older than the house // gave its light",
            "a wooden clock // clock // on the wall // along the wall // very old // went tick, tock",
            "a china bird // china bird // by the window // near the window // a present from far away // stood by the window"],
        "worry": ["play", "sit still", "laugh", "eat", "think of anything else", "sleep"],
    })

Frame(
    "new_friend",
    ["a new friend", "{h} and the new neighbour", "a {kind} who made a friend", "a lonely {fkind} and a {trait} {kind}", "making friends", "friendship"],
    ["A New Friend", "{h} Makes a Friend", "The New Neighbour"],
    """
    {@open}
    ? {@about}
    ? {@likes}
    ~~
    One {morning} morning, somebody new [moved in|came to live] {spot}. It was a {fkind}, [with one small bag|with a big brown suitcase|with a bundle on a stick], and {fhis} name was {f}.
    / Then one day a new neighbour came. {Fhe} was a {fkind} named {f}, and {fhe} moved in {spot}.
    [{f} did not talk to anybody.|{f} kept {fhis} door shut.|All day {f} sat alone and looked at {fhis} feet.|Whenever somebody passed, {f} looked the other way.] "[{f} is rude|{f} is stuck up|{f} does not like us]," said [the others|the neighbours].
    ? But {h} was not so sure. [{He} had seen {f} smile at a butterfly.|{He} thought that {f} looked more sad than rude.|{He} remembered how it felt to be new.]
    --
    The next day {h} went over and said, "[Good morning!|Hello!|Hello there!] [Would you like to play?|Shall we play tag?|I am {h}.]" {f} [turned red and ran inside|shook {fhis} head and closed the door|hid {fhis} face].
    On the second day {h} [sang a funny song|told {fhis} closed door a joke|made funny faces at the window]. {f} [peeped out|opened the door just a crack], but {fhe} did not come out.
    ? {@dontgiveup}
    {@think} [Perhaps loud things were too much for somebody shy.|Perhaps {f} needed something quiet.|"I was too loud," {he} said to {himself}.] {@idea}
    --
    On the third day {h} did not call and did not sing. {He} {gift} [and put it on the doorstep|and left it by the door], and then {he} sat down [a little way off|in the grass nearby|on the path] and {quiet}.
    [After a while|After a long while|By and by], the door opened. {f} looked at the {giftname}. {Fhe} looked at {h}. Then {fhe} came out and sat down, [not too near and not too far|one small step away|quite close].
    ? {@sense}
    "[At my old home, I had many friends|Where I lived before, everybody knew me]," said {f} [very softly|in a tiny voice]. "[Here I do not know what to say.|Here I know nobody, and I was afraid.|I did not know how to begin.]"
    "[You just did begin|That was a good beginning|You do not have to say anything]," said {h}[, and {f} laughed| with a smile|].
    --
    [After that|From then on], they met every day. [{f} was not rude at all.|It turned out that {f} was not stuck up at all.] {Fhe} knew [forty riddles|the names of all the stars|how to fold boats out of leaves|the funniest stories|how to whistle like a bird], and {fhe} taught {h} all of them.
    / Soon the two of them were playing together every day. {f} showed {h} [how to make whistles out of grass|a game with seven stones|how to juggle nuts], and {h} showed {f} all the best places [by {water}|near {near}].
    ? "[I am glad you did not give up|I am glad that you waited for me]," said {f} one day. "[I am glad that you opened the door|So am I]," said {h}.
    And when the next new neighbour came, it was {f} who put {a_gift2} on the doorstep and sat down to wait.
    / {@moralfriend}
    """,
    """
    Who was the new neighbour?=>The new neighbour was {f}, a {fkind}.
    Why did {f} not talk to anybody?=>{f} was shy and did not know anybody.
    What did {h} leave at the door?=>{He} left {a_gift}.
    How does it end?=>{h} and {f} become good friends.
    """,
    where=ANYWHERE, not_traits="shy", themes=("friendship", "being shy", "kindness"),
    picks={
        "gift giftname a_gift a_gift2": [
            "picked some flowers // flowers // some flowers // some flowers",
            "drew a picture of two friends // picture // a picture of two friends // a picture",
            "took a basket of berries // berries // a basket of berries // a basket of berries",
            "baked a small round cake // cake // a small round cake // a small round cake",
            "found a smooth white stone // stone // a smooth white stone // a smooth white stone",
            "made a crown of leaves // crown // a crown of leaves // a crown of leaves",
            "carved a little wooden boat // little boat // a little wooden boat // a little wooden boat"],
        "quiet": ["looked at the clouds", "hummed very softly", "whittled a stick", "ate an apple", "drew shapes in the dust", "waited"],
        "spot": ["next door", "near {near}", "beside {near2}", "just across {path}"]})

Frame(
    "sharing_food",
    ["sharing", "{h} and the last {dish}", "a {kind} who would not share", "sharing food", "a hungry winter and a {dish}", "a {kind} who learned to share"],
    ["The Last {Dish}", "{h} Learns to Share", "Enough for Everyone"],
    """
    {@open}
    ? {@about}
    ? {@likes}
    It was a hard winter. [The snow lay deep|The wind was icy|Frost covered everything], and there was not much to eat. All that {h} had left was [one|one single] {dish}.
    / One winter the snow would not stop. Day after day the cupboards grew emptier, until {h} had nothing left but one {dish}.
    "[If I eat a little every day, it will last until spring|I will keep it all for myself|Nobody must know about it]," {he} thought[, and {he} hid it under {his} bed|, and {he} hid it under {his} bed and shut the door tight].
    --
    Knock, knock. [It was|Outside stood] {ff}, [shivering|thin and cold|with snow on {fhis} head]. "[I have only {onething1} left|All I have is {onething1}]," said {f}. "[Have you anything to eat?|May I come in and get warm?|I am so hungry.]"
    {h} [thought of the {dish} under the bed|looked at the floor]. "[I have nothing|I am sorry, I have nothing]," {he} said, and {f} went away. [The wind howled.|The snow fell and fell.] {h} took out the {dish}, but {he} could not eat. [Every time {he} lifted it, {he} saw {f}'s hungry face.|It did not taste of anything.|{His} tummy was empty, but {his} heart felt emptier.]
    ? {@think}
    --
    So {he} put on {his} scarf, took the {dish} and went out into the snow. "{f}!" {he} called. "I was wrong. Come and eat with me. [Half is enough.|There is enough for two.]"
    [On the way back|Near {near}] they met {oo}, who had [nothing but {onething2}|only {onething2}]. "Bring it along!" said {h}.
    ~~
    [Soon|That evening] all three sat by the fire. {f} had {onething1}, {o} had {onething2}, and {h} had {his} {dish}. [They cut and stirred and tasted.|They put everything on the table and shared it in three.] [The room grew warm.|The windows grew steamy.] And it was strange, but there was enough for everyone.
    ? "[Alone, I had a {dish} and no friends|How funny]," said {h}. "[Together we have a feast.|When I shared it, it grew bigger.]"
    ? They told stories until the fire was only a red glow.
    --
    [All winter long|Until the snow melted], the three of them shared whatever they had. [Some days it was little, and some days it was less, but nobody was hungry alone.|Some days it was soup, and some days it was only hot water with a leaf in it, but they always laughed.] And when spring came, {h} made a new {dish}, and it was the biggest that anyone had ever seen. {He} cut it into three pieces.
    / From that winter on, {h} never hid food under {his} bed again. "[A thing tastes best when you share it|Half a {dish} and a friend is more than a whole {dish}]," {he} always said.
    """,
    """
    What did {h} hide?=>{He} hid {his} last {dish} under the bed.
    What did {f} have?=>{f} had {onething1}.
    How does it end?=>{h} shares the {dish} with {f} and {o}, and there is enough for everyone.
    """,
    where=("forest", "meadow", "farm", "village", "mountain", "town", "garden"), ban="swim fly creature", not_traits="kind helpful honest thoughtful friendly", themes=("sharing", "winter"), friend_ban="swim fly",
    picks={"dish": ["apple pie", "loaf of bread", "plum cake", "pumpkin", "round cheese", "honey cake", "nut loaf", "potato pie", "turnip pie", "berry pie", "oat cake"],
           "onething1 onething2": ["a handful of nuts // one wrinkled apple", "two carrots // a little honey", "one onion // a bag of dried peas", "a cup of oats // three walnuts",
                                   "a few dried berries // a pinch of salt and one turnip", "one pear // a jar of jam", "some old crusts // a jug of cider"]})

Frame(
    "afraid_dark",
    ["a {kind} who was afraid of the dark", "being afraid of the dark", "{h} and the dark", "the night and a {kind}"],
    ["{h} and the Dark", "The Friendly Dark", "{h} Is Not Afraid"],
    """
    {@open}
    ? {@about}
    [{h} was not afraid of {notafraid}.|{He} was not afraid of {notafraid}, and {he} was not afraid of wasps.] But there was one thing that made {him} shake: {h} was afraid of the dark.
    / But {h} had a secret. When the sun went down, {he} was afraid of the dark.
    Every evening {he} [pulled the blanket over {his} head|lit three candles|asked {e} to leave the light on] and [listened to every little sound|squeezed {his} eyes shut|waited for the morning].
    --
    One evening, {his} {elder} [had a cough|was ill in bed|had lost {ehis} warm shawl outside]. "[{Need}|Oh dear. {need}]," said {his} {elder}, "but it is already dark outside."
    {h} looked at the black window. {He} looked at {his} {elder}. "I will go," {he} said in a very small voice.
    ? {@breath}
    "Take your time," said {his} {elder}. "The dark is only the day with its eyes closed."
    / "Remember," said {his} {elder}, "the dark has nothing in it that was not there in the light."
    --
    Outside it was as black as [ink|a stove]. Something went [hoo, hoo|hush, hush|tap, tap|creak, creak]. {h} stood still. [Then {he} listened more carefully.|"What are you?" {he} whispered.] It was only {sound}.
    A little further on, {he} saw a tall thin shape with [long arms|crooked fingers|a pointed hat]. {h} wanted to run. But {he} remembered the words of {his} {elder}, and {he} [took one step closer|reached out and touched it]. It was only {shape}!
    ? "[You are not scary at all|I know you]," said {h}, and {he} had to laugh.
    ? {@night}
    And then {he} looked up. [Above {him} were more stars than {he} had ever seen.|The whole sky was full of stars.] [{He} had hidden under {his} blanket every night, and {he} had never known.|They had been there every night, and {he} had missed them all.] "Oh!" said {h}.
    --
    {He} {fetched}, and {he} walked home slowly, because there was so much to see. [Fireflies blinked in the grass.|A moth as white as paper flew by.|A hedge rustled, and {he} said good evening to it.|The night smelled sweet and cool.]
    "[You were gone a long time|There you are]," said {his} {elder}. "Were you afraid?" "[At first|Only in the beginning]," said {h}. "[Then I met the dark, and it was friendly.|Then I saw the stars.]"
    ~~
    From then on, {h} [did not need three candles any more|left the curtain open every night|was not afraid of the dark any more]. [Before {he} went to sleep, {he} looked out of the window and counted the stars|Every evening {he} said good night to the stars], and {he} never got further than [twenty|thirty|forty-two] before {he} slept.
    / That night {h} left the curtain open. {He} lay in bed and counted the stars, and {he} was asleep before {he} came to twenty.
    """,
    """
    What was {h} afraid of?=>{h} was afraid of the dark.
    Why did {h} go out at night?=>{He} went out to help {his} {elder}.
    What did {h} see in the sky?=>{He} saw more stars than ever before.
    What was the scary shape?=>It was only {shape}.
    How does it end?=>{h} learns that the dark is friendly and counts the stars every night.
    """,
    where=("forest", "meadow", "farm", "village", "mountain", "garden", "river"), ban="swim fly night creature", not_traits="brave", themes=("bedtime", "courage", "night"),
    picks={"notafraid": ["thunder", "big dogs", "high walls", "cold water", "deep holes", "strangers", "geese"],
           "need fetched": ["I need some mint from the garden for my tea // picked the mint", "I need a jug of water from {water} // filled the jug",
                            "I need a few herbs that grow near {near} // picked the herbs", "I need the warm shawl that I left near {near} // found the shawl",
                            "I need the honey that {w} has kept for me // got the honey from {wise}"],
           "sound": ["the wind in the leaves", "a loose board in the wind", "a branch against a fence", "a sleepy bird", "a frog by {water}", "water dripping into a bucket"],
           "shape": ["a scarecrow", "an old broom against a wall", "a young tree", "a coat on a fence post", "a bush with two dry branches", "a pump with a long handle"]})

Frame(
    "afraid_water",
    ["a {kind} who was afraid of water", "learning to swim", "{h} who learned to swim", "a {trait} {kind} who could not swim"],
    ["{h} Learns to Swim", "One Toe First", "{h} and the Water"],
    """
    {@open}
    ? {@about}
    On hot days, everybody went down to {water}. {ff} [splashed|jumped in with a shout|paddled round and round], and {oo} [dived for pebbles|floated on {ohis} back|raced against the leaves]. But {h} sat on the bank and [pretended to read|built little towers of mud|said that {he} had a cold].
    "[Come in!|Come on, {h}!|It is lovely!]" called {f}. "[I am not hot|Not today|I have no time]," said {h}. But the truth was that {h} was afraid of the water.
    ? {@sense}
    --
    [One night|That night] {he} told {e}. "[Everyone can do it but me|I am the only one who cannot swim|The water looks so deep]," said {h}.
    "[You do not have to swim the whole {wbody}|Nobody learns it in one day]," said {his} {elder}. "[Put in one toe. Tomorrow, put in two.|Only do one small thing every day.]"
    So [on the first day|the next morning], when nobody was there, {h} put in one [toe|foot]. [It was cold!|Brrr!] {He} [jumped back|squeaked] and ran home. But {he} had done it.
    On the second day {he} went in up to {his} knees. On the third day {he} went in up to {his} tummy. [A small fish came to look at {him}.|The water tickled.|It was not so cold any more.] On the fourth day {he} [put {his} face in and blew bubbles|held on to a log and kicked]. "[Ha!|I did it!|Look at me!]" {he} said to {the_fish}.
    --
    On the fifth day, {o} came running. "Help! {f}'s {toy} is floating away!" It was [already far from the bank|caught on a branch in the water|turning slowly round and round, just out of reach], and {f} [had a bandage on {fhis} leg|was ill with a cold|had hurt {fhis} foot] and could not swim.
    {@breath} [One toe, two toes, knees, tummy.|"One small thing," {he} told {himself}, "and then one more."] {He} let go of the bank, and {he} kicked, [just as {he} had kicked with the log|just as {he} had practised]. [Splash, splash, splash!|One stroke, two strokes, three strokes.] The water held {him} up! {He} [caught the {toy}|pushed the {toy} in front of {him}] and came back to the bank, [dripping|wet from head to foot|out of breath] and proud.
    ? {@happy}
    "You can swim! [Since when?|Since when can you swim?]" cried {f}. "Since one toe ago," said {h}.
    / Everybody cheered. "[Who taught you to swim?|When did you learn that?]" asked {f}. "A little every day," said {h}.
    --
    After that, on hot days, {h} was always [the first one in the water|the last one to come out]. And when [a very small one|someone new] sat on the bank and [pretended to have a cold|looked at the water with big eyes], {h} sat down beside them and said, "Shall we start with one toe?"
    """,
    """
    What was {h} afraid of?=>{He} was afraid of the water.
    How did {h} learn to swim?=>{He} did one small thing every day, and began with one toe.
    What was floating away?=>{f}'s {toy} was floating away.
    How does it end?=>{h} swims out and brings back the {toy}.
    """,
    where=("river", "meadow", "farm", "forest"), ban="swim fly big slow small made creature hoof", friend_ban="fly small", not_traits="brave honest", themes=("courage", "summer", "swimming"),
    picks={"toy": ["boat", "straw hat", "ball", "basket", "drum", "little raft"], "the_fish": ["a passing dragonfly", "the small fish", "a water beetle", "nobody at all"],
           "wbody": ["way", "way across", "long way"]})

Frame(
    "seed",
    ["a seed", "{h} and the seed", "a {kind} who planted a seed", "a garden", "being patient", "a seed that would not grow"],
    ["{h} and the Seed", "The Slow Seed", "Something Green"],
    """
    {@open}
    ? {@about}
    ? {@likes}
    ~~
    One spring day, [{wisethe} gave {him} a seed|{h} found a seed on {path}]. It was [small and brown|round and grey|no bigger than a crumb]. "[What will it be?|What is in it?]" {h} asked {wise}. "[You will see|Wait and see|That is its secret]," said {wisethe}. "[Give it earth, water, sun and time. Time is the hardest.|It needs water, light, and most of all patience.]"
    {h} planted the seed near {near}. {He} gave it water, and {he} sat down and waited. [Nothing happened.|The earth just lay there.|{He} waited until lunch. Nothing!]
    --
    The next day {he} [sang to it|told it a joke|read it a story|danced around it]. Nothing. The day after that, {he} [dug it up to see whether it was growing|shouted at it]. "[Do not do that!|Oh no!]" laughed {ff}. "[How would you like to be pulled out of bed?|It is asleep down there. Let it be.]" So {h} [tucked it in again|covered it with earth again] and said sorry.
    ? {@rain}
    A week went by, and then another. [{f} had planted lettuce, and {f} was already eating it.|The others stopped asking about the seed.|"Perhaps it is only a stone," said {oo}.] {h} was sad, but every morning {he} carried water from {water}, [one little can at a time|and {he} never missed a day].
    --
    Then, one morning, there was a crack in the earth, and in the crack was something green, [no bigger than a whisker|as thin as a thread|curled like a tiny tail].
    "[It is here!|It is awake!|Hello!]" [whispered|cried] {h}. {@happy}
    After that it grew and grew. [It grew as high as {his} knee, and then as high as {his} head.|Every day it was a little taller.] In summer it opened, and it was {plant}
    --
    [Everyone came to see.|The neighbours came from near and far.] {h} {shared}.
    [And in autumn|When the leaves began to fall], {he} found new seeds, [a whole handful|one for every friend]. {He} gave one to {f} and one to {o}. "What will it be?" asked {o}. {h} smiled. "[Wait and see|You will see]," {he} said. "Time is the hardest."
    / And when autumn came, {h} put one new seed in {his} pocket. {He} was not in a hurry any more.
    """,
    """
    Who gave advice to {h}?=>{wise} told {him} to give the seed water, light and time.
    What did the seed become?=>It became {plantname}.
    Where did {h} plant the seed?=>{He} planted it near {near}.
    How does it end?=>The seed grows into {plantname}, and {h} learns to be patient.
    """,
    where=GREEN, ban="swim fly creature", not_traits="patient careful", themes=("gardens", "patience", "spring"), weight=1.2,
    picks={"plant plantname shared": [
        "a sunflower, [as big as a plate|with a face like the sun|so bright that the bees came from far away]. // a sunflower // let the bees drink, and {he} gave the little birds the seeds that fell",
        "a pumpkin plant, with a pumpkin [as big as a chair|so round and orange that it looked like a fallen sun]. // a pumpkin plant // made soup for everyone, and there was still pumpkin left",
        "a rose bush, [with roses as red as a sunset|covered in pale pink roses]. // a rose bush // gave the first rose to {e}",
        "a bean plant, [so tall that it looked over the roof|with a hundred white flowers and then a hundred pods]. // a bean plant // cooked beans for everyone, and nobody went home hungry",
        "a strawberry plant, [full of red berries|with berries as red as little lamps]. // a strawberry plant // shared the berries, two for each",
        "a tall blue flower [that nobody had ever seen before|that opened only in the evening and smelled of honey]. // a tall blue flower // sat with {his} friends in its sweet smell every evening",
        "a melon plant, with melons [as round as the moon|heavy and sweet]. // a melon plant // cut the biggest melon into slices, and everyone had a sticky chin"]})

Frame(
    "forgotten_birthday",
    ["a birthday", "{h}'s birthday", "a surprise party", "a {kind} whose friends forgot {his} birthday", "a birthday surprise"],
    ["{h}'s Birthday", "The Forgotten Birthday", "Surprise!"],
    """
    {@open}
    ? {@about}
    ? {@likes}
    One {morning} morning {h} woke up with a tickle in {his} tummy. It was {his} birthday! {He} [washed {his} face twice|put on {his} best scarf|brushed {himself} until {he} shone] and went outside.
    / {h} had counted the days, and now it had come at last: {his} birthday. {He} jumped out of bed and ran outside.
    --
    By {near} {he} met {ff}. "[Good morning, {f}!|Hello, {f}!] [Do you know what day it is?|It is a special day, is it not?]" asked {h}. "[Tuesday, I think|Is it washing day?|A very busy day]," said {f}, and hurried away [with a basket under {fhis} arm|with something under a cloth].
    By {near2} {he} met {oo}. "[Is there anything you want to say to me?|Do you know what day it is?]" asked {h}. "[Yes! Your shoe is dirty|Yes, mind the puddle|Yes, it looks like rain]," said {o}, and {ohe} was gone.
    Even {e} only said, "[Not now, dear|I am busy today, my dear]," and shut the kitchen door.
    ? {@sad}
    --
    {h} went to {near3} and sat there all alone. "[They have all forgotten|Nobody remembered]," {he} thought. [{He} drew a little cake in the dust with a stick and blew on it.|{He} sang the birthday song to {himself}, very quietly.]
    ? {@sense}
    [When the sun went down|As it was getting dark], {he} walked slowly home. [There was no light in the window.|Everything was dark and quiet.] {He} opened the door...
    ~~
    "Surprise!" There were [lights everywhere|paper lanterns everywhere|candles on every shelf]. There was {f}, there was {o}, and there was {e} with {cake}. [On the wall hung a sign that said HAPPY BIRTHDAY {hup}.|Everybody was wearing a paper hat.]
    "[But I thought that you had all forgotten|You did not forget]," said {h}[, and {he} laughed and cried at the same time|].
    "[Forget? We have been getting ready for a week|How could we forget you?]," said {f}. "[It is very hard to keep a secret from you|I nearly told you this morning, so I had to run away]."
    --
    {h} got {present} from {f}, and {o} had made {present2}. They [played games|danced|sang] until [the candles were small|the moon was high|even the table was tired].
    Before bed, {h} said, "[This morning I thought it was the worst birthday ever.|I was so sad today.] Now it is the best." And {he} [fell asleep with {his} paper hat on|saved the last piece of cake for breakfast].
    / {@bed} It was the best birthday of all.
    """,
    """
    What day was it?=>It was {h}'s birthday.
    Why was {h} sad?=>{He} thought that everyone had forgotten {his} birthday.
    What did {f} give to {h}?=>{f} gave {him} {present}.
    How does it end?=>There is a surprise party, and {h} is very happy.
    """,
    where=("forest", "meadow", "farm", "village", "mountain", "town", "garden", "seaside"), ban="swim fly", themes=("birthdays", "surprises", "friendship"),
    picks={"cake": ["a cake with [five|six|seven] candles", "the biggest cake {h} had ever seen", "a tall cake with cherries on top", "a honey cake as big as a wheel"],
           "present": ["a red kite", "a little drum", "a wooden boat", "a warm scarf", "a box of paints", "a silver whistle", "a bag of marbles"],
           "present2": ["a poem", "a crown of flowers", "a song", "a cushion full of soft feathers", "a jar of jam", "a picture of all of them together"]},
    prepare=lambda w: w.__setitem__("hup", w["h"].upper()))

Frame(
    "grumpy_neighbour",
    ["a grumpy neighbour", "{h} and the grumpy {okind}", "a {kind} who was kind to a grumpy {okind}", "kindness", "a {trait} {kind} and a grumpy old {okind}"],
    ["The Grumpy Neighbour", "{h} and the Grumpy {Okind}", "A Good Morning a Day"],
    """
    {@open}
    ? {@about}
    Near {near} lived {a_old}, and {ohe} was the grumpiest {oword} [for miles around|in the whole world, or so people said]. {Ohis} name was {o}. When anyone laughed, {ohe} [banged {ohis} window shut|shouted, "Be quiet!"|grumbled, "Noise, noise, noise!"].
    [Everyone went the long way round|Everyone tiptoed past {ohis} door]. But every morning {h} said, "Good morning, {o}!" And every morning {o} said, "[Hmpf!|Humph!|What is good about it?]"
    ? "[Why do you bother?|Why do you always say it?]" asked {ff}. "[Perhaps tomorrow {ohe} will say it back|A good morning costs nothing]," said {h}.
    --
    One day {o}'s door stayed shut. There was no smoke, no grumbling, [not even a hmpf|not a sound]. {h} [stopped|stood still]. "Good morning, {o}?" Nobody answered.
    "[Good|How nice and quiet]," said {ff}. But {h} was worried. {He} knocked, and {he} went in.
    There lay {o} in bed, with [a red nose and a hot head|a sore throat and cold feet|a swollen foot]. "[Go away|Leave me alone]," {ohe} croaked[, but {ohe} did not sound grumpy. {Ohe} only sounded tired|].
    ~~
    {h} did not go away. {He} [lit the fire|opened the curtains] and cooked {soup}. {He} [fetched fresh water from {water}|shook the pillow], and {he} {did}. {f} [looked in at the door, and then {fhe} came in to help|came to help too, even though {fhe} was a little afraid].
    "Why are you so kind to me?" asked {o}. "[I have never once said good morning to you.|I am always grumpy.]" "[You never said it out loud|Perhaps you were saving it]," said {h}.
    ? {@silence}
    --
    Then {o} told them [something that {ohe} had never told anyone|a long story]. Many years ago {ohe} had had {lost}. "[After that, all laughing hurt my ears|Since then I have been alone, and it made me grumpy]," said {o}. "[I think I forgot how to be anything else.|One day turned into a year, and a year turned into ten.]"
    "[Then you must practise|It is not too late to begin again]," said {h}. "[We will come every day|Tomorrow we will bring cake]."
    ~~
    [The next week|A few days later], {h} came down {path} and opened {his} mouth to say good morning. But somebody was faster. "Good morning, {h}!" called {o} from the window, [and {ohe} was smiling, a little crookedly, because {ohe} was out of practice|and waved {ohis} hat].
    ? After that, nobody went the long way round any more.
    "[What a good morning|It is a good morning]," said {h}, and it was.
    """,
    """
    Who was the grumpy neighbour?=>It was {o}, {a_old}.
    What did {h} cook?=>{He} cooked {soup}.
    Why was {o} so grumpy?=>{Ohe} had lost {lostshort} and had been alone ever since.
    How does it end?=>{o} gets well, stops being grumpy, and says good morning to {h}.
    """,
    where=("forest", "meadow", "farm", "village", "mountain", "town", "garden", "river"), ban="swim fly", friend_ban="fly swim", themes=("kindness", "neighbours"),
    picks={"soup": ["carrot soup", "onion soup", "a pot of warm soup", "potato soup", "hot porridge", "mushroom soup", "nettle soup"],
           "did": ["sat by the bed and told {ohim} a story", "sang {ohim} a quiet song", "told {ohim} all the news", "read to {ohim} until it was dark"],
           "lost lostshort": ["a good friend, who had gone away over the sea // a good friend", "a brother, who had moved far away // {ohis} brother",
                              "a dear friend, and they had quarrelled over something silly // {ohis} friend"]},
    prepare=lambda w: (w.__setitem__("a_old", ("an old man" if w["ohe"] == "he" else "an old woman") if w.child else "an old " + w["okind"]),
                       w.__setitem__("oword", ("man" if w["ohe"] == "he" else "woman") if w.child else w["okind"]),
                       w.__setitem__("okind", w["oword"])))
