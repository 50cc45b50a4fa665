"""Frames with heroes of their own kind: ghosts, princesses, penguins, whales, pencils."""

from tools.demo.frames import GREEN, TEMPERATE, Frame, as_hero

Frame(
    "little_ghost",
    ["a little ghost", "a ghost who was afraid", "{name} the ghost", "a friendly ghost", "a ghost in an old house"],
    ["{name} the Little Ghost", "The Friendly Ghost"],
    """
    [Once upon a time, in {house}, there lived a little ghost named {name}.|In {house} lived a little ghost, and his name was {name}.|There was once a little ghost called {name}, who lived in {house}.]
    [He was as white as flour and as light as a feather.|He was so thin that the moon shone through him.] But there was one thing that {name} could not do: he could not frighten anybody. When he said "Boo," [people said, "Bless you."|it sounded like a sneeze.]
    "[What kind of ghost are you?|You are a shame to all ghosts]," said the [old clock|picture on the wall]. {name} [sighed and went up to the attic|hid behind the curtain].
    --
    One night {someone} came to the house. {Why} {name} floated down the stairs. [He wanted to try once more.|"Now or never," he thought.] He took a deep breath. Then he saw {sosad}.
    [He forgot to say "Boo."|The "Boo" stuck in his throat.] Instead he said, very softly, "[Can I help you?|Is something wrong?]"
    ? {@spirit}
    "[Are you a ghost?|You are a ghost!]" asked {someone2}. "[Yes, but not a good one|Only a small one]," said {name}. "[You look like a very good one to me|I am glad that somebody is here]," said {someone2}.
    ~~
    {Helped}
    --
    [From that night on, {name} had a new job.|After that, word got round.] Whenever somebody [was lost or lonely|could not find the way] in the dark, {name} came floating along, as bright as a little lamp, and took them by the hand. [And when he said "Boo," they laughed, and that was just what he wanted.|He never frightened anybody in all his life. And he was the best-loved ghost in the land.]
    """,
    """
    What was the ghost's name?=>The ghost's name was {name}.
    What could {name} not do?=>He could not frighten anybody.
    Where did {name} live?=>He lived in {house}.
    How does it end?=>{name} helps people in the dark instead of frightening them.
    """,
    where=("village",), hero="child", themes=("ghosts", "kindness"), weight=1.2,
    picks={"name": ["Wisp", "Hush", "Flimsy", "Pale Paul", "Mist", "Little Boo", "Sheet", "Whoops"],
           "house": ["an old house on a hill", "a castle with broken windows", "an empty mill", "an old house at the end of the lane"],
           "someone someone2 why sosad helped": [
               "a girl with a lantern // the girl // Her lantern had gone out in the rain, and she had lost her way. // that the girl was crying // He shone as brightly as he could, and went ahead of her, down the hill and along the road, until they saw the lights of her home.",
               "a boy with a blanket // the boy // He had moved in that day, and he could not sleep in the strange new house. // that the boy was holding on to his blanket very tightly // He showed the boy every creaking stair and every rattling door, until the house was not strange any more, and then he sang him to sleep.",
               "an old man with a stick // the old man // He had lived there as a child, and he was looking for something. // that the old man's eyes were wet // \"I lost my tin drum here, seventy years ago,\" said the old man. {name} knew every corner of the house. He floated through the wall, and there, behind the chimney, lay the drum.",
               "a kitten with wet paws // the kitten // It had run away from a thunderstorm. // that the kitten was trembling all over // He wrapped himself around the kitten like a blanket and hummed, until the storm was over and it had fallen asleep."]},
    prepare=lambda w: as_hero(w, "ghost", "he", "in " + w["house"]))

Frame(
    "blank_book",
    ["a book", "{h} and the empty book", "a book without words", "writing a story"],
    ["The Empty Book", "{h} Writes a Story"],
    """
    {@open}
    ? {@about}
    One day {wise} gave {him} a book. It had a {colour} cover, and it was thick and heavy. But when {h} opened it, [all the pages were empty|there was not one word in it]. "[There is nothing in it!|It is empty!]" said {h}. "[Not yet|It is waiting]," said {wisethe}, and smiled.
    {h} sat down with a pen. {He} wrote, "Once upon a time," and then {he} did not know how to go on. [{He} chewed the pen.|{He} looked at the page, and the page looked at {him}.] "[Nothing ever happens to me|I have nothing to tell]," {he} said, and {he} went out for a walk.
    --
    Outside, {saw1}. A little further on, {saw2}. And by {near}, {saw3}. [It was only an ordinary walk.|Then it was time to go home.]
    ? {@sense}
    "[What did you see?|Did anything happen?]" asked {ff}, who was waiting at the door. "[Nothing|Not much]," said {h}. "Only that {saw1}." "[And then?|Go on]," said {f}. "And {saw2}," said {h}. "And then?" "And then {saw3}." {f}'s eyes [were as round as plates|shone]. "[That is a wonderful story|And you say that nothing happened]!" said {f}.
    ~~
    {h} [ran to the book|opened the book again] and wrote it all down, and this time {he} knew how to go on.
    [Every day {he} wrote one page. When the book was full, it was the most beautiful book in the world, because everything in it was true.|And at the end of the page {he} wrote, "To be continued tomorrow." And it was.]
    """,
    """
    What did {wise} give to {h}?=>{wisethe} gave {him} a book with empty pages.
    Why could {h} not write at first?=>{He} thought that {he} had nothing to tell.
    How does it end?=>{h} writes down what {he} saw on {his} walk, and it is a good story.
    """,
    where=TEMPERATE, ban="swim fly creature hoof", friend_ban="swim fly", themes=("books", "stories", "writing"), weight=1.2,
    picks={"saw1": ["a snail was carrying a rose petal on its back", "two sparrows were quarrelling over one straw", "the wind was chasing a paper bag", "a spider was washing its web with dew"],
           "saw2": ["an old dog was teaching a young dog to yawn", "a cloud was shaped like a whale, and a small cloud followed it like a calf", "a beetle was waiting politely for a line of ants to pass", "somebody had put a hat on the scarecrow's broom"],
           "saw3": ["a frog was sitting on a stone and practising one note, over and over", "a mouse was sleeping in an old boot, with its tail hanging out", "a leaf was dancing all alone", "a bee had fallen asleep in a flower"]})

Frame(
    "bear_winter",
    ["a bear cub who did not want to sleep", "winter sleep", "{h} who wanted to see the snow", "a {kind} who had never seen snow"],
    ["{h} Stays Awake", "{h} and the First Snow"],
    """
    {@open}
    ? {@about}
    In autumn, when the leaves fell, all the others of {his} family went to bed for the winter. "[Time to sleep|Come to bed]," said {his} {elder}. "[When you wake up, it will be spring|We will see each other in spring]." "[But I have never seen snow|But I want to see the snow]!" said {h}. "[Just once!|Everyone talks about it.]"
    "[Nobody of our family has ever seen it|You will not be able to stay awake]," said {his} {elder}, and yawned. Soon they were all snoring.
    --
    {h} [sat by the door|wrapped {himself} in a blanket] and waited. {He} [pinched {himself}|sang all the songs {he} knew|hopped on one leg], so as not to fall asleep. One day passed, and another. There was [rain, and wind, and more rain|only grey sky], but no snow. {His} eyes grew heavy. "{ff_c}," {he} called to {his} friend, who stayed awake in the winter. "[If I fall asleep, will you wake me when the snow comes?|Please wake me when it snows.]" "[I promise|I will]," said {f}. And {h} slept.
    ~~
    "[Wake up!|{h}! {h}!]" whispered a voice. "[It is here|It is snowing]!" {h} [rubbed {his} eyes|stumbled to the door]. And there it was. [Everything was white.|The whole world had a white blanket.] {@snowy} {He} held out {his} {hand}, and a snowflake sat down on it, [as fine as lace|like a tiny star].
    "[It is so quiet|Oh]," whispered {h}. They [threw snowballs|rolled down the hill|made tracks all around {near}] until {he} could not keep {his} eyes open any longer.
    --
    {f} [brought {him} home and tucked {him} in|led {him} back to bed]. And when spring came and the others woke up, {he} told them everything. "[You have dreamed it|That was only a dream]," said {his} {elder}. {h} smiled. [By {his} bed stood a jar with a little clear water in it.|On the door hung a small white feather and a note. "See you next winter," it said.]
    """,
    """
    What did {h} want to see?=>{He} wanted to see the snow.
    Who woke {h}?=>{f} woke {him} when the snow came.
    How does it end?=>{h} sees the snow and then sleeps until spring.
    """,
    where=("forest", "mountain", "meadow", "garden"), kinds=("bear cub", "hedgehog", "dormouse", "badger", "marmot", "chipmunk"), friend_ban="swim fly", themes=("winter", "snow", "sleep"), weight=1.2,
    prepare=lambda w: (w.__setitem__("ff_c", w["f"]), w.__setitem__("f", w["f"])))

Frame(
    "penguin_cold",
    ["a {kind} who was always cold", "a {kind} with cold feet", "{h} and the long scarf", "a warm scarf"],
    ["{h} and the Scarf", "The Longest Scarf"],
    """
    {@open}
    ? {@about}
    But {h} was always cold. "[You live in the snow|We are made for the cold]," said the others. "How can you be cold?" {h} [did not know|shivered]. {His} feet were cold, {his} nose was cold, and {his} tummy was cold, too.
    {He} tried {t1}. {He} was still cold. {He} tried {t2}. {He} was still cold.
    ? {@sense}
    --
    Then {he} found {wool} on the shore, which had fallen from a ship. {He} had an idea. {He} began to knit. {He} knitted by day and by the light of the moon, [click, clack, click|row after row], and the scarf grew longer and longer. At last {he} wound it around {himself}, once, twice, ten times. [It was warm.|Yes, it was a little warmer.] But only on the outside.
    ~~
    {ff} came by, trembling. "[I have never told anyone|Do not laugh]," said {f}, "but I am cold, too." {h} looked at {his} scarf. It was much longer than {he} needed. "[Come in|There is room]," {he} said, and wound one end of it around {f}. [Then {o} came, and {he} wound it around {o}, too.|And then {o} came, and there was room for {ohim} as well.]
    There they stood, all three in one scarf, close together. And suddenly {h} noticed something. {His} feet were warm. {His} nose was warm. And {his} tummy was warmest of all.
    --
    "[It was not the wool that I needed|It is not only the scarf]," said {h}. "[It is having somebody in it with me|It is you]."
    And {he} knitted on. [By the end of the winter the scarf was so long that everybody had room in it.|It is said that the scarf is now so long that the whole land of ice fits into it.]
    """,
    """
    What was the matter with {h}?=>{He} was always cold.
    What did {h} knit?=>{He} knitted a very long scarf.
    How does it end?=>{h} shares the scarf with {his} friends, and then {he} is warm.
    """,
    where=("snow",), kinds=("penguin", "seal pup", "polar bear cub", "snow hare"), themes=("winter", "friendship", "sharing"), weight=1.0,
    picks={"wool": ["a big basket of red wool", "a chest full of blue wool", "a sack of yellow wool", "a barrel full of green wool"], "t1": ["running in circles", "hot soup", "jumping up and down"], "t2": ["two hats, one on top of the other", "sitting in the sun", "thinking of fire"]})

Frame(
    "first_howl",
    ["a {kind} who could not {sound}", "{h} and the big {sound}", "finding your own voice", "a {kind} with a very small voice"],
    ["{h} Finds a Voice", "The Big {Sound}"],
    """
    {@open}
    ? {@about}
    All the {kinds} could {sound}, so loudly that [the stones shook|one heard it three hills away]. Only {h} could not. When {he} tried, it came out as {squeak}. [The others rolled on the ground with laughter.|"Was that a mouse?" the others asked.]
    {h} [went away and sat down all alone|hid {his} face]. "[I will never be a real {kind}|I am not a real {kind} at all]," {he} said.
    ? {@sad}
    --
    One day {he} [was out with|went for a walk with] {oo}, who was still very small. {o} ran ahead to chase a butterfly, and suddenly {ohe} was gone. {h} heard {ohim} cry. {Trouble} [{h} looked round. There was nobody near.|Nobody was near enough to help.]
    {h} pulled. {He} could not do it alone. [{He} had to call for help, and it had to be loud.|The others were far away. Somebody had to call them.] {@breath} {He} did not think about how it would sound. {He} only thought of {o}. {He} opened {his} mouth.
    ~~
    And out came a {sound} [that shook the leaves from the trees|such as nobody had ever heard]. It rolled over {placethe}, [and the birds flew up|and the echo rolled back]. In no time they all came running, and together they pulled {o} out.
    --
    "[Who was that?|Who called so loudly?]" asked {his} {elder}. "[I think it was me|That was me]," said {h}, and {he} was as surprised as everybody else.
    [Nobody laughed at {him} after that.|"Where did you have it all this time?" asked {o}. "I suppose it was waiting until I needed it," said {h}.] [And when {he} is happy, it still sometimes comes out as {squeak}.|And in the evening {he} tried it once more, only for fun. It came out as {squeak}. {h} laughed. {He} knew where the other one was.]
    """,
    """
    What could {h} not do?=>{He} could not {sound}.
    Who needed help?=>{o} needed help.
    How does it end?=>{h} calls for help with a big {sound}, and {o} is saved.
    """,
    where=("savanna", "jungle", "mountain", "forest", "snow"), kinds=("lion cub", "tiger cub", "wolf cub", "bear cub", "polar bear cub"), themes=("courage", "being different"), weight=1.2,
    picks={"squeak": ["a small squeak", "a sneeze", "a tiny peep", "a hiccup"], "trouble": ["{Ohe} had fallen into a deep hole.", "{Ohe} was stuck in the mud up to {ohis} chin.", "{Ohis} foot was caught under a heavy root."]},
    prepare=lambda w: (w.__setitem__("sound", {"wolf cub": "howl"}.get(w["kind"], "roar" if "lion" in w["kind"] or "tiger" in w["kind"] else "growl")), w.__setitem__("kinds", w["kind"] + "s")))

Frame(
    "beached_whale",
    ["a whale on the beach", "{h} and the whale", "a {kind} who saved a whale", "a whale"],
    ["{h} and the Whale", "The Whale on the Beach"],
    """
    {@open}
    ? {@about}
    One morning, after a night of wind, {h} ran down to the beach and stopped. There lay a whale, [as big as a house|like a grey hill in the sand]! The sea had gone out and left it behind. Its eye was open, and it looked at {him}. "[Help me|Water]," it [sighed|whispered].
    {h} pushed with all {his} strength. It was like pushing a mountain. [{He} pulled at its tail. Nothing moved.|Not one inch did it move.] "[I am too small|I cannot move you]," said {h}, "[but I will not leave you alone|but I will think of something]."
    --
    {He} ran to the village and rang the bell. Soon everybody came, with {tools}. "[We cannot lift it|No rope is strong enough]," they said. "[We do not have to|We only have to wait for the sea]," said {h}. "[The sea comes back in the evening. Until then we must keep it wet.|But it must not get dry until the water comes back.]"
    So they made a long line from the water to the whale, and passed the buckets from hand to hand. [All day long they worked.|The sun rose high, and nobody stopped.] {h} sat by the whale's eye, laid wet seaweed on its head, and told it stories of the sea.
    ? {@sense}
    ~~
    And in the evening the water came back. It licked at the tail, it rose around the sides, [higher and higher|wave after wave]. "[Now!|All together!]" cried {h}, and they pushed. The whale [moved|lifted its tail]. With one great splash, it was free!
    --
    It swam out, [turned round once|blew a fountain as high as a tower], and sang. [It was a song so deep that they felt it in their feet.|Nobody had ever heard such a song.]
    [Every year on that day, the whale comes back and sings, and everyone stands on the beach and waves.|And since then, when the boats go out, a big grey back swims beside them and shows them the way past the rocks.]
    """,
    """
    What did {h} find on the beach?=>{He} found a whale.
    How did they help the whale?=>They kept it wet with buckets of water until the sea came back.
    How does it end?=>The sea comes back, and the whale swims away and sings.
    """,
    where=("seaside",), hero="child", themes=("whales", "the sea", "helping"), weight=0.9,
    picks={"tools": ["ropes and boards", "shovels and carts", "ropes and horses"]})

Frame(
    "new_baby",
    ["a new baby", "{h} and the new baby", "a {kind} with a new little {sib}", "a big {bigsib}", "a baby {sib}"],
    ["{h} and the Baby", "The New Baby"],
    """
    {@open}
    ? {@about}
    There was a new baby in the house. It was {h}'s little {sib}, and everybody stood around the cradle and said, "[How sweet!|How tiny!]" Nobody [looked at {h}|had time for {h}]. "[Hush, the baby is asleep|Not now, the baby is hungry]," they said [all day long|again and again].
    {h} looked into the cradle. The baby was red and wrinkled, and it could not do anything. "[It cannot even play|I do not see what it is good for]," said {h}. [{He} packed {his} bag and moved out, as far as {near}.|{He} went and sat down by {near}, and nobody noticed.]
    ? {@sense}
    --
    Then the baby began to cry. [It cried so loudly that one could hear it at {near}.|{h} could hear it all the way out there.] They rocked it. It cried. They sang to it. It cried even more. {h} [put {his} {hands} over {his} ears|waited]. Then {he} sighed and went back in.
    "[What is the matter?|Can I try?]" {he} asked. {He} bent over the cradle and {did}. The baby stopped. It looked at {him} with big eyes. {He} {did} again. And the baby [smiled|laughed]! It was its very first [smile|laugh].
    ~~
    "[How did you do that?|It has never done that before]," said {his} {elder}. "[It likes me|We understand each other]," said {h}. The baby held {his} [finger|thumb] and would not let go.
    [That evening {h} unpacked {his} bag again.|{h} did not want to move out any more.] "[You cannot do anything yet|You are very small]," {he} whispered into the cradle. "[But I will show you everything|You are lucky that you have me]."
    """,
    """
    Who was new in the house?=>There was a new baby, {h}'s little {sib}.
    Why was {h} sad?=>Nobody had time for {him}.
    How does it end?=>{h} makes the baby smile, and {he} is glad to have a little {sib}.
    """,
    where=TEMPERATE, hero="child", themes=("family", "babies"), weight=1.0,
    picks={"sib": ["brother", "sister"], "did": ["made the face of a fish", "wiggled {his} ears", "said \"bloop\" very softly", "blew up {his} cheeks and let the air out with a pop", "put a sock on {his} nose"]},
    prepare=lambda w: w.__setitem__("bigsib", "brother" if w["he"] == "he" else "sister"))

Frame(
    "royal_garden",
    ["a {kind} who wanted to be a gardener", "a {kind}", "{Kind} {h}", "a {kind} with muddy hands", "a castle"],
    ["{h} and the Muddy Boots", "The {Kind} in the Garden"],
    """
    {@open}
    ? {@about}
    Every day there were lessons in [bowing|sitting still] and in [waving|walking slowly]. But {h} wanted to {wish}. "[A {kind} does not do that|That is not for a {kind}]," said the royal teacher, who had a very long nose. "[Think of your clean shoes!|What would people say?]"
    So {h} did it in secret. Every morning, before the castle woke up, {he} climbed out of the window in a pair of old boots. {Secret}
    --
    One day the king and queen of the next country came to visit. They were very grand and very bored. [They yawned at the dinner. They yawned at the dance.|Nothing pleased them.] "[Have you nothing interesting here?|Is there nothing new in this castle?]" they asked. The royal teacher turned pale.
    ~~
    {h} [looked at {his} boots|took a deep breath]. "[I have something|Come with me]," {he} said. And {he} showed them {showed}. [The queen forgot to yawn.|The king opened his eyes for the first time that day.] "[May I try that?|Is it difficult?]" asked the king. [He took off his crown|He rolled up his velvet sleeves], and soon {royal}.
    ? Even the royal teacher took off his shoes.
    --
    "[That was the best visit of my life|We have not laughed like this for years]," said the queen, with shining eyes.
    From that day on, there was a new lesson in the castle. [It was on Mondays, and {h} was the teacher.|It was called "Muddy Boots," and {h} taught it.] [The waving was cancelled.|And everybody was allowed to come, not only kings.]
    """,
    """
    What did {h} want to do?=>{He} wanted to {wish}.
    Who came to visit?=>The king and queen of the next country came to visit.
    How does it end?=>{h} shows the king and queen what {he} can do, and they love it.
    """,
    where=("village", "mountain"), hero="creature", kinds=("prince", "princess"), themes=("princes and princesses", "castles", "gardens"), weight=1.4,
    picks={"wish secret showed royal": [
        "grow vegetables // Behind the stables {he} had a garden, with beans, carrots and one enormous pumpkin. // {his} beans, {his} carrots and the enormous pumpkin // the king was pulling carrots and the queen was chasing a snail",
        "bake bread // In the old kitchen {he} kneaded the dough, and the cook, who was {his} friend, kept the secret. // how to knead the dough and make little birds out of it // the king had flour in his beard and the queen had made a whole flock of birds",
        "look after pigs // Behind the mill there were nine piglets, and {he} knew each of them by name. // the nine piglets, who were just having their bath // the king was scratching a piglet behind the ears and the queen was laughing out loud",
        "build boats // Down by the pond {he} had built a boat out of an old door, with a tablecloth for a sail. // the boat that {he} had built out of an old door // the king was rowing and the queen was singing a sailor's song"]})

Frame(
    "fox_rabbit_well",
    ["a {kind} in a deep hole", "two who did not trust each other", "{h} and {f} in the hole", "old enemies who became friends"],
    ["Two in a Hole", "{h}, {f} and the Deep Hole"],
    """
    {@open}
    ? {@about}
    {h} did not like {ff}. {f} did not like {h}, either. [Nobody knew how it had begun.|It had always been like that.] When they met on {path}, {h} looked to the left and {f} looked to the right.
    One {fog} day they both walked along {path}, {h} looking to the left and {f} looking to the right. So neither of them saw the hole. [Bump! Bump!|Plump! Plump!] There they both sat, at the bottom.
    --
    "[This is your fault!|You should have looked!]" said {h}. "[No, yours!|Me? What about you?]" said {f}. {h} jumped as high as {he} could. It was not high enough. {f} jumped. It was not high enough, either. [They sat down, each in a corner, and said nothing for an hour.|Then they sat back to back and did not say a word.]
    ? {@sense}
    It grew [dark and cold|late]. {h} heard a sound. It was {f}'s teeth, [chattering|clicking with cold]. {h} [looked at {his} scarf. It was long enough for two.|had half a bun in {his} pocket. {He} broke it in two.] "[Here|Take it]," {he} said. "[Thank you|That is kind of you]," said {f}, after a while.
    ~~
    "[If I stood on your shoulders|If you stood on my shoulders], could one of us reach the edge?" said {f}. "[And the other one?|Then one would still be down here]," said {h}. "[We would have to trust each other|The one who is up has to come back with a rope]," said {f}. They looked at each other for a long time. Then {h} made {his} back straight, and {f} climbed up on {him} and out.
    --
    It was quiet. {h} waited. [{He} counted to a hundred.|Had {f} gone home?] {@breath} Then something fell down beside {him}. It was the end of a rope.
    [They walked home together, and they talked all the way.|"You came back," said {h}. "Of course," said {f}. "You have the other half of the bun."] And after that, when they met on {path}, they looked straight ahead, and said good morning, and laughed.
    """,
    """
    Where did they fall?=>They fell into a deep hole.
    How did they get out?=>{f} climbed on {h}'s shoulders and came back with a rope.
    How does it end?=>{h} and {f} learn to trust each other.
    """,
    where=("forest", "meadow", "farm", "mountain", "village"), ban="swim fly creature big hoof", friend_ban="swim fly big hoof", themes=("trust", "friendship"), weight=1.1, picks={"fog": ["foggy", "grey", "misty"]})

Frame(
    "cat_home",
    ["a lost cat", "a cat who found a home", "{name} the cat", "a street cat", "finding a home"],
    ["{name} Finds a Home", "The Cat Without a Home"],
    """
    [Once upon a time there was a {ccol} cat named {name}, who had no home.|{name} was a {ccol} cat who lived in the street.|In a big town lived a {ccol} cat named {name}. She had no home.] She slept [under bridges|in boxes] and ate what she could find. "[I do not need anybody|I walk by myself]," she always said. But when it rained, she [looked up at the lighted windows|thought of a warm stove].
    One cold evening she {did1}. "[Shoo!|Go away!]" said {who1}. Then she {did2}. "[No cats here!|Out with you!]" said {who2}. {name} [shook the rain from her fur|held her tail high] and walked on.
    --
    In the last house of the street there was a light. An old {person} was sitting by the window, all alone, with two cups on the table. [One was always empty.|The second one was for somebody who had died long ago.] {name} sat down on the sill. The {oldp} [looked up|opened the window a little].
    "[It is raining|You are wet]," said the {oldp}. "I do not need anybody," said {name}. "[I do not need anybody, either|Neither do I]," said the {oldp}. [They looked at each other.|The rain ran down the window.] "But I happen to have [too much milk, and|a cup of milk and] a cushion that nobody uses," said the {oldp}.
    ~~
    {name} came in, only for a moment. She drank the milk, only because it was there. She sat down on the cushion, only to dry her fur. [And then she began to purr, and she could not stop.|The stove hummed, and {name} hummed, too.]
    --
    In the morning the rain had stopped. "[You may go now|The sun is out]," said the {oldp}, and looked away. "[Tomorrow, perhaps|Yes, I must be going]," said {name}, and [turned round on the cushion|put her head on her paws].
    [That was nine years ago. She still means to go tomorrow.|And so they went on, day after day, and neither of them needed anybody, and both of them were happy.]
    """,
    """
    What was the cat's name?=>The cat's name was {name}.
    Where did {name} find a home?=>She found a home in the last house of the street, with an old {oldp}.
    How does it end?=>{name} stays with the old {oldp}, and both of them are happy.
    """,
    where=("town",), hero="child", themes=("cats", "home", "loneliness"), weight=1.2,
    picks={"name": ["Soot", "Minka", "Tabby", "Smoke", "Mrs. Whisker", "Pepper", "Duchess", "Tatters", "Olive"], "ccol": ["grey", "black", "striped", "white", "ginger", "spotted"],
           "did1 who1": ["knocked at the butcher's door // the butcher", "crept into the bakery // the baker", "slipped into the inn // the cook"], "did2 who2": ["tried the toy shop // the shopkeeper", "went to the big house with the red door // the maid", "tried the station // the man with the whistle"],
           "person oldp": ["man // man", "woman // woman", "sailor // sailor", "teacher // teacher", "shoemaker // shoemaker"]},
    prepare=lambda w: as_hero(w, "cat", "she", "in a town"))

Frame(
    "pencil",
    ["a pencil", "a short pencil", "{name} the pencil", "a pencil who was almost used up"],
    ["The Short Pencil", "{name} the Pencil"],
    """
    [Once upon a time there was a {plain} pencil named {name}.|In a box of pencils lay a {plain} pencil named {name}.|There was once a {plain} pencil, and his name was {name}.] [When he was new, he had been the longest of all.|Once he had been long and proud.] But he had drawn so much that now he was no longer than a thumb.
    "[You will soon be gone|You are only a stub]," said the [long new pencils|ruler]. "[You should not have worked so hard|We stay in the box, and so we stay long and beautiful]." {name} [looked at his short legs|said nothing]. [Had it been worth it?|Perhaps they were right.]
    --
    That day {child} came to the box. [{Child2} was ill and had to stay in bed.|It was raining, and {child2} was not allowed to go out.] {Child2} looked at all the pencils and took {name}, because [he fitted so well into a small hand|he was just the right size].
    And {name} drew. He drew {draw1}. He drew {draw2}. And in the middle he drew {draw3}. [{Child2} laughed out loud.|{Child2} forgot the rain and the bed and everything.] [With every line {name} became a little shorter, and he did not mind at all.|And {name} grew shorter and shorter, and happier and happier.]
    ~~
    In the evening the picture was hung on the wall. In the box, {name} told the others about it. "[And what have you seen?|What did you do today?]" he asked. The long pencils were silent. [They had only seen the lid of the box from the inside.|"It was dark," said one of them at last.]
    --
    "[Does it hurt to get shorter?|What is it like?]" asked a long new pencil, very quietly. "[It tickles|It feels like telling a story]," said {name}. "[And you are not gone|Nothing is lost]. Look at the wall. [That is where I am now.|The rest of me is up there.]"
    [The next morning all the pencils pushed to the front.|And when the box was opened the next morning, the long new pencil called, "Me! Take me!"]
    """,
    """
    What was the pencil's name?=>The pencil's name was {name}.
    Why was {name} so short?=>He had drawn so much.
    What did {name} draw?=>He drew {draw1}, {draw2} and {draw3}.
    How does it end?=>{name} draws a picture, and the other pencils want to draw, too.
    """,
    where=("town",), hero="child", themes=("drawing", "giving"), weight=0.9,
    picks={"name": ["Stubby", "Scribble", "Mr. Lead", "Thumb", "Dash", "Smudge"], "child child2": ["a little girl // the girl", "a little boy // the boy"],
           "draw1": ["a ship with seven sails", "a castle on a cloud", "a mountain with a hat of snow"], "draw2": ["a giraffe in striped socks", "an elephant on a bicycle", "a whale with an umbrella"], "draw3": ["a house with smoke coming out of the chimney", "a sun with a smile", "a door through which one could go anywhere"]},
    prepare=lambda w: as_hero(w, "pencil", "he", "in a box of pencils"))

Frame(
    "fairy_light",
    ["a fairy", "a {kind} who lost {his} light", "{h} the {kind}", "a little {kind} and the dew drops"],
    ["{h} Loses {His2} Light", "{h} the {Kind}"],
    """
    {@open}
    ? {@about}
    {H_poss} work was to {work}. For this {he} had a little wand, and at its tip there was a light. But one evening the light went out. [{h} shook the wand.|{h} tapped it, and shook it.] Nothing.
    "[Without a light I am no good|Now I cannot do my work]," said {h}. {@think}
    --
    {He} flew to the stars to ask for a spark. "[We would like to help you, but we are too far away|You cannot reach us]," said the stars. {He} flew to the moon. "[My light is only borrowed from the sun|I cannot give away what is not mine]," said the moon. {He} flew to the fireflies. "[Our light only shines for us|We need it ourselves]," they said, [but they were sorry|and flew on].
    ? {@night}
    ~~
    Tired and sad, {h} sat down on a leaf. Beside {him} sat {small}, crying. "[What is the matter?|Why do you cry?]" asked {h}. "{sorrow}," said {small2}. {h} forgot about {his} light. {Comfort} {small2} [dried its tears|smiled].
    And at that moment it grew bright. [{h} looked around. Where did the light come from?|"Where does that come from?" asked {small2}.] It was the wand! It shone [more warmly than before|as golden as honey].
    --
    "[Now I understand|So that is how it is]," said {h}. "[It does not come from the stars or the moon. It comes from being kind.|I forgot to be kind, because I was so busy with my work.]"
    [Since then it has never gone out again.|And so {he} went back to work.] And if, early in the morning, {result}, then you know that {h} has been there.
    """,
    """
    What was {h}'s work?=>{H_poss} work was to {work}.
    What went out?=>The light of {his} wand went out.
    How does it end?=>{h} is kind to {small}, and the light shines again.
    """,
    where=("forest", "meadow", "garden"), hero="creature", kinds=("fairy",), themes=("fairies", "kindness", "light"), weight=1.3,
    picks={"work result": ["hang a drop of dew on every blade of grass // the grass is full of sparkling drops", "paint the edges of the petals // the flowers have fine red edges", "wake the flowers in the morning // all the flowers open at once", "put the sleepy bees to bed // a bee is still asleep in a flower"],
           "small small2 sorrow comfort": ["a tiny beetle // the beetle // I have lost my way home // {He} took the beetle by its foot and flew with it from leaf to leaf, until it saw its own front door.", "a small caterpillar // the caterpillar // Everyone says that I am ugly // \"I can see your wings already,\" said {h}. \"They are asleep inside you, and they are blue.\"",
                                           "a young snail // the snail // I am afraid of the dark // {He} sat down close beside the snail and told it the names of all the sounds, one after the other.", "a baby mouse // the mouse // My tail is cold // {He} wove a little sock of spider silk and put it over the end of the tail."]},
    prepare=lambda w: (w.__setitem__("h_poss", w["h"] + "'s"), w.__setitem__("his2", w["his"])))
