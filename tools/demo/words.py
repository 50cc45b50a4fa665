"""Word lists of the story generator: names, kinds of hero, places and things.

Every entry is hand-written so that any combination the frames ask for is
possible in a simple tale: a kind only lives where it can live, eats what it
would eat, and carries tags by which a frame refuses it (a bird is no hero of
a tale about learning to fly).
"""

GIRLS = """Ada Alma Amy Anna Anya Bella Beth Bina Carla Clara Cora Daisy Dana Dora Edith Elena Ella Elsa Emma
Erin Esme Etta Eva Fay Fern Flora Freya Gemma Gina Greta Gwen Hana Hattie Hazel Heidi Holly Ida Ina Iona Ivy
Jane Jenny Jill Joan Josie Julia June Kaya Kate Kira Lara Leah Lena Lia Lila Lily Lina Lola Lotte Lucy Luna
Maggie Mara Maren Martha Mary Maya Mia Mila Mina Mira Molly Nadia Nell Nia Nina Nora Olive Opal Orla Pam
Pearl Penny Petra Polly Rita Robin Romy Rosa Rose Ruby Ruth Sadie Sally Sara Selma Sofia Stella Sue Tara Tess
Tilda Tina Una Vera Wanda Willa Wren Yara Zara Zoe""".split()

BOYS = """Adam Alan Albert Alfie Anton Archie Arlo Arthur Axel Barney Ben Bert Billy Bobby Boris Bruno Carl Caleb
Colin Cody Dan Danny David Dean Diego Eddie Edgar Eli Emil Eric Ernie Evan Felix Finn Frank Fred Gabe George
Gil Glen Gus Hal Hank Harry Henry Hugo Ian Ike Ivan Jack Jacob Jake Jamie Jim Joe Joel John Jonah Josh Karl
Ken Kit Kurt Lars Leo Levi Liam Louie Luca Luke Mark Martin Max Milo Ned Nico Noah Nolan Oliver Omar Oscar
Otto Owen Paul Percy Peter Philip Ralph Ray Remy Robbie Rory Rufo Sam Seth Simon Sven Ted Theo Tim Toby Tom
Tony Victor Walter Will Yuri Zack""".split()

PETS = """Acorn Alder Amber Apple Ash Basil Bean Berry Biscuit Bingo Birch Blossom Bobbin Bramble Bubble Buddy Bumble
Button Cherry Chestnut Cinder Clover Cocoa Comet Copper Cricket Crumb Dandy Dapple Dew Dot Dumpling Dusty Ember
Feather Fidget Fig Flicker Freckle Fudge Fuzzy Ginger Hickory Honey Hop Jasper Juniper Lentil Maple Marble
Merry Mitten Mocha Moss Muffin Nettle Noodle Nutmeg Oakley Olly Patch Peanut Pebble Pepper Pickle Pip Plum
Poppy Puddle Pumpkin Quill Radish Rumble Rusty Sage Scout Shadow Sesame Snowy Socket Sorrel Spark Speckle
Spot Sprout Sunny Tansy Thistle Thyme Tiptoe Toffee Truffle Tuft Tumble Turnip Twig Velvet Waffle Walnut
Whisper Willow Wink Yarrow Zigzag Zippy""".split()

WISE_NAMES = """Old Bramble;Old Moss;Old Hobb;Old Tansy;Old Flint;Old Willow;Old Barnaby;Old Agatha;Old Grey;
Old Marigold;Old Winter;Old Juniper;Old Sorrel;Old Thorn;Old Matilda;Old Cedar""".replace("\n", "").split(";")

# kind; settings; homes; favourite foods; tags
_KINDS = """
fox; forest meadow mountain; den under a fallen log, snug den; berries, warm pie; land
rabbit; forest meadow garden farm; cosy burrow, burrow with a round door; carrots, sweet clover; land small
hare; meadow mountain forest; nest of soft grass, hollow in the long grass; clover, dandelion leaves; land fast
hedgehog; forest garden meadow; nest of dry leaves, pile of warm leaves; ripe plums, mushrooms; land small slow
squirrel; forest garden; hollow tree, nest in a tall oak; nuts, acorn bread; land small climb fast
mouse; forest meadow farm garden village; tiny house under the roots, hole behind a warm wall; cheese, bread crumbs; land small climb
badger; forest meadow; deep burrow, tidy home under the hill; mushroom soup, roots; land dig
bear cub; forest mountain; warm cave, cave behind a waterfall; honey, blueberries; land big climb
fawn; forest meadow mountain; bed of ferns, mossy clearing; sweet leaves, fresh grass; land fast
raccoon; forest river; hollow tree, cave full of pots and pans; corn cakes, apples; land climb
mole; forest meadow garden farm; room under the ground, long dark tunnel with a soft bed; roots, acorn soup; land small dig slow
wolf cub; forest mountain snow; den under the pines, rocky den; stew, berries; land fast
chipmunk; forest mountain; hole under a stump, hollow log; seeds, nuts; land small climb fast
porcupine; forest; hollow log, cave under a rock; bark bread, apples; land slow
skunk; forest meadow; den under a bush, hollow stump; plums, mushrooms; land
dormouse; forest garden; nest of honeysuckle, round nest of grass; hazelnuts, blackberries; land small climb
weasel; meadow farm forest; hole in the old wall, hollow log; eggs on toast, berry pie; land small fast
vole; meadow river garden; hole in the bank, tiny tunnel; grass seeds, sweet roots; land small dig
lamb; farm meadow mountain; warm barn, stone sheepfold; clover, fresh grass; land
piglet; farm; muddy pen, red barn; apples, turnips; land
calf; farm meadow; warm barn, big green barn; hay, sweet grass; land big
pony; farm meadow; stable, small stable with a green door; apples, oats; land big fast
donkey; farm mountain village; stable, shed with a straw bed; carrots, oats; land big slow
goat; farm mountain village; shed on the hill, stone hut; thistles, hay; land climb
puppy; farm village town seaside; basket by the stove, little wooden doghouse; bones, biscuits; land pet fast
kitten; farm village town seaside; basket by the window, box full of soft wool; milk, fish; land pet climb small
hen; farm; henhouse, nest of straw; corn, barley; land small
duckling; farm river; nest by the water, nest among the reeds; water weeds, corn; swim small
gosling; farm river; nest by the water, nest of soft straw; fresh grass, barley; swim small
otter; river seaside; den on the bank, holt under the willow; fish, water cress; swim fast
beaver; river; lodge of sticks, round lodge in the water; bark, willow twigs; swim
frog; river garden; house under a lily leaf, hole under a wet stone; bug stew, lily soup; swim small
toad; garden river forest; cool hole under a flowerpot, hole under a mossy stone; bug pie, mushroom soup; slow small
turtle; river seaside; sandy hollow, cosy spot under the bank; water lettuce, sweet weeds; swim slow
water rat; river; hole in the bank, tidy hole above the water; cress, reed bread; swim small
marmot; mountain; burrow among the stones, burrow with three doors; mountain herbs, flower salad; land dig
llama; mountain; stone shed, hut high on the slope; hay, mountain grass; land big
yak; mountain snow; stone shed, shelter of warm rocks; moss, hay; land big slow
monkey; jungle; nest of broad leaves, tree house of vines; bananas, mangoes; land climb fast
tiger cub; jungle; cave behind the vines, den among the roots; stew, coconut milk; land fast
elephant calf; jungle savanna; clearing among the trees, shady grove; bananas, sugar cane; land big slow
panda; jungle mountain; bamboo grove, cave among the bamboo; bamboo shoots, rice cakes; land big climb slow
lemur; jungle; hollow tree, nest high in a fig tree; figs, ripe papaya; land climb
sloth; jungle; crook of a great tree, leafy nook of a fig tree; leaves, soft fruit; climb slow
parrot; jungle; hole in a tall tree, nest of twigs; nuts, sunflower seeds; fly
toucan; jungle; hole in a tall tree, nest of twigs; figs, berries; fly
lion cub; savanna; den among the rocks, shady den; stew, melon; land fast
giraffe; savanna; grove of thorn trees, shady grove; leaves, sweet pods; land big
zebra; savanna; patch of shade by the water hole, hollow in the tall grass; grass, melon; land fast
meerkat; savanna desert; burrow with many doors, sandy burrow; seeds, sweet roots; land small dig
hippo; savanna; bend of the river, cool mud bath; water grass, melons; swim big slow
rhino; savanna; muddy hollow, shady grove; leaves, grass; land big slow
antelope; savanna; hollow in the tall grass, shady grove; sweet grass, leaves; land fast
camel; desert; tent by the oasis, shady yard; dates, dry grass; land big slow
desert fox; desert; sandy den, den under a red rock; dates, cactus fruit; land fast
lizard; desert garden; crack in a warm wall, hole under a flat stone; bug pie, cactus fruit; land small climb
tortoise; desert garden; shady hollow, hollow under a big stone; lettuce, cactus fruit; land slow
penguin; snow; house of ice, nest of smooth stones; fish, fish soup; swim
polar bear cub; snow; snow cave, deep white den; fish, sweet berries; land big swim
seal pup; snow seaside; sheltered cove, quiet bay of ice and stones; fish, fish stew; swim
snow hare; snow mountain; hollow in the snow, burrow under a pine; bark bread, frozen berries; land fast
reindeer; snow; warm stable, shelter of pines; moss, hay; land big
husky pup; snow; kennel full of straw, cabin by the frozen lake; stew, bones; land fast
crab; seaside island; crack in a rock, old shell on the sand; sea lettuce, shrimp soup; small slow bug
puffin; seaside island; burrow on the cliff, hole on the grassy cliff; fish, fish cakes; fly swim
gull; seaside island; nest on the cliff, nest on an old boat; fish, crusts; fly
robin; garden forest farm; nest in the hedge, nest in an old teapot; berries, seeds; fly small
sparrow; village farm garden town; nest under the roof, nest in the ivy; bread crumbs, seeds; fly small
owlet; forest farm; hole in an old oak, loft of an old barn; mushroom toast, berry pie; fly night
crow; farm meadow forest; nest in a tall elm, nest on the old mill; corn, nuts; fly
wren; garden forest; nest of moss, nest in the old wall; seeds, berries; fly small
pigeon; town village; loft on the roof, nest in the bell tower; crumbs, peas; fly
kangaroo; outback; shady hollow, patch of soft grass under a gum tree; fresh grass, leaves; land big fast
koala; outback; fork of a gum tree, tall gum tree; gum leaves, leaf tea; climb slow
wombat; outback; deep burrow, burrow with a round door; roots, sweet grass; land dig
platypus; outback; hole in the river bank, burrow by the creek; shrimp, water weeds; swim
emu; outback; nest under a bush, hollow in the dry grass; seeds, berries; land big fast
bee; garden meadow; golden hive, hive under the eaves; honey, flower tea; fly small bug
ladybird; garden meadow; curled leaf, crack in the bark of an old tree; dew drops, leaf pie; fly small bug
snail; garden forest; shell under a cabbage leaf, shell behind a flowerpot; lettuce, dew; small slow bug
ant; garden meadow forest; tall hill of sand, room deep in the ant hill; sugar, seeds; small climb bug
dragon; mountain island; cave high on the cliff, warm cave; toasted nuts, hot pepper soup; creature fly big
baby dragon; mountain island; warm cave, nest of smooth black stones; toast, hot cocoa; creature fly
gnome; forest garden; house in a mushroom, little house with a red roof; mushroom pie, acorn bread; creature small
troll; mountain river forest; cave under the bridge, mossy cave; stone soup, turnip stew; creature big slow
giant; mountain; house as tall as a hill, great stone hall; barrels of soup, bread loaves as big as beds; creature big slow
elf; forest snow; house in a hollow oak, tiny house of bark; honey cakes, berry tea; creature small
fairy; forest garden meadow; house in a foxglove, nest of petals; honey, rose cakes; creature fly small
goblin; forest mountain; hole under a stump, crooked little hut; mushroom stew, beetle biscuits; creature
unicorn; forest meadow; silver glade, clearing full of white flowers; sweet grass, apples; creature big fast
robot; town village farm; workshop, shed full of wires and wheels; warm oil, fresh batteries; creature made
wizard; mountain forest village; crooked tower, tower full of books; tea and toast, bean soup; creature person male
witch; forest village; crooked cottage, hut with a bent chimney; pumpkin soup, nettle tea; creature person female
knight; village mountain; small stone castle, tower with a blue flag; roast potatoes, apple tart; creature person
prince; village mountain; castle with four towers, white castle; pancakes, pear tart; creature person male
princess; village mountain; castle with four towers, white castle; pancakes, pear tart; creature person female
"""

CHILD_HOMES = {
    "village": ["small house with a blue door", "stone cottage", "house beside the bakery", "narrow house by the well"],
    "town": ["tall thin house", "flat above the toy shop", "brick house with a green gate", "small room under the roof"],
    "farm": ["old farmhouse", "white farmhouse", "red house beside the barn"],
    "seaside": ["little house with white shutters", "white cottage with a blue door", "house that smelled of salt and rope"],
    "mountain": ["wooden hut", "cabin with a stone chimney", "stone house with a warm stove"],
    "forest": ["cottage with round windows", "wooden cabin", "cottage with a mossy roof"],
    "river": ["crooked mill house", "old houseboat", "house on wooden legs"],
    "island": ["hut with a straw roof", "small house on a green hill", "cottage near the rocks"],
    "snow": ["cabin with thick walls", "log house", "warm wooden house"],
    "meadow": ["cottage with a garden", "yellow house on a hill", "small farmhouse"],
    "desert": ["house of red clay", "striped tent", "white house with thick walls"],
}

# Each place is (name, preposition); `the` is part of the name where it belongs.
SETTINGS = {
    "forest": {
        "places": ["in the Whispering Wood", "in Willow Wood", "in the green forest", "in a deep, quiet forest",
                   "in Fernwood Forest", "in the old pine forest", "at the edge of Bluebell Wood", "in Badger Wood",
                   "in the Thousand Tree Wood"],
        "the": "the forest", "near": ["the old oak", "the mossy rock", "the hollow log", "the tall pine", "the fallen beech"],
        "water": "the stream", "path": "the path", "high": "the top of the hill",
        "spots": ["under the ferns", "behind the old oak", "beside the stream", "between the roots of the pine",
                  "in the pile of dry leaves", "under the bramble bush", "inside the hollow log", "behind the mossy rock",
                  "in the patch of mushrooms", "beneath the holly bush"],
        "sense": ["The leaves whispered overhead.", "The air smelled of moss and pine.", "A woodpecker knocked on a tree far away.",
                  "Small mushrooms grew beside the path.", "The ferns brushed softly against each other.",
                  "An acorn dropped and rolled away.", "The stream hummed over its stones.", "Soft moss covered every stone.",
                  "Somewhere a twig snapped."],
        "fine": ["Sunlight fell through the leaves in gold spots.", "A blackbird sang on a high branch.", "Butterflies danced in the clearing."],
    },
    "meadow": {
        "places": ["in a wide green meadow", "in Clover Meadow", "on Buttercup Hill", "in the meadow below the mill",
                   "in Larkspur Field", "in a meadow full of daisies", "in the long grass of Sunny Down"],
        "the": "the meadow", "near": ["the lone apple tree", "the old stone wall", "the wooden gate", "the big round stone", "the hawthorn hedge"],
        "water": "the brook", "path": "the path", "high": "the top of the hill",
        "spots": ["in the long grass", "behind the old stone wall", "under the hedge", "beside the brook", "among the daisies",
                  "under the wooden gate", "behind the haystack", "by the round stone", "in the patch of thistles"],
        "sense": ["The grass bent in the wind like waves.", "The air smelled of clover.", "A cricket chirped in the grass.",
                  "The brook gurgled under the little bridge.", "Seeds floated past like tiny umbrellas.", "The old gate creaked.",
                  "Daisies nodded on their thin stems."],
        "fine": ["Bees hummed from flower to flower.", "A lark sang high in the blue sky.", "The sun lay warm on the grass."],
    },
    "farm": {
        "places": ["on Hilltop Farm", "on a small farm", "on the farm by the mill", "on Cherry Farm", "on Farmer Grey's farm",
                   "on a farm with a red barn", "on Long Lane Farm"],
        "the": "the farm", "near": ["the red barn", "the old plough", "the haystack", "the water trough", "the apple tree"],
        "water": "the duck pond", "path": "the lane", "high": "the roof of the barn",
        "spots": ["behind the red barn", "in the hay", "under the cart", "beside the duck pond", "in the vegetable patch",
                  "behind the henhouse", "under the milk pails", "between the sacks of corn", "in the orchard grass"],
        "sense": ["The hay smelled sweet.", "A hen clucked in the yard.", "The weather vane squeaked on the barn.",
                  "Somewhere a cow mooed.", "The ducks muttered by the pond.", "A bucket clanked by the pump.", "The straw rustled."],
        "fine": ["The rooster stretched in the sunshine.", "Swallows darted in and out of the barn.", "The sun warmed the red roof."],
    },
    "village": {
        "places": ["in the village of Little Brook", "in a small village", "in the village of Applebury", "in a village between two hills",
                   "in the village of Honeywell", "in the village of Nettlewick", "in a sleepy little village", "in the village of Mill End"],
        "the": "the village", "near": ["the stone well", "the bell tower", "the bakery", "the village green", "the little bridge"],
        "water": "the stream", "path": "the lane", "high": "the top of the bell tower",
        "spots": ["behind the stone well", "under the bench on the green", "beside the little bridge", "in front of the bakery",
                  "behind the church gate", "under the market stalls", "in the baker's garden", "by the old pump"],
        "sense": ["Fresh bread scented the street.", "The church bell rang slowly.", "Smoke curled from the chimneys.",
                  "Cart wheels rumbled over the stones.", "A cat watched from a wall.", "Somebody was humming behind a window.",
                  "The weather vane turned with a squeak."],
        "fine": ["Washing flapped on the lines in the sun.", "Children chased a hoop across the green.", "The flower boxes glowed red and yellow."],
    },
    "town": {
        "places": ["in a busy town", "in the town of Copperfield", "in a town full of bridges", "in the old town by the river",
                   "in the town of Seven Lamps", "in a town with crooked streets", "on Button Street"],
        "the": "the town", "near": ["the fountain", "the clock tower", "the corner shop", "the park gate", "the old library"],
        "water": "the river", "path": "the street", "high": "the top of the clock tower",
        "spots": ["behind the fountain", "under the park bench", "on the library steps", "beside the bus stop", "in front of the toy shop",
                  "behind the flower stall", "under the bridge", "next to the post box"],
        "sense": ["A tram bell rang down the street.", "The smell of warm rolls drifted from the bakery.", "Pigeons cooed on the roof.",
                  "The fountain splashed in the square.", "Footsteps tapped on the pavement.", "The clock tower struck the hour.",
                  "Someone was playing a fiddle at the corner."],
        "fine": ["The windows flashed in the sunshine.", "People sat in the square and ate ice cream.", "The sky was a bright strip above the roofs."],
    },
    "seaside": {
        "places": ["by the sea", "in a fishing village by the sea", "on Pebble Bay", "near Gull Point", "on the shore of a blue bay",
                   "in Sandy Cove", "by the harbour of Saltwick"],
        "the": "the beach", "near": ["the old pier", "the striped lighthouse", "the upturned boat", "the big black rock", "the sand dunes"],
        "water": "the sea", "path": "the cliff path", "high": "the top of the cliff",
        "spots": ["behind the upturned boat", "under the old pier", "in the rock pools", "among the fishing nets", "at the foot of the cliff",
                  "between the dunes", "beside the lobster pots", "in the heap of seaweed"],
        "sense": ["The waves sighed on the sand.", "The air tasted of salt.", "A rope slapped against a mast.", "Gulls cried over the water.",
                  "Wet pebbles rattled under each wave.", "The boats rocked gently in the harbour.", "The wind smelled of seaweed."],
        "fine": ["The sea glittered like a thousand coins.", "Little white clouds sailed above the water.", "The sand was warm in the sun."],
    },
    "mountain": {
        "places": ["high in the mountains", "on Eagle Mountain", "in a valley below Silver Peak", "on the slopes of Thunder Mountain",
                   "in the Blue Mountains", "on a steep green mountain", "in the valley of Stonehorn"],
        "the": "the mountain", "near": ["the split rock", "the crooked pine", "the rope bridge", "the stone hut", "the waterfall"],
        "water": "the mountain stream", "path": "the steep path", "high": "the highest ledge",
        "spots": ["behind the split rock", "under the crooked pine", "beside the waterfall", "among the loose stones", "in the mountain grass",
                  "at the foot of the cliff", "behind the stone hut", "in the little cave"],
        "sense": ["The wind whistled between the rocks.", "The air was thin and clean.", "A pebble clicked down the slope.",
                  "Far below, a cowbell rang.", "The waterfall roared in the distance.", "An echo answered every sound.", "The pines creaked."],
        "fine": ["The snow on the peaks shone in the sun.", "An eagle circled in the bright sky.", "The valley lay green and sunny below."],
    },
    "river": {
        "places": ["beside the slow green river", "on the bank of the Willow River", "by the River Reed", "near the old mill on the river",
                   "by a bend in the river", "on the bank of Otter Brook"],
        "the": "the river bank", "near": ["the leaning willow", "the stepping stones", "the old mill", "the wooden jetty", "the flat grey stone"],
        "water": "the river", "path": "the river path", "high": "the top of the bank",
        "spots": ["among the reeds", "under the leaning willow", "behind the old mill", "beside the stepping stones", "under the wooden jetty",
                  "in the soft mud", "between the roots on the bank", "behind the flat grey stone"],
        "sense": ["The water slid by with a soft gurgle.", "The reeds rustled.", "A fish jumped with a small plop.", "The willow trailed its leaves in the water.",
                  "The bank smelled of mud and mint.", "The mill wheel turned slowly."],
        "fine": ["Dragonflies flashed blue over the water.", "The river sparkled in the sun.", "Ducklings paddled in a neat line."],
    },
    "garden": {
        "places": ["in an old garden", "in Mrs. Plum's garden", "at the bottom of a long garden", "in a garden behind a high wall", "in the rose garden",
                   "in a garden full of cabbages"],
        "the": "the garden", "near": ["the garden pump", "the stone bench", "the pear tree", "the greenhouse", "the sundial"],
        "water": "the little pond", "path": "the gravel path", "high": "the top of the garden wall",
        "spots": ["behind the flowerpots", "under the rhubarb leaves", "beside the little pond", "among the cabbages", "under the stone bench",
                  "behind the greenhouse", "in the strawberry bed", "under the wheelbarrow"],
        "sense": ["The air smelled of mint and roses.", "Water dripped from the pump.", "The bean leaves rustled.", "A spade leaned against the wall.",
                  "Ivy trembled on the old wall.", "A ripe pear dropped into the grass."],
        "fine": ["Bees hummed in the lavender.", "The sunflowers turned their faces to the light.", "A white butterfly fluttered over the beans."],
    },
    "jungle": {
        "places": ["deep in the jungle", "in a warm green jungle", "in the jungle by the great river", "in the land of tall fig trees", "in the Valley of Vines"],
        "the": "the jungle", "near": ["the great fig tree", "the stone temple", "the hanging vines", "the muddy pool", "the giant fern"],
        "water": "the great river", "path": "the jungle path", "high": "the top of the green hill",
        "spots": ["under the giant fern", "behind the great fig tree", "among the hanging vines", "beside the muddy pool", "in the bamboo",
                  "behind the temple steps", "under the broad leaves", "between the twisted roots"],
        "sense": ["The air was warm and smelled of flowers.", "Insects buzzed in the leaves.", "Water dripped from leaf to leaf.", "Something splashed in the river.",
                  "The vines swayed.", "A frog went plip in the shadows."],
        "fine": ["Parrots flashed red and blue above.", "Sunlight dripped through the leaves.", "Bright butterflies rested on the flowers."],
    },
    "savanna": {
        "places": ["on the wide yellow plain", "in the land of tall grass", "on the plain near the water hole", "in the warm grassland", "on the Lion Rock plain"],
        "the": "the plain", "near": ["the thorn tree", "the flat red rock", "the water hole", "the tall ant hill", "the fat baobab tree"],
        "water": "the water hole", "path": "the dusty trail", "high": "the top of the red rock",
        "spots": ["in the tall grass", "under the thorn tree", "behind the flat red rock", "beside the water hole", "behind the tall ant hill", "in the shade of the baobab",
                  "in the dry river bed", "among the grey stones"],
        "sense": ["The tall grass hissed in the wind.", "Dust rose under every step.", "A beetle clicked on a stone.", "The air smelled of dry grass.", "Somewhere a bird whistled two notes."],
        "fine": ["The air shivered in the heat.", "The sky was wide and blue.", "The sun painted the plain with gold."],
    },
    "desert": {
        "places": ["in the red desert", "by an oasis in the desert", "among the golden dunes", "at the edge of the great desert", "in the Land of Sand"],
        "the": "the desert", "near": ["the red rock", "the lonely palm", "the dry well", "the tall cactus", "the clay wall"],
        "water": "the oasis", "path": "the sandy track", "high": "the top of the dune",
        "spots": ["behind the red rock", "under the lonely palm", "beside the dry well", "in the soft sand", "behind the tall cactus", "among the flat stones", "by the clay wall", "under the thorn bush"],
        "sense": ["The sand whispered as it slid.", "The wind drew lines on the dunes.", "The palm leaves rattled.", "The air smelled of dust and dates.", "A lizard's tail flicked behind a stone."],
        "fine": ["The dunes glowed like gold.", "The sun stood high above the sand.", "Not one cloud was in the sky."],
    },
    "snow": {
        "places": ["in the snowy north", "by a frozen lake", "in the land of ice and snow", "at the foot of a white glacier", "in the Village of Long Winters"],
        "the": "the white land", "near": ["the blue iceberg", "the frozen lake", "the snowy pine", "the tall snowdrift", "the ice bridge"],
        "water": "the icy lake", "path": "the snowy trail", "high": "the top of the snowy hill",
        "spots": ["behind the snowy pine", "under the snowdrift", "beside the frozen lake", "behind the block of ice", "in the deep tracks", "under the ice bridge", "at the foot of the white hill", "in the hollow of a log"],
        "sense": ["The snow squeaked underfoot.", "Every breath made a little cloud.", "The ice groaned softly.", "Snow slid from a branch with a thump.", "The cold wind smelled of pine."],
        "fine": ["The snow sparkled in the pale sun.", "The sky was a clear, icy blue.", "The icicles shone like glass."],
    },
    "outback": {
        "places": ["in the wide red outback", "by Billabong Creek", "under the tall gum trees", "in the land of gum trees", "near the dry red hills"],
        "the": "the outback", "near": ["the tallest gum tree", "the round red rock", "the creek", "the hollow stump", "the old fence"],
        "water": "the creek", "path": "the dusty track", "high": "the top of the red hill",
        "spots": ["under the gum tree", "behind the round red rock", "beside the creek", "in the dry grass", "behind the hollow stump", "along the old fence", "under the wattle bush", "among the red stones"],
        "sense": ["The gum leaves rattled softly.", "The air smelled of dust and leaves.", "A magpie called from a fence post.", "The creek trickled over red stones.", "Dry grass tickled the ground."],
        "fine": ["The red earth was warm in the sun.", "The sky was huge and blue.", "Bright parrots chattered in the treetops."],
    },
    "island": {
        "places": ["on a small green island", "on the Island of Shells", "on an island in a warm blue sea", "on Coconut Island", "on a rocky island far out at sea"],
        "the": "the island", "near": ["the tallest palm", "the old wreck", "the black rocks", "the round lagoon", "the stone tower"],
        "water": "the lagoon", "path": "the sandy path", "high": "the top of the green hill",
        "spots": ["under the tallest palm", "behind the black rocks", "beside the lagoon", "inside the old wreck", "among the shells", "in the warm sand", "behind the stone tower", "under the sea grapes"],
        "sense": ["The waves hushed on the sand.", "The air smelled of salt and flowers.", "A coconut dropped with a thud.", "The palm leaves clattered.", "A crab ticked over the stones."],
        "fine": ["The lagoon shone green and blue.", "The sun sparkled on the water.", "White birds wheeled above the hill."],
    },
}

WISE = {  # wise old helpers by setting
    "forest": ["owl", "badger", "tortoise", "raven"], "meadow": ["hare", "toad", "crow", "heron"], "farm": ["horse", "goose", "donkey", "sheepdog"],
    "village": ["cat", "owl", "donkey"], "town": ["cat", "pigeon", "crow"], "seaside": ["pelican", "turtle", "gull", "seal"],
    "mountain": ["goat", "eagle", "raven"], "river": ["heron", "turtle", "otter", "toad"], "garden": ["tortoise", "toad", "crow"],
    "jungle": ["elephant", "parrot", "turtle"], "savanna": ["elephant", "tortoise", "vulture"], "desert": ["camel", "tortoise", "vulture"],
    "snow": ["walrus", "snowy owl", "reindeer"], "outback": ["wombat", "emu", "cockatoo"], "island": ["turtle", "pelican", "parrot"],
}
# For tales about children the wise helper is a person.
WISE_PEOPLE = [("Mr. Brown", "m", "clockmaker"), ("Mrs. Bell", "f", "baker"), ("Mr. Finch", "m", "gardener"), ("Mrs. Moss", "f", "teacher"),
               ("Mr. Pepper", "m", "cobbler"), ("Mrs. Lark", "f", "librarian"), ("Mr. Oak", "m", "carpenter"), ("Mrs. Reed", "f", "weaver"),
               ("Mr. Penny", "m", "postman"), ("Mrs. Dale", "f", "potter"), ("Mr. Cobb", "m", "miller"), ("Mrs. Hill", "f", "beekeeper"),
               ("Mr. Tolliver", "m", "tinker"), ("Mrs. Applegate", "f", "toymaker"), ("Mr. Wick", "m", "lamplighter"), ("Mrs. Fern", "f", "healer")]

TRAITS = {  # trait -> what it was like, with {h} {he} {his} slots
    "brave": ["{He} was not afraid of thunder, or spiders, or the dark.", "When others stepped back, {h} stepped forward."],
    "shy": ["When strangers spoke to {him}, {he} looked at the ground.", "{He} spoke so softly that most people did not hear {him}."],
    "curious": ["{He} asked more questions in a day than others asked in a year.", "{He} wanted to know how everything worked."],
    "kind": ["{He} never passed anyone sad without stopping.", "{He} always saved the last bite for somebody else."],
    "clumsy": ["{He} bumped into things and dropped things, and {he} always laughed about it.", "If there was a bucket anywhere, {h} was sure to step into it."],
    "cheerful": ["{He} sang in the morning and hummed at night.", "Even on grey days {he} found something to smile about."],
    "quiet": ["{He} liked to listen more than {he} liked to talk.", "{He} noticed small things that others missed."],
    "clever": ["{He} could untie any knot and solve any puzzle.", "{He} liked to think before {he} did anything at all."],
    "gentle": ["Even the nervous butterflies were not afraid of {him}.", "{He} walked softly and spoke softly."],
    "stubborn": ["When {he} had made up {his} mind, nobody could change it.", "{He} never gave up, not even when it was time for dinner."],
    "dreamy": ["{He} could watch the clouds for a whole afternoon.", "{His} head was full of stories."],
    "patient": ["{He} could wait a long, long time for something good.", "{He} never hurried, and {he} was never late."],
    "playful": ["{He} could make a game out of a stick and a stone.", "{He} loved to play from morning to night."],
    "proud": ["{He} liked to do everything by {himself}.", "{He} did not like to ask for help."],
    "honest": ["{He} always told the truth, even when it was hard.", "Everybody trusted {him}."],
    "thoughtful": ["{He} remembered every birthday and every promise.", "{He} often sat still and thought about things."],
    "merry": ["{His} laugh was so loud that it made others laugh too.", "{He} knew a hundred jokes, and most of them were good."],
    "helpful": ["{He} carried baskets, opened doors and found lost buttons.", "If something had to be done, {h} was there to help."],
    "careful": ["{He} looked twice before every step.", "{He} folded {his} blanket neatly every morning."],
    "friendly": ["{He} said good morning to everyone, even to the trees.", "{He} had a smile for everybody."],
    "restless": ["{He} could not sit still for one minute.", "{He} always wanted to see what was behind the next hill."],
    "polite": ["{He} said please and thank you, even to the wind.", "{He} never forgot to say good night."],
    "eager": ["{He} wanted to learn everything at once.", "{He} was always the first to get up in the morning."],
}

# How "the most X" is said of a trait, where it is not "most X".
MOST = {"brave": "bravest", "shy": "shyest", "kind": "kindest", "clumsy": "clumsiest", "clever": "cleverest", "gentle": "gentlest",
        "quiet": "quietest", "proud": "proudest", "merry": "merriest", "friendly": "friendliest"}

COLOURS = "red blue green yellow white silver golden orange purple brown grey black pink striped spotted".split()
