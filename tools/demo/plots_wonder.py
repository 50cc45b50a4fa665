"""Frames of wonder: dragons, robots, giants, stars, magic doors and spells."""

from tools.demo.frames import GREEN, Frame, as_hero

Frame(
    "dragon_cold",
    ["a dragon with a cold", "a dragon", "{h} the dragon", "a {trait} dragon", "dragons", "a dragon who could not stop sneezing"],
    ["The Dragon with a Cold", "{h} Sneezes", "{h} the Dragon"],
    """
    {@open}
    ? {@about}
    ? {@likes}
    One {morning} morning {h} woke up with a cold. {His} nose was red, {his} head was heavy, and then it began: a-a-a-choo! [A flame as long as a ladder|A great red flame] shot out of {his} nose and burned {burned}.
    "[Oh dear|Oh no]," said {h}. "I am so sorry!" A-choo! [And there went {burned2}.|This time it was {burned2}.]
    ? {@silence}
    --
    [The neighbours ran away.|Everyone ran and hid.] "[Put out that dragon!|Stay away from us until you are well!]" they called. {h} crept home. {He} [lay down with {his} nose against the wall|pulled a wet sack over {his} nose] and [felt very lonely|was sadder than ever].
    Only {f}, a {little2} {fkind}, [did not run away|came to the door]. "[You need looking after|Nobody should be ill alone]," said {f}. "I will make you well." "[But what if I sneeze?|I might burn you!]" said {h}. "[Then turn your head|Then I will duck]," said {f}.
    --
    {f} tried {cure1}. It did not help. {f} tried {cure2}. It did not help either. A-choo!
    ? "[Perhaps I will have this cold for ever|It is no use]," said {h} sadly.
    {Think2} "When I have a cold," {fhe} said, "{e2} gives me {cure3}. Dragons are big, so you need a lot of it."
    [So|And so] {f} went from house to house and told everyone how sorry {h} was. And one after the other, the neighbours [brought what they had|came out and helped]. They [filled|carried up] a whole {tub} of {cure3}, and {h} took it all.
    ~~
    {He} waited. {His} nose tickled. Everybody ducked. "A... a... ah," said {h}. "It is gone!"
    ? {@happy}
    --
    The next day {h} [mended what {he} had burned|built up again whatever {he} had burned]. And because a flame can be useful too, {he} {useful}.
    [Since that time|From then on], nobody ran away from {h}. And whenever {f} had a cold, a very big dragon sat beside {fhis} bed[ and held the spoon very carefully| and kept the tea warm].
    """,
    """
    What was the matter with the dragon?=>{h} had a cold and sneezed fire.
    What did the dragon burn?=>{He} burned {burned} and {burned2}.
    Who helped the dragon?=>{f}, a {fkind}, helped {him}.
    What made {h} well again?=>A whole {tub} of {cure3} made {him} well.
    How does it end?=>{h} gets well, mends what {he} burned, and has many friends.
    """,
    where=("mountain", "island"), hero="creature", kinds=("dragon",), friend_ban="big fly swim", themes=("dragons", "being ill", "kindness"), weight=1.6,
    picks={"burned burned2": ["the baker's sign // the mayor's hat", "a haystack // a garden fence", "the washing on the line // a wooden bench", "an old cart // two brooms", "a signpost // the flag on the tower"],
           "cure1 cure2": ["a wet towel // a very long scarf", "a hot bath // a lullaby", "cold water // a big yawn", "a pinch of salt // standing on one leg", "a blanket // twelve cushions"],
           "cure3": ["honey tea", "onion soup", "hot lemon juice", "thyme tea", "warm milk with honey", "chicken broth without the chicken"],
           "tub": ["bathtub", "barrel", "cart", "rain barrel"], "little2": ["small", "little", "brave little"],
           "e2": ["my grandmother", "my mother", "my father", "my aunt"], "think2": ["{f} thought and thought.", "{f} sat down and thought.", "Then {f} had an idea."],
           "useful": ["lit the lanterns for the summer feast", "baked bread for the whole valley with one warm breath", "dried everybody's washing on rainy days", "roasted chestnuts for everyone that evening", "heated the water so that everybody could have a warm bath"]})

Frame(
    "robot_dream",
    ["a robot who dreamed", "a robot", "{h} the robot", "a robot who wanted to {wish}", "a {trait} robot", "robots"],
    ["The Robot Who Dreamed", "{h} the Robot", "What {h} Wanted"],
    """
    {@open}
    {He} was made of [tin and copper|old kettles and clock wheels|grey steel with a blue light in front], and {he} could {work}. [All day long {he} worked.|Nobody worked harder.] "[Robots do not get tired|Robots do not wish for anything]," people said.
    But at night, when {he} [stood in the corner|was switched off], {h} had a dream. It was always the same dream: {he} wanted to {wish}.
    --
    "[Can a robot {wish}?|Could I {wish}?]" {he} asked {wise}. "[I have never heard of one|That is not what you were built for]," said {wisethe}[. "But who knows?"|, "but nobody has tried, either."]
    So {h} tried. {Try1}
    ? {@silence}
    "[Robots should stick to their work|How silly]," said [some people|the people], and they laughed. {h} [lowered {his} head|went home with slow steps]. [A drop of oil ran down {his} cheek.|{His} blue light went dim.|Something inside {him} squeaked sadly.]
    ~~
    That evening {ff} came to see {him}. "[Why do you try to do it the way we do it?|You are trying to do it like somebody else]," {f} said. "[You are a robot. Do it the robot way.|Try it in your own way.]"
    {@think} {Try2}
    --
    [People stopped in the street.|People came running from all sides.] [They did not laugh this time.|Nobody laughed now.] {Result}
    ? {@silence}
    "[How did you do that?|I have never seen anything so lovely]," said {wisethe}. "[I dreamed it first|I only had to find my own way]," said {h}.
    [And from then on, every evening after work,|From that day on, when work was done,] {h} {everyday}. And at night {he} stood in {his} corner and [dreamed of something new|had the sweetest dreams that a robot ever had].
    """,
    """
    What did the robot dream of?=>{h} dreamed that {he} could {wish}.
    What was {h}'s work?=>{He} could {work}.
    Who helped the robot?=>{f} told {him} to do it in {his} own way.
    How does it end?=>{h} finds {his} own way to {wish}, and everyone is happy.
    """,
    where=("town", "village", "farm"), hero="creature", kinds=("robot",), not_traits="merry playful restless", themes=("robots", "dreams"), weight=1.6,
    picks={"work": ["carry heavy boxes and sweep the yard", "wash a hundred plates a minute", "dig potatoes and count sacks", "mend roads and lift carts", "polish every window in the street"],
           "wish try1 try2 result everyday": [
               "sing // {He} opened {his} mouth and tried to sing like a bird. But all that came out was a screech, and the cats ran away. // {He} tapped on {his} tin chest, rattled {his} screws and hummed with {his} motor. It was a new kind of music, half drum and half bell. // First they tapped their feet, then they clapped, and then they danced until the lamps were lit. // made music in the square",
               "paint // {He} took a tiny brush and tried to paint a flower. But {his} iron hand was too strong, and the brush snapped. // {He} filled {his} oil can with paint and let it drip, drop by drop, a thousand drops a minute. // It was a whole meadow of flowers, made of nothing but little dots, and it seemed to shine. // painted one wall of the street",
               "dance // {He} tried to hop like a dancer. But {he} was so heavy that the floor broke, and {he} got stuck to {his} knees. // {He} went outside, stood on {his} one good wheel, stretched out {his} arms and began to spin, slowly at first, and then like a silver top. // The sun flashed on {him} in all directions, and everyone held their breath. // danced by the fountain",
               "grow flowers // {He} pushed seeds into a pot with {his} iron finger. But {he} pushed so hard that the pot broke. // {He} opened the little door in {his} chest, where it was always warm, put in a box of earth and laid the seeds on top. // In the middle of winter, red and yellow flowers looked out of the little door in {his} chest. // walked through the streets and gave everyone a flower",
               "tell stories // {He} tried to tell a story, but {he} only knew numbers. \"Four, eight, fifteen,\" {he} said, and everyone yawned. // {He} told them about the things {he} had counted: the forty swallows on the roof, the nine stairs to the old lady's door, the one lost shoe in the rain. // And out of the numbers grew a story, and it was so good that nobody wanted to go home. // told a story to the children",
               "fly // {He} tied two boards to {his} arms and jumped off a shed. But {he} was much too heavy, and {he} landed in a heap of straw. // {He} built a great balloon out of old sheets, and blew it full of hot air from {his} own boiler. // Slowly, slowly, {he} rose above the roofs, and everyone below waved their hats. // took somebody for a ride above the roofs"]})

Frame(
    "wish_to_fly",
    ["a {trait} {little} {kind} who wanted to fly", "a {kind} who wanted to fly", "{h} who wanted to fly", "a {little} {kind} with a big dream", "flying"],
    ["{h} Who Wanted to Fly", "{h} and the Sky", "The Flying {Kind}"],
    """
    {@open}
    ? {@about}
    {h} had one big wish: {he} wanted to fly. [{He} watched the swallows all day.|Whenever a bird passed overhead, {he} sighed.|{He} dreamed about it every night.]
    "[{Kinds} do not fly|A {kind} cannot fly]," said {ff}. "[They never have|And that is that]." "[Then I will be the first one|Not yet]," said {h}.
    --
    First {he} {try1}. {Fail1}
    Then {he} {try2}. {Fail2}
    ? "[Did you fly?|How was it?]" asked {f}. "[Only downwards|A little, in the wrong direction]," said {h}.
    ? {@dontgiveup}
    ~~
    That evening {h} sat on {high2} and watched {the_bird} high above. "[How do you do it?|Will you tell me your secret?]" {he} called. The {bird} came down and sat beside {him}. "[I do not fight the wind|The secret is the wind]," it said. "I [lean on it|let it carry me]. [You do not need feathers for that. You need something big and light.|Anything wide and light enough can lean on the wind.]"
    {@idea}
    --
    {He} {build}. {f} [shook {fhis} head, but {fhe} held the rope|helped {him} to tie the knots]. They carried it up to the top of the hill and waited. [The grass lay still.|They waited all morning.] Then the wind came.
    {h} ran, [one step, two steps, three steps,|faster and faster,] and the ground was gone! {He} was [over the bushes, over the path, over the water|up in the air]. The wind [sang in {his} ears|held {him} like a big soft hand]. "I am flying!" {he} shouted. "[I am really flying!|Look, {f}!]"
    ? Far below, {f} was [jumping up and down|waving with both arms], and {fhe} looked as small as a bean.
    {He} came down in [a soft bush|a heap of hay|a patch of clover], [with leaves in {his} hair|with grass behind {his} ears] and a smile from ear to ear.
    --
    "[{Kinds} do fly, then|I was wrong]," said {f}[. "Can I have a turn?"|. "May I try it too?"] And so they took turns until [the wind went to sleep|the sun went down].
    / That night {h} did not dream of flying. {He} did not need to. {He} [dreamed of the moon instead|slept like a stone, with a smile on {his} face].
    """,
    """
    What did {h} want to do?=>{He} wanted to fly.
    Who helped {h}?=>A {bird} told {him} to lean on the wind.
    What did {h} try first?=>First {he} {try1}.
    How does it end?=>{h} builds something that leans on the wind, and {he} really flies.
    """,
    where=("forest", "meadow", "farm", "mountain", "village"), ban="fly swim big creature slow", friend_ban="fly", themes=("dreams", "flying"), weight=1.5,
    picks={"try1 fail1": ["stuck leaves to {his} arms and jumped from a stump // {He} landed on {his} nose.", "flapped {his} arms as fast as {he} could // Nothing happened, except that {he} grew very tired.",
                          "jumped off a haystack with an umbrella // The umbrella turned inside out, and {he} fell into the hay.", "tied goose feathers to {his} back and ran down a hill // {He} ran so fast that {he} could not stop, and {he} ended up in a puddle."],
           "try2 fail2": ["asked ten bees to carry {him} // The bees tried hard, but they only lifted {his} hat.", "sat on a branch, pulled it down and let go // {He} flew for one second, straight into a bush.",
                          "held on to a bunch of dandelion clocks // The dandelions flew very well, but they left {him} behind.", "sat on a swing and let go at the highest point // Plop! {He} sat in the mud."],
           "high2": ["a fence", "the hill", "an old wall", "a big stone"], "the_bird bird": ["a buzzard // buzzard", "a stork // stork", "an old crane // crane", "a hawk // hawk", "an eagle // eagle"],
           "build": ["took an old bed sheet and four sticks, and made a wide, light wing", "built a great kite of paper and reeds, big enough to hang on", "sewed a wing from an old sail and tied it to a frame of thin wood", "tied two broad wings of cloth to a frame of willow"]},
    prepare=lambda w: w.__setitem__("kinds", ("boys" if w["he"] == "he" else "girls") if w.child else plural(w["kind"])))


def plural(kind):
    special = {"mouse": "mice", "fox": "foxes", "wolf cub": "wolf cubs", "calf": "calves", "dormouse": "dormice", "puppy": "puppies", "pony": "ponies", "donkey": "donkeys"}
    return special.get(kind, kind + "s")


Frame(
    "fallen_star",
    ["a fallen star", "{h} and the little star", "a star that fell from the sky", "a {kind} who found a star", "a little star"],
    ["The Little Star", "{h} and the Star", "The Star That Fell"],
    """
    {@open}
    ? {@about}
    One [clear|cold|quiet] night {he} could not sleep, so {he} looked out at the stars. Suddenly one of them [wobbled|slipped|sneezed] and fell, [down, down, down|with a long bright tail], and landed {spot1}.
    ? {@night}
    {h} ran outside. There lay a little star, no bigger than an apple, [and its light went on and off|blinking weakly]. "[Oh dear|Ouch]," said the star. "[I leaned out too far to look at the world|I was dancing, and I missed a step]. [Now I cannot get home.|How will I get home?]"
    "[I will help you|Do not be afraid]," said {h}, and {he} [picked it up very gently|wrapped it in {his} scarf]. It was [warm, like bread from the oven|warm and a little ticklish].
    --
    First {he} threw the star up as high as {he} could. It came down again. Then {he} climbed {climb} and held it up. [But the sky was still far, far away.|But it was not high enough by a million miles.]
    ? "[The morning is coming|I must be home by morning]," whispered the star. "[When the sun comes up, I will go out.|A star on the ground goes out at sunrise.]" Its light was already growing pale.
    ~~
    {@think} [What goes up and never falls down?|What could go so high?] {Idea}
    The star [shone with joy|laughed, and it sounded like a tiny bell]. "[How can I thank you?|I will never forget you]," it said. "[Look up when you are lonely|Look up every night]," it said, "and I will wink at you[ three times|]."
    --
    And up it went, [higher than the trees, higher than the clouds|smaller and smaller], until [it hung in its place again|there was a new light in the dark gap between the stars].
    ? In the east the sky was turning pink. It was just in time.
    [Since then|From that night on], {h} says good night to the stars every evening. And one of them[, a small one just above {placethe},|] always winks back.
    """,
    """
    What fell from the sky?=>A little star fell from the sky.
    Why did the star fall?=>It fell by accident and could not get home.
    How did the star get home?=>It went up with the help of {helpgo}.
    How does it end?=>The star is back in the sky, and it winks at {h} every night.
    """,
    where=GREEN, ban="swim fly creature", themes=("stars", "the night", "helping"), weight=1.3,
    picks={"climb": ["onto the roof", "up a hill", "onto the highest rock {he} knew", "up a long ladder"],
           "idea helpgo": [
               "{He} thought of the smoke that rises from a chimney. {He} made a fire of sweet dry wood, and when the warm smoke rose, {he} set the star on top of it, as light as a feather. // the warm smoke",
               "\"Wild geese!\" cried {h}. High above, the geese were flying by in a long line. {He} called and waved, and the first goose came down. It took the star carefully in its beak. // a wild goose",
               "{He} ran to fetch {his} kite. {He} tied the star to its tail with a thin thread, and the night wind took the kite and pulled it up and up, until the thread was at its end. Then {he} let go. // a kite",
               "{He} thought of the soap that {he} washed with. {He} blew a bubble, the biggest and thinnest of {his} life, and the star slipped inside it without a sound. // a soap bubble",
               "\"Who is good at flying at night?\" {he} thought. \"The owl!\" {He} called, hoo, hoo, and an old owl came on soft wings. \"I know the way,\" she said. // an old owl"]})

Frame(
    "secret_door",
    ["a secret door", "{h} and the secret door", "a {kind} who found a secret door", "a hidden garden", "a little door in a wall", "a secret garden"],
    ["The Secret Door", "{h} and the Little Door", "Behind the Door"],
    """
    {@open}
    ? {@about}
    {@oneday}, {h} was [chasing a ball|following a butterfly|looking for snails|playing hide and seek] when {he} noticed something [that {he} had never seen before|strange]: a little {colour} door, hidden behind {hidden}.
    [It had a round handle and a keyhole in the shape of {shape}.|The keyhole had the shape of {shape}.] {h} [pulled and pushed|knocked, and {he} pushed with all {his} might]. It was locked.
    ? {@sense}
    --
    {h} asked {ff}, but {f} [knew nothing about it|had never heard of such a door]. {He} asked {wise}. "[Ah, that door|The little door!]," said {wisethe}[ with a smile|]. "[It does not open with strength|Pushing will not help]. [It opens for those who look closely at small things.|Its key is in a place that everyone sees and nobody looks at.]"
    {h} [looked for the key everywhere|looked high and low for days]. [{He} found a spoon, a coin and a snail shell.|{He} looked in jars and under stones.]
    ~~
    Then, one evening, {he} [sat down to rest|stopped to watch a spider], and {his} eyes fell on {keyplace}. {He} had passed it a thousand times. There, [as small as a bean|covered in dust], hung a key[, and its end had the shape of {shape}|]!
    ? {@breath}
    --
    Click! The door opened. Behind it lay {behind}.
    "Oh!" said {h}. "[Has it been here all the time?|Why does nobody come here?]" "[We have been waiting|At last, somebody has looked]," said {voice}. "[Come in, and come again as often as you like|You may stay as long as you like]. But there is one rule: {rule}."
    {h} [kept the rule|promised]. The next day {he} brought {f} with {him}, and they {there}.
    / {h} promised, and {he} kept {his} promise. {He} brought {f}, and together they {there}.
    [And the key? It hung in its old place again, where everyone could see it and nobody looked.|When they went home, they hung the key in its old place, for the next one who looked closely.]
    """,
    """
    What did {h} find?=>{He} found a little {colour} door behind {hidden}.
    Where was the key?=>{Keywhere}
    What was behind the door?=>Behind the door lay {behind_short}.
    What was the rule?=>The rule was: {rule}.
    How does it end?=>{h} opens the door and shares the secret with {f}.
    """,
    where=("forest", "meadow", "farm", "village", "garden", "town"), ban="swim fly creature big", themes=("secrets", "doors", "magic"), weight=1.3,
    picks={"hidden": ["the ivy on an old wall", "a pile of old boards", "a wild rose bush", "a curtain of hanging leaves", "a row of tall sunflowers"],
           "shape": ["a star", "a leaf", "a heart", "a moon", "a flower"],
           "keyplace keywhere": ["the nail beside {his} own front door // It hung on the nail beside {h}'s own front door.", "the old sign by the road // It hung on the back of the old sign by the road.",
                                 "the scarecrow's buttonhole // It hung in the scarecrow's buttonhole.", "the handle of the water pump // It hung on the handle of the water pump.", "the rusty bell by the gate // It hung inside the rusty bell by the gate."],
           "behind behind_short": ["a garden where it was always spring, with [pink trees and|a fountain of clear water and] flowers that hummed // a garden where it was always spring", "a small round room full of books that read themselves aloud // a room full of books",
                                   "a path of white stones, and at its end a pond in which the stars shone even by day // a path and a pond full of stars", "a tiny theatre with red curtains, where beetles in velvet coats were just tuning their fiddles // a tiny theatre",
                                   "a workshop full of toys that somebody had begun and nobody had finished // a workshop full of toys"],
           "voice": ["a small voice", "an old mouse in a green waistcoat", "a blackbird with a silver ring on its leg", "a snail with a golden shell"],
           "rule": ["leave something kind behind", "take nothing but what you can carry in your heart", "never slam the door", "always bring somebody with you", "whisper, because the flowers are asleep"],
           "there": ["spent the best afternoons of their lives there", "stayed until the first star came out", "went there whenever it rained", "found something new there on every visit"]})

Frame(
    "music_heals",
    ["music", "a {instrument}", "{h} and the {instrument}", "a sad king", "a {kind} who played the {instrument}", "a song that healed a king"],
    ["The Song of the {Instrument}", "{h} and the Sad King", "The King Who Could Not Smile"],
    """
    {@open}
    ? {@about}
    {h} had {an_instrument}[, which {his} {elder} had given {him}|, old and scratched, but dear to {him}]. {He} knew only one tune. It was {the_tune}, and {he} had learned it from {his} {elder}.
    In the same land lived a king who could not smile. [He sat at his window and looked at the rain, even when there was no rain.|He had not smiled for three years.] The {flowers} in his garden hung their heads, and nobody in the castle dared to laugh.
    "[Whoever can make me smile shall have a wish|Let anyone come who can make me happy]," said the king.
    --
    [They came from far and wide.|Many came to try.] A juggler threw nine golden balls. The king sighed. A great singer sang so high that a window cracked. The king [yawned|looked at the floor]. A clown fell into a pie. The king only said, "[What a waste of pie|Poor pie]."
    At last {h} stood in the big hall with {his} {instrument}. [{His} knees shook.|Everyone stared at {him}.] "[You?|So small?]" said the guards[, and grinned|].
    ? {@breath}
    {He} began to play. {He} made a mistake, and {he} began again. It was {the_tune}, quite simple and quite slow.
    ~~
    {@silence} Then the king [lifted his head|put his hand to his cheek]. A tear ran down into his beard. "[He is crying!|Stop!]" cried the guards. "You have made it worse!"
    "No," said the king. "[Let the music go on|Play it again, please]. My mother [sang me this song|hummed this tune] when I was small. I [had forgotten it|thought it was lost]. [I was so busy being king that I forgot her voice.|I missed her so much, and I did not know it.]" And with the tears still on his cheeks, the king smiled.
    --
    [Outside, the {flowers} lifted their heads.|And somewhere in the castle, somebody laughed out loud.]
    "What do you wish for?" asked the king. {h} thought about it. "{wish}," {he} said. And so it was done.
    [Every Sunday|Once a week] {h} went to the castle and played. And the king, who had learned the tune by then, [hummed along, a little out of tune|sang along in his deep voice].
    """,
    """
    What did {h} play?=>{He} played the {instrument}.
    Why did the king smile?=>The tune was the one that his mother had sung to him.
    What did {h} wish for?=>{He} wished: {wish}.
    How does it end?=>The king can smile again, and {h} plays for him every week.
    """,
    where=("forest", "meadow", "farm", "village", "town", "mountain", "river"), ban="swim fly big creature", themes=("music", "kings", "mothers"), weight=1.2,
    picks={"an_instrument instrument": ["a fiddle // fiddle", "a wooden flute // flute", "a little harp // harp", "a mouth organ // mouth organ", "an old guitar // guitar", "a tin whistle // tin whistle", "a squeeze box // squeeze box"],
           "the_tune": ["an old lullaby", "a song about the moon", "a song about a little boat", "a cradle song"], "flowers": ["roses", "lilies", "tulips", "sunflowers"],
           "wish": ["I wish for a bench in your garden, where anyone may sit", "I wish that the castle gate is open on Sundays", "I wish for new strings for everyone in the land who makes music", "I wish for a big pot of soup, for all who came and did not win"]})

Frame(
    "kind_giant",
    ["a giant", "a giant who was too big", "a lonely giant", "{h} the giant", "a gentle giant"],
    ["The Gentle Giant", "{h} the Giant", "Too Big"],
    """
    {@open}
    [{He} was so tall that clouds got caught in {his} hair.|When {he} walked, the hills shook.|{He} used a pine tree as a toothpick.] {h} was [not a wicked giant at all|as gentle as a lamb], but {he} was lonely. Whenever {he} came down to the village to say hello, people [ran into their cellars|slammed their doors].
    "I am too big," sighed {h}. [{His} sigh blew three hats over the hill.|{He} sighed so deeply that the trees bent.]
    --
    {He} tried to be small. {He} [walked on {his} knees|crawled on {his} tummy]. But {his} knees [made holes as big as ponds|flattened a field of cabbages]. {He} tried to whisper. But {his} whisper [rang all the bells|blew the washing off the lines]. So {he} went back up to {his} mountain and [cried a tear as big as a bathtub|did not come down any more].
    ~~
    Then came {the_trouble}. {Trouble2}
    A girl named {girl} [was not afraid|remembered the giant]. She climbed all the way up the mountain and [knocked on {h}'s shoe|pulled at {h}'s shoelace]. "Please help us!" she called. "[You are just big enough!|We need somebody big!]"
    "Just big enough?" said {h}. [Nobody had ever said that to {him}.|{He} had never heard such words.] {h} [put {girl} on {his} shoulder|let {girl} sit in {his} hand] and [took seven steps|came down the mountain in ten steps].
    --
    {He} {did}.
    ? {@silence}
    One by one, the people came out. [First they looked at {his} shoes, and then up, and up, and up.|They looked up until their necks hurt.] "[Thank you|You saved us]," they said. "[We were foolish to be afraid|We thought that anything so big must be wicked]."
    "[It is all right|I was a little afraid of you, too]," whispered {h}, and only one bell rang.
    [From then on|Since that day], the children [slid down {his} arm|swung on {his} shoelaces|played in {his} pockets], and {girl} had her own seat on {his} shoulder. And {h} never again thought that {he} was too big. {He} was just big enough.
    """,
    """
    Why was the giant lonely?=>People were afraid of {him} because {he} was so big.
    Who asked the giant for help?=>A girl named {girl} asked {him}.
    What was the trouble?=>It was {the_trouble}.
    How does it end?=>{h} saves the village and has many friends.
    """,
    where=("mountain",), hero="creature", kinds=("giant",), not_traits="merry friendly cheerful proud", themes=("giants", "loneliness", "helping"), weight=1.2,
    picks={"the_trouble trouble2 did": [
        "a great flood // The river rose and rose, and the houses stood in water up to the windows. // sat down in the river, above the village, and the water could not get past {him}. Then {he} dug a new bed for it with {his} big thumb",
        "a very dry summer // The wells were empty, and the corn turned brown. // reached up, took hold of a fat grey cloud, carried it over the fields and squeezed it out like a sponge",
        "a rock slide // A huge rock rolled down and blocked the only road, and no cart could get in or out. // picked up the rock with two fingers and set it aside, as if it were a pea",
        "a terrible storm // The wind tore at the roofs, and the people were afraid that it would blow the whole village away. // lay down around the village like a big warm wall, and the wind could not get in all night long",
        "a hard winter // The snow lay as high as the chimneys, and nobody could open a door. // scooped away the snow with {his} {hands}, and then {he} breathed on the frozen doors until they opened"],
        "girl": ["Lotte", "Mina", "Josie", "Anya", "Hattie", "Petra", "Ruby", "Cora", "Wanda", "Tilda"]})

Frame(
    "knight_dragon",
    ["a knight and a dragon", "a knight who did not want to fight", "{h} the knight", "a brave knight", "a knight and a lonely dragon"],
    ["The Knight and the Dragon", "{h} the Knight", "A Dragon for Tea"],
    """
    {@open}
    ? {@about}
    One day a farmer came running. "There is a dragon on the hill!" he cried. "It [roars all night|has roared for three nights]! You must go and fight it." {h} did not like to fight. {He} liked [gardening|making jam|reading]. But {he} put on {his} [creaky|rusty] armour, [took {his} sword|found {his} sword behind the broom] and rode up the hill. In {his} bag {he} had {his} lunch, because [{he} never went anywhere without it|fighting makes one hungry].
    --
    [At the top sat the dragon.|There it was.] It was [as green as grass|as red as fire|as blue as the evening], and as big as a barn. It opened its mouth and roared. [The trees bent.|{h}'s helmet fell over {his} eyes.] {h} [wanted to run away|lifted {his} sword], and {his} armour rattled from top to toe.
    Then {he} listened more closely. It was not an angry roar. It was [a sad one|more like crying].
    {h} lowered {his} sword. "[Excuse me|Good morning]," {he} said. "[Is something the matter?|Does something hurt?]"
    The dragon [stopped|shut its mouth and blinked]. "[Nobody ever asked me that|They always shout and run away]," it said. "{trouble}."
    ~~
    "[Is that all?|Then I can help!]" said {h}. {Help}
    The dragon sighed a long sigh, and a small white cloud of smoke came out of its nose. "[That is so much better|Oh, thank you]," it said.
    Then they sat down side by side in the grass and shared {lunch}. [The dragon warmed their lunch with one careful breath.|The dragon liked the very last bite best.]
    --
    When {h} did not come back, the people crept up the hill with [sticks and pots|forks and brooms]. They found {him} [asleep with {his} head on the dragon's tail|laughing at one of the dragon's jokes]. "[Did you win the fight?|Is the dragon beaten?]" they asked. "[We both won|There was no fight]," said {h}. "The dragon was only {short}."
    [Since that day|From then on] the dragon came down every Sunday, and {h} put the kettle on. [And {his} sword? {He} used it to cut bread.|{h} hung up {his} sword and grew beans on it.]
    """,
    """
    Why did the dragon roar?=>It roared because it was {short}.
    What did they eat?=>They shared {lunch}.
    How does it end?=>There is no fight, and {h} and the dragon become friends.
    """,
    where=("village", "mountain"), hero="creature", kinds=("knight",), not_traits="clumsy restless", themes=("knights", "dragons", "kindness"), weight=1.4,
    picks={"trouble help short": [
        "I have a thorn in my foot, and I cannot reach it // {He} put down {his} sword, knelt down and pulled out the thorn with {his} iron glove. It was as long as a spoon. // in pain from a thorn",
        "I have a toothache // {He} looked into the big mouth, found the bad tooth, and tied a string to it. One, two, three, and out it came. // a toothache",
        "I have lost my egg, and it is so cold at night // {He} looked in every bush, and at last {he} found the egg behind a stone. {He} rolled it gently back to the nest. // worried about a lost egg",
        "I cannot sleep, because the owls laugh at my snoring // {He} took the wool out of {his} helmet and made two soft ear plugs, each as big as a pillow. // tired and could not sleep",
        "It is my birthday, and nobody has come // {He} picked a flower, stuck it in a bread roll and sang the birthday song, and the dragon's eyes grew wet. // lonely on its birthday"],
        "lunch": ["bread and cheese", "a plum cake", "an apple pie", "a dozen sandwiches", "a pan of cold pancakes"]},
    prepare=lambda w: w["short"] == "a toothache" and w.__setitem__("short", "unhappy with a toothache"))

Frame(
    "apprentice_spell",
    ["a {kind} and a spell", "magic", "a magic spell that went wrong", "{h} the young {kind}", "a {kind} who learned magic"],
    ["The Wrong Spell", "{h} and the Spell", "Too Much Magic"],
    """
    {@open}
    ? {@about}
    {h} was learning magic from {wise0}. "[Say every word slowly|A spell must be spoken clearly]," {wise0} always said, "and never use a spell to get out of work."
    One day {wise0} went out. "[Please sweep the floor while I am gone|Please clean up the kitchen]," {wise0} said. [The floor was very big and the broom was very small.|{h} looked at the broom. {h} looked at the big dusty floor.] {h} yawned. "[A little spell cannot hurt|Just one tiny spell]," {he} said.
    {He} waved {his} wand and said the words, but {he} said them too fast. [Instead of a clean floor|Puff! Pop! And instead of a clean room], there {came}!
    ? {@silence}
    --
    "Oh no!" said {h}. {He} said [the spell backwards|another spell]. Now there were twice as many! {He} said a third spell, and now they were {colour} with {colour2} spots[ as well|]. {Chaos}
    ? {h} [sat down on an upturned bucket|hid under the table] and [wanted to cry|covered {his} ears].
    ~~
    "[No more magic|Magic made this mess]," {he} said at last. "[Now I must do it by hand|I must clean it up with my own two hands]." {He} [opened the windows|rolled up {his} sleeves] and [got to work|began to work]. {Work} It took [until evening|hours and hours].
    Then {he} took the broom and swept the floor, [from one corner to the other|every bit of it], because that was what {he} had been asked to do.
    --
    When {wise0} came home, the floor shone. "[Did you use magic?|How did you get it so clean?]," asked {wise0}. {h} looked at {his} [feet|shoes]. Then {he} told the whole story. Just then, one last {thing} [came out from under the cupboard|looked out of the teapot].
    {wise0} laughed until {whis0} hat fell off. "[When I was your age, I filled the whole house with frogs|I once turned my teacher into a teapot]," {wise0} said. "[Today you have learned the best spell of all|You have learned something better than magic today]." "[Which one?|What is it?]," asked {h}. "[To put right what you have done wrong|Doing a thing properly]," said {wise0}.
    [They kept the last {thing} as a pet.|They named the last {thing} Oops, and it lived in the teapot.]
    """,
    """
    What was {h} asked to do?=>{He} was asked to sweep the floor.
    What went wrong?=>{h} said the spell too fast, and suddenly there {came}.
    How does it end?=>{h} cleans up without magic and tells the truth, and {wise0} laughs.
    """,
    where=("mountain", "forest", "village"), hero="creature", kinds=("wizard", "witch", "elf", "gnome", "goblin"), not_traits="careful helpful patient honest", themes=("magic", "wizards", "mistakes"), weight=1.2,
    picks={"wise0 whis0": ["Master Quince // his", "Mistress Sloe // her", "the great Morgan // his", "old Mother Marrow // her", "Master Alabaster // his", "the great Sibyl // her"],
           "came thing chaos work": [
               "were a hundred hopping frogs // frog // They hopped on the shelves, into the pots and out of the window. // {He} carried the frogs down to the pond, ten at a time, in a soup pot.",
               "were fifty fat geese // goose // They honked, they flapped, and they ate all the bread. // {He} lured the geese out of the door, one by one, with crumbs.",
               "were two hundred bouncing balls // ball // They bounced off the walls, off the lamp and off {his} head. // {He} caught the balls, one by one, and put them into sacks.",
               "were forty sneezing cats // cat // They sneezed on the curtains and slept on the books. // {He} found a warm barn for the cats and carried them over in a basket.",
               "was a flood of wobbling puddings // pudding // They wobbled under the table and slid down the stairs. // {He} took the puddings from door to door, until every neighbour had three."]})

Frame(
    "cloud",
    ["a little cloud", "a cloud who would not rain", "{name} the little cloud", "the rain", "a cloud and a dry garden"],
    ["The Little Cloud", "{name} the Cloud", "Why It Rained"],
    """
    Once upon a time there was a little cloud named {name}. {name} was white and [fluffy|round] and floated [across the blue sky|over the hills] all day long.
    / High up in the sky lived a little cloud named {name}.
    / {name} was a little white cloud, the smallest cloud in the whole sky.
    / There was once a little cloud called {name}, and it was as white as [milk|wool].
    [The big grey clouds rained whenever they wanted.|All the other clouds knew how to rain.] But {name} [did not want to rain|was afraid to rain]. "[If I rain, I will get smaller|If I let my drops go, what will be left of me?]," it said. "[I want to keep all my drops|I like being fluffy]."
    So it [held its drops tight and floated on|kept every drop to itself].
    --
    One hot summer, {name} floated over {dry}. [The ground was cracked.|Everything was brown and dusty.] Below stood {who}. "{sadline}," {whosaid}.
    {name} looked away. [But it could not forget what it had seen.|It floated a little further. Then it stopped.] "[Does it hurt to rain?|What happens to a cloud that rains?]," it asked an old grey cloud.
    "[It tickles|It feels like laughing]," said the old cloud. "[And you are not lost. The drops go down, run to the sea, and come up again as a cloud.|I have rained a thousand times, and here I am.]"
    ? "[And you are not afraid|Are you never afraid]?" said {name}. "[Never|Not any more]," said the old cloud. "[Try it with one drop|Begin with a single drop]."
    --
    {name} [shut its eyes|took a deep breath] and let go of one drop. Plip! It tickled! It let go of another, and another, and then it rained, [pitter, patter|plip, plop], on everything below.
    {Then}
    [{name} grew smaller and smaller, until it was only a wisp, and it was not afraid at all.|Soon {name} was only a thin white thread in the sky, but it felt wonderful.] Its drops ran into a brook, and the brook ran into a river, and the river ran into the sea.
    [And one bright morning|A few days later] the sun shone on the sea, and a little white cloud rose up, [round and fluffy and brand new|as fluffy as ever]. "[Here I am again|That was fun]," said {name}. "[Who needs some rain?|Where shall I rain next?]"
    """,
    """
    What was the cloud's name?=>The cloud's name was {name}.
    Why did {name} not want to rain?=>It was afraid that nothing would be left of it.
    Where did {name} rain?=>It rained on {dry}.
    How does it end?=>{name} rains, and comes back from the sea as a new little cloud.
    """,
    where=("meadow",), hero="child", themes=("the sky", "rain", "giving"), weight=1.0,
    picks={"name": ["Puff", "Nimbus", "Flock", "Misty", "Wisp", "Fluff", "Cotton", "Drizzle", "Woolly", "Pillow"],
           "dry who sadline whosaid then": [
               "a dry garden // a girl with an empty watering can // My beans are so thirsty // said the girl // The beans lifted their leaves, and the girl danced barefoot in the puddles.",
               "a dry pond // a family of ducks // We have nowhere to swim // said the smallest duck // The pond filled up, and the ducks splashed and quacked until it was dark.",
               "a field of corn // an old farmer with a straw hat // There will be no bread this year // said the farmer // The corn stood up straight, and the farmer took off his hat and let the rain run down his face.",
               "a dusty village // a boy with a paper boat // There is no water for my boat // said the boy // Soon a little stream ran down the street, and the paper boat sailed past all the houses.",
               "a brown meadow // a thin old horse // There is no grass left for me // said the horse // In a few days the meadow was green again, and the horse ate until it was round."]},
    prepare=lambda w: as_hero(w, "cloud", "it"))

Frame(
    "snowman",
    ["a snowman", "a snowman who wanted to see spring", "{h} and the snowman", "winter", "a snow day", "a {kind} who built a snowman"],
    ["The Snowman Who Wished for Spring", "{h} and the Snowman", "A Friend of Snow"],
    """
    {@open}
    ? {@about}
    One winter morning the whole world was white. {h} and {ff} rolled [a big ball, a middle ball and a small ball|three big balls of snow], and soon they had built a snowman. {h} gave him {eyes}, and {f} gave him {nose}.
    "Thank you," said the snowman. ["You can talk!" cried {h}.|"Can snowmen talk?" asked {f}.] "[Of course|Only to those who made them]," said the snowman. "[My name is {sname}|You may call me {sname}]."
    --
    All winter long they [played with {sname}|visited {sname} every day]. {sname} knew [why no two snowflakes are alike|the songs of the north wind], and they told him about [spring, about green leaves and yellow flowers and warm rain|the other parts of the year]. "[I would love to see a flower|How I would like to see the spring]," said {sname}. "[Just once|Just one flower]."
    {h} and {f} looked at each other. [They knew that snowmen do not last until spring.|Neither of them wanted to tell him.]
    One day the roofs began to drip. {sname} was [thinner|a little smaller], and {his0} hat sat crooked. "[I am getting warm|I think I am leaving]," he said. "[Do not be sad. I had a lovely winter.|It does not hurt.] [But I would have liked to see a flower.|If only I had seen one flower.]"
    ~~
    [Then|Suddenly] {h} had an idea. {He} ran into the wood[, to the sunny side of the hill|, where the snow was already thin]. {He} brushed away the snow {spot}, and there it was: a snowdrop, [small and white and brave|the very first flower of the year]! {He} did not pick it. {He} dug it up with a little earth, [put it into a cup|put it into {his} hat] and ran back.
    "[Look!|Open your eyes!]" {he} cried. {sname} looked at the flower for a long time. "[So that is spring|It is white, like me]," he whispered, and he smiled.
    --
    The next morning there was only a hat and {nose} [in a puddle|on the wet grass]. {h} [cried a little|was very sad]. But where {sname} had stood, they planted the snowdrop, and [the water of the snowman made it grow|it drank the melted snow].
    The next winter, when [the first snow fell|the world turned white again], they built a snowman. They gave him {eyes}. He blinked. "[Hello again|There you are!]," he said. "[Do you still have my flower?|I dreamed of a flower.]"
    """,
    """
    What was the snowman's name?=>The snowman's name was {sname}.
    What did the snowman wish for?=>He wished to see a flower.
    What flower did {h} find?=>{He} found a snowdrop.
    How does it end?=>The snowman sees a flower before he melts, and the next winter he comes back.
    """,
    where=("village", "farm", "town", "forest", "meadow", "mountain"), ban="fly swim creature", friend_ban="fly swim", themes=("winter", "snow", "spring", "friendship"), weight=1.3,
    picks={"eyes": ["two black buttons for eyes", "two bits of coal for eyes", "two dark pebbles for eyes"], "nose": ["a carrot", "a long red carrot", "a pine cone"],
           "sname": ["Frosty Bill", "Mr. Flake", "Winterbottom", "Snowby", "Mr. White", "Coldwell", "Old Drift"], "his0": ["his"],
           "spot": ["under a hazel bush", "beside a warm stone", "under an old beech", "at the foot of a birch"]})

Frame(
    "moon_sleep",
    ["the moon", "a {kind} who could not sleep", "bedtime", "{h} and the moon", "a sleepy {kind}", "falling asleep"],
    ["{h} Cannot Sleep", "{h} and the Moon", "Good Night, {h}"],
    """
    {@open}
    ? {@about}
    One night {h} could not sleep. {He} lay on {his} left side. {He} lay on {his} right side. {He} [stood on {his} head|put the pillow at the other end]. [Nothing helped.|It was no use.]
    {He} counted {counted}, but when {he} came to a hundred, {he} was still wide awake.
    ? {@night}
    --
    So {he} got up and [tiptoed outside|went out in {his} slippers]. {fAwake} "[Why are you awake?|How do you fall asleep?]" asked {h}. "[I always {ftip}|When I want to sleep, I {ftip}]," said {f}. {h} tried it, too. [It made {him} more awake than before.|It was nice, but it did not make {him} sleepy.]
    [Then {he} looked up|At last {he} looked up at the moon]. "[Moon|Dear moon]," {he} said, "[you are awake every night|you know everything about the night]. What shall I do?"
    ~~
    "[I will tell you a secret|Come closer]," said the moon, [in a voice like cool milk|very softly]. "You cannot chase sleep. It runs away, like a shy cat. [You must lie still and think of something good, and then it comes by itself.|You must sit quite still and tell it about your day.]"
    / And the moon answered, very softly, "Sleep is like a shy cat. If you run after it, it runs away. Lie still, think of something good, and it will come and sit on your feet."
    --
    {h} went back to bed. {He} lay quite still and thought of [the good things of the day|the nice things that had happened]. {He} thought of {good1}. {He} thought of {good2}. {He} thought of {good3}.
    Something soft and warm [came into the room|crept up the blanket], like a shy cat. [It sat down on {his} feet.|It purred.] {h} wanted to say, "[Look, it is here|There you are]." But {he} was already asleep.
    [And the moon pulled a small cloud over the window, so that its light would not wake {him}.|Outside, the moon smiled and wandered on, to the next one who was still awake.] [Good night.|Sleep well, {h}.|]
    """,
    """
    What was the matter with {h}?=>{He} could not sleep.
    What did the moon say?=>The moon said that sleep is like a shy cat that comes if you lie still.
    How does it end?=>{h} lies still, thinks of good things, and falls asleep.
    """,
    where=GREEN + ("snow", "jungle", "savanna", "desert", "outback"), ban="fly swim creature night", friend_ban="fly swim", themes=("bedtime", "the moon", "sleep"), weight=1.3,
    picks={"counted": ["sheep", "stars", "all the spots on the ceiling", "{his} own toes, again and again", "the ticks of the clock"],
           "fAwake": ["{ff} was sitting outside, too.", "There sat {ff}, looking at the stars.", "{ff} was awake as well."],
           "ftip": ["eat a biscuit", "hop on one leg", "stretch three times", "sing a song with ten verses", "yawn as loudly as I can", "drink warm milk"],
           "good1": ["the smell of {food}", "the first bite of {food}", "{food} and a full tummy"], "good2": ["the way {f} had laughed that morning", "the warm stone by {near}", "a feather that had danced in the wind", "the funny hat that {f} had made out of a leaf"],
           "good3": ["tomorrow", "the hug that {e} had given {him} before bed", "the sound of rain on the roof", "the soft moss by {near2}"]})
