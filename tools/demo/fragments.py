"""Sentences shared by many frames: openings, feelings, advice, evenings, closings."""

from tools.demo.frames import fragments

fragments("""
open:
7* Once upon a time, {inplace}, there lived a {trait} {little} {kind} [named|called] {h}.
7* Once upon a time there was a [{little} |{trait} |{trait} {little} |]{kind} [named|called] {h}. {@lived}
5* Once upon a time, a [{trait} |{little} |]{kind} [named|called] {h} lived {inplace}.
2* Once upon a time, there was a {kind} named {h}, and {he} was the {most} {kind} {inplace}.
3* Long ago, {inplace}, there lived a {little} {kind} [named|called] {h}.
2* A long time ago, a {trait} {kind} [named|called] {h} lived {inplace}.
4* There was once a {little} {kind} [named|called] {h}, who lived {inplace}.
3* There once was a {trait} {kind} whose name was {h}. {@lived}
5* {inplace} there lived a {trait} {kind} [named|called] {h}.
3* {inplace} lived a {little} {kind}. {His} name was {h}[.|, and {he} was very {trait}.]
3* {h} was a {trait} [{little} |]{kind} who lived {inplace}.
2* {h} was a {little} {kind}. {@lived}
3* Far away, {inplace}, there lived a {little} {kind} [named|called] {h}.
2* Not so very long ago, a {trait} [{little} |]{kind} [named|called] {h} lived {inplace}.
2* This is the story of {h}, a {trait} {little} {kind} who lived {inplace}.
2* Everyone {inplace} knew {h}, the {trait} [{little} |]{kind}.
2* Far, far away, {inplace}, lived a {kind} [named|called] {h}.
lived:
{He} lived in {home}.
{He} lived {inplace}.
{His} home was {home}.
{His} home was {home}, [and {he} liked it very much|and {he} would not have changed it for a palace|and it was just the right size].
{He} lived {inplace}, in {home}.
openmorning:
One {morning} morning, a {little} {kind} [named|called] {h} [woke up early|opened one eye, and then the other|woke up and stretched].
One {morning} morning, a [{trait} |]{kind} named {h} [came out of {his} home and looked around|stepped outside and sniffed the air].
about:
{traitline}
{h} was {trait}. {traitline}
{He} was a very {trait} {kind}. {traitline}
Everyone said that {h} was {trait}. {traitline}
{His} {elder} often said, "There is nobody as {trait} as you."
{He} had [bright eyes|a warm smile|a funny little laugh] and [a good heart|a head full of questions|a great many ideas].
more:
2* {traitline}
{His} {elder} often said, "There is nobody as {trait} as you."
{He} had [bright eyes|a warm smile|a funny little laugh] and [a good heart|a head full of questions|a great many ideas].
{He} was [the youngest of five|the oldest of three|the youngest of seven], and [there was always noise at home|it was never quiet at home|at supper everyone talked at once].
[In summer|On warm evenings] {he} [sat outside and listened to the crickets|watched the swallows|told {himself} stories], and [in winter {he} slept late|when it rained {he} counted the drops].
homeline:
{His} home was {home}.
{He} lived in {home}, and [it was warm and dry|it always smelled of something good|there was room for everything {he} loved].
{He} had {home} all to {himself}, and {he} kept it very tidy.
{His} home was {home}, [small but cosy|simple but warm|and there was no better place in the world].
likes:
{He} loved {food} more than anything.
[Best of all|More than anything], {he} liked {food}.
{He} liked [rainy afternoons|counting stars|warm blankets|long walks|good stories|the smell of morning], and {he} liked {food} even more.
{His} favourite food was {food}.
{He} liked to [hum while {he} worked|count the clouds|tell jokes|collect smooth stones|listen to the wind|draw pictures with a stick].
Every day {he} [swept {his} floor, said hello to the neighbours and took a walk|took a walk to {near}|sat for a while near {near} and thought about things].
friendintro:
{His} best friend was {f}, a {fkind} who [laughed at everything|was always hungry|liked to ask questions|never hurried|talked very fast|could whistle|told the best jokes].
{He} had a good friend, [a {fkind} named {f}|a {fkind} called {f}].
{His} best friend was a {fkind} [named|called] {f}, and the two of them [did everything together|met every day near {near}|shared every secret].
{He} had a friend [named|called] {f}, a {fkind} with a [loud laugh|kind heart|quick tongue|good nose for trouble].
oneday:
One day
One {morning} morning
One morning
One [quiet|long|slow] afternoon
Then, one day
One day in [spring|early summer|May|June]
sad:
{h} felt [very sad|sad and small|terrible].
{h} sat down and [began to cry|put {his} head down|sighed a long sigh].
A [big|fat|warm] tear rolled down {his} [cheek|nose].
{h} [did not know what to do|felt a lump in {his} throat|wanted to cry].
{His} heart [sank|felt as heavy as a stone|felt cold and heavy].
{h} [swallowed hard|bit {his} lip|looked at the ground] and said nothing.
happy:
{h} [jumped for joy|laughed out loud|clapped and laughed|danced in a circle].
{h} was so happy that {he} [danced in a circle|could not stop smiling|laughed out loud|sang all the way home].
{His} heart [jumped with joy|felt as light as a feather|sang].
{h} smiled [from ear to ear|the biggest smile of {his} life].
{h} [felt warm all the way through|felt as tall as a tower].
think:
{h} thought and thought.
{h} sat down to think.
{h} thought about it for a long time.
{h} closed {his} eyes and thought hard.
{h} scratched {his} head and thought.
{h} walked up and down, thinking.
idea:
Then {he} had an idea.
Suddenly {he} had an idea.
All at once an idea came to {him}.
Then {he} remembered something, and {he} smiled.
And then {his} eyes grew wide, because {he} had an idea.
dontgiveup:
But {h} did not give up.
But {h} was not ready to give up.
Still, {h} did not give up so easily.
But giving up was not something {h} liked to do.
{h} took a deep breath and tried again.
"I will try once more," said {h}.
breath:
{h} took a deep breath.
{h} stood very straight.
{His} heart beat fast.
{His} heart went thump, thump, thump.
{h} counted to three.
{His} knees shook a little.
silence:
For a moment [nobody spoke|it was very quiet|nothing happened|everything was still].
There was a long silence.
Nobody said a word.
evening:
[That evening|When evening came], the sky turned [pink and gold|purple|soft and red].
The sun [sank behind the hills|went down slowly|slipped out of sight], and the first star came out.
By then it was evening, and [long shadows lay on the ground|the air grew cool|the first lights were shining].
Evening came, [soft and blue|quiet and cool|with a cool little wind].
night:
The moon hung in the sky like a silver [coin|plate|boat].
The stars [twinkled|blinked|winked] far above.
A cool night wind [sighed|whispered] over {placethe}.
The moon [peeped out from behind a cloud|painted everything silver].
Somewhere an owl called, hoo, hoo.
The night was [deep and quiet|dark and still|as soft as velvet].
rain:
The rain drummed on everything.
Puddles grew on the ground.
Raindrops ran down in long silver threads.
The rain went pitter, patter, pitter.
Grey clouds hung low over {placethe}.
bed:
That night {h} [fell asleep with a smile|slept better than ever|slept deeply and dreamed sweet dreams].
{h} curled up at home that night and [fell asleep at once|dreamed of all that had happened|listened to the wind until {he} slept].
That night, in {home}, {h} [fell asleep smiling|dreamed a happy dream|slept like a stone].
When {h} closed {his} eyes that night, {he} was still smiling.
And that night {h} slept very, very well.
moralfriend:
From that day on, {h} and {f} were [the best of friends|best friends|always together].
And {h} and {f} [stayed friends for the rest of their lives|were friends for ever after|never forgot that day].
After that, whenever you saw {h}, {f} was not far away.
"That is what friends are for," said {f}.
happyend:
And they all lived happily ever after.
And {h} lived happily {inplace} for many, many years.
And so everything ended well.
And that was the end of a very good day.
And if you go there today, you may still hear {h} tell the tale.
And from that day on, everyone was a little happier.
It was the best day {h} had ever had.
{h} never forgot that day.
Everyone agreed that it had been a wonderful day.
feast:
There was {food} for everyone, and [nobody went home hungry|somebody played a fiddle|they sang until the stars came out].
Then they all sat down together and shared {food}[.| until nothing was left.]
To celebrate, {h} shared {food} with everyone.
kindelder:
"Everyone makes mistakes," said {e}.
tagsaid:
said
whispered
thanks:
"Thank you," said {h}. "Thank you very much!"
"Thank you!" cried {h}.
"How can I thank you?" asked {h}.
""")

fragments("""
spirit:
The stairs creaked.
A cold little wind blew through the house.
Somewhere a door moved.
snowy:
The trees wore white hats.
The fields lay soft and still.
The flakes came down without a sound.
snight:
The moon rose over the field.
Mist lay on the ground, and it was very quiet.
The stars came out, one after the other.
pirsil:
She said nothing at all.
Her mouth stayed open.
The whole crew waited.
""")
