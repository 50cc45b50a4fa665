// The pinned files of every checkpoint: names, sizes and SHA-256 as the Hub serves them at the
// pinned revisions. A size of 0 or an empty SHA-256 means that no public record of it was found.
#include "model/checkpoint_files.h"

namespace kipp {
namespace {

constexpr bool kVerified = true;
constexpr bool kUnverified = false;

// The same bytes in several repositories.
constexpr PinnedFile kBaseGeneration{
    "generation_config.json", 138,
    "8c970692323e3ea0e9b8b0a4dca79388d31226e41f83c9fd6014804280ebf6e8", kVerified};
constexpr PinnedFile kBaseTokenizer{
    "tokenizer.json", 7031645, "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
    kVerified};
constexpr PinnedFile kBaseTokenizerConfig{
    "tokenizer_config.json", 9678,
    "3c04ed3ca964ea2f6b2b5faf0dc4d31aec1cb1e8b4bcf63f402d295046b422b5", kVerified};
constexpr PinnedFile kVocabJson{"vocab.json", 2776833,
                                "ca10d7e9fb3ed18575dd1e277a2579c16d108e32f27439684afa0e10b1440910",
                                kVerified};
constexpr PinnedFile kMergesTxt{"merges.txt", 1671853,
                                "8831e4f1a044471340f7c0a83d7bd71306a5b867e95fd870f74d0c5308a904d5",
                                kVerified};
constexpr PinnedFile k4bIndex{"model.safetensors.index.json", 32819,
                              "d6c42883a895dfef5b0080ed2116a1bcd764f558406b98923d675978a1abf29c",
                              kVerified};
constexpr PinnedFile kInstructGeneration{
    "generation_config.json", 239,
    "2325da0f15bb848e018c5ae071b7943332e9f871d6b60e2ed22ca97d4cb993d2", kVerified};
constexpr PinnedFile kInstructTokenizer{
    "tokenizer.json", 11422654, "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    kVerified};
constexpr PinnedFile kInstructTokenizerConfig{
    "tokenizer_config.json", 9732,
    "d5d09f07b48c3086c508b30d1c9114bd1189145b74e982a265350c923acd8101", kVerified};

// Expected in this repository too, by inference or from one source.
constexpr PinnedFile unverified(PinnedFile file) {
  file.verified = false;
  return file;
}

constexpr PinnedFile kQwen306bBaseFiles[] = {
    {"model.safetensors", 1192135096,
     "cd2a512003e2f9f3cd3c32a9c3573f820bb28c940f73c57b1ddaa983d9223eba", kVerified},
    {"config.json", 727, "504a6b58c4271583724e66584b6b7698aea18450209df6b2f7582df0e89cee59",
     kVerified},
    kBaseGeneration,
    kBaseTokenizer,
    kBaseTokenizerConfig,
    kVocabJson,
    kMergesTxt,
};

constexpr PinnedFile kQwen317bBaseFiles[] = {
    {"model.safetensors", 3441185608,
     "6df85b39330e5a425ee36253d0f894e4387e4f0a15b9c53cb467d668e6b3a841", kVerified},
    {"config.json", 727, "1bb33a92c3548fbc68b889b490e810440435253598835bd71dff0396060c12db",
     kVerified},
    kBaseGeneration,
    kBaseTokenizer,
    kBaseTokenizerConfig,
    kVocabJson,
    kMergesTxt,
};

constexpr PinnedFile kQwen34bBaseFiles[] = {
    {"model-00001-of-00003.safetensors", 3957900840,
     "4c807e2503d68ae373d508689d00a41f4b33f33c2536da97ab81a20caddc1241", kVerified},
    {"model-00002-of-00003.safetensors", 3987450520,
     "f4707585548b2fc75a6b1d732e8465c62040a8699903c32850781beeb9b27826", kVerified},
    {"model-00003-of-00003.safetensors", 99630640,
     "c7b1aa8fb672de2e00423c99876926022e50b18d4f0d140670788510a27f9965", kVerified},
    k4bIndex,
    {"config.json", 727, "304b2545a258d35620f1d4bf46940c0471d9baa00715ff8e77f84c2fca5057c1",
     kVerified},
    kBaseGeneration,
    kBaseTokenizer,
    kBaseTokenizerConfig,
    kVocabJson,
    kMergesTxt,
};

constexpr PinnedFile kQwen38bBaseFiles[] = {
    {"model-00001-of-00005.safetensors", 3996250744,
     "9983f1b9ef2f60e7c3730d9bc11ada914e6ec630639b5b020a89bd158cd0446b", kVerified},
    {"model-00002-of-00005.safetensors", 3993160032,
     "9aa12339835bf7a093d3d0b0a0d2d77f8538301cfc7f8e7ec7a585858ebf7a1f", kVerified},
    {"model-00003-of-00005.safetensors", 3959604768,
     "c7dd5a191c8da555def0714550375b3c0117751add408fcdda0c2a79ac0186bc", kVerified},
    {"model-00004-of-00005.safetensors", 3187841392,
     "ad8b708792105133e03fe19e2d56c89c709f677f01285f8b3ede8947d59fd9fe", kVerified},
    {"model-00005-of-00005.safetensors", 1244659840,
     "fbf24915d47ea030bb68ab0b9488f4515a907185baa6dc26837c9c3f2326a550", kVerified},
    {"model.safetensors.index.json", 32878,
     "cd39d5e44c5aadfd1954b598883aea1c4a98822a2f7723d214ef2278b7fec2e4", kUnverified},
    {"config.json", 729, "3bd01d7ad7a2e203ecbbe84e24087a51c6d2a108ee4bcc42d0016bf49564983a",
     kVerified},
    kBaseGeneration,
    kBaseTokenizer,
    kBaseTokenizerConfig,
    kVocabJson,
    kMergesTxt,
};

constexpr PinnedFile kQwen314bBaseFiles[] = {
    {"model-00001-of-00008.safetensors", 3841788544,
     "fd1c6d2cf56f0a67d4d1491e8fee36cc6e5bfd6a114ab4e61667a63763662b3a", kUnverified},
    {"model-00002-of-00008.safetensors", 3963750816,
     "92dbde5d38ecb4fb25b405d1c4d46907481317be6646e8492a22463b48fd09a5", kUnverified},
    {"model-00003-of-00008.safetensors", 3963750880,
     "60945918edc6fb2eca950ca2d6d350020f31b805d02b7cac53cd1fac96c1a804", kUnverified},
    {"model-00004-of-00008.safetensors", 3963750880,
     "dc3757a85266e177e57719b334052137d881f4d5a586a4a239c5844c00f9fbb5", kUnverified},
    {"model-00005-of-00008.safetensors", 3963750880,
     "10d1be9a383fd3371f00916d26484a263c08649bfc59ba94a7afe78ae86285ce", kUnverified},
    {"model-00006-of-00008.safetensors", 3963750880,
     "c046e2c218ad550b8a535ce001b258913c5d956e243d01c2a67acc8c4bca8294", kUnverified},
    {"model-00007-of-00008.safetensors", 3963750880,
     "27a80e8c324120762187ae76b8cb4983e332b6843645d79137cefe964b19ed2a", kUnverified},
    {"model-00008-of-00008.safetensors", 1912371880,
     "73bcc7f129c1884540a8ea079cd5e8b3ec07f4cd66bf1b5a71d3d2c276af160f", kUnverified},
    {"model.safetensors.index.json", 0, "", kUnverified},
    {"config.json", 0, "", kUnverified},
    unverified(kBaseGeneration),
    unverified(kBaseTokenizer),
    unverified(kBaseTokenizerConfig),
    unverified(kVocabJson),
    unverified(kMergesTxt),
};

constexpr PinnedFile kQwen306bFiles[] = {
    {"model.safetensors", 1503300328,
     "f47f71177f32bcd101b7573ec9171e6a57f4f4d31148d38e382306f42996874b", kVerified},
    {"config.json", 726, "660db3b73d788119c04535e48cf9be5f55bc3100841a718637ae695b442f27dd",
     kVerified},
    kInstructGeneration,
    kInstructTokenizer,
    kInstructTokenizerConfig,
    kVocabJson,
    kMergesTxt,
};

constexpr PinnedFile kQwen317bFiles[] = {
    {"model-00001-of-00002.safetensors", 3441185608,
     "169ad53ec313c3a34b06c0809216e4fc072cce444a5d4ff2b59690d064130ed5", kVerified},
    {"model-00002-of-00002.safetensors", 622329984,
     "912becff8d60672aa8628ef08c05898d9adf17c2ad4ae3caf99b065622fdeff9", kVerified},
    {"model.safetensors.index.json", 25605,
     "0d660e94b165eb912669a5249dff44b83188c4777a07ddb9611fb78d91b0578d", kVerified},
    {"config.json", 726, "1ddb5b89ebc90dcb417a45c213d818577e65976454d29385c8f6140771d95197",
     kVerified},
    kInstructGeneration,
    kInstructTokenizer,
    kInstructTokenizerConfig,
    kVocabJson,
    kMergesTxt,
};

constexpr PinnedFile kQwen34bFiles[] = {
    {"model-00001-of-00003.safetensors", 3957900840,
     "328a91d3122359d5547f9d79521205bc0a46e1f79a792dfe650e99fc2d651223", kVerified},
    {"model-00002-of-00003.safetensors", 3987450520,
     "6cd087b316306a68c562436b5492edbcf6e16c6dba3a1308279caa5a58e21ca5", kVerified},
    {"model-00003-of-00003.safetensors", 99630640,
     "e4bf436957184f4eeb86a80e9db394503f1f56446b2e6b7edeac5b81470f4ca1", kVerified},
    {"model.safetensors.index.json", 32819,
     "6dc0981b8829fead746441f68f38f24c5ca4a3a66351f652c26c6df0efc43ab2", kVerified},
    {"config.json", 726, "8ba006f74fecfaaeb392872a60f4a480e7ec9860153d2e1b769ec81f9a147f8a",
     kVerified},
    kInstructGeneration,
    kInstructTokenizer,
    kInstructTokenizerConfig,
    kVocabJson,
    kMergesTxt,
};

constexpr PinnedFile kQwen38bFiles[] = {
    {"model-00001-of-00005.safetensors", 3996250744,
     "31d6a825ae35f11fb85b195b4c42c146c051e446433125a215336abdf95cbf5f", kVerified},
    {"model-00002-of-00005.safetensors", 3993160032,
     "5991236cea6fe21f3d43cab0f0e84448734fbbe0789816202989f2ddc9d18282", kVerified},
    {"model-00003-of-00005.safetensors", 3959604768,
     "c5185c4794be2d8a9784d5753c9922db38df478ce11f9ed0b415b7304d896836", kVerified},
    {"model-00004-of-00005.safetensors", 3187841392,
     "b5ee7de71fbf17db3d5704e0c8f2bc7d005ca9e1d7ca2aeb19827b0cfcaa917a", kVerified},
    {"model-00005-of-00005.safetensors", 1244659840,
     "20c2d6366ab85c90786ccdd829cd2b9e7d30ef3b2ebbb998280e7e4014b542ff", kVerified},
    {"model.safetensors.index.json", 32878,
     "f9fdbcb91c23971c13ec5d5f2573d2349e8f61f2f049371ec699281748fdb1bc", kVerified},
    {"config.json", 728, "f7c4eadfbbf522470667b797a3c89be2524832d2d599797248dc304fff447c30",
     kVerified},
    kInstructGeneration,
    kInstructTokenizer,
    kInstructTokenizerConfig,
    kVocabJson,
    kMergesTxt,
};

constexpr PinnedFile kQwen314bFiles[] = {
    {"model-00001-of-00008.safetensors", 3841788544,
     "e942bdbdf08857d16a8fef7d1dae9fceabeb4e84def6043485fe2f6f085dab0e", kVerified},
    {"model-00002-of-00008.safetensors", 3963750816,
     "f7c9c6eee628f5ad831d2d1d292e120505e5fcadeb38f88b4d3c4cb86306ccf9", kVerified},
    {"model-00003-of-00008.safetensors", 3963750880,
     "dfb8c5df9404b41ad6ae74e8b6b367135f017b4467b884cf71b17c71954f18a9", kVerified},
    {"model-00004-of-00008.safetensors", 3963750880,
     "eab286fec759e3e59ab228621aefa0fef14ed56039e06f959e67257d5af7604d", kVerified},
    {"model-00005-of-00008.safetensors", 3963750880,
     "97f0dc2992e59da95c466eff6f4fd0c8335843bbc36ed5c913a6f5150748c0e6", kVerified},
    {"model-00006-of-00008.safetensors", 3963750880,
     "9e8e76a013cd5e253865b792991e0b410f869b136b3c500079b531b09198e99e", kVerified},
    {"model-00007-of-00008.safetensors", 3963750880,
     "0aee70ee6e91dc00d818804fb47f124d13ee4ad5b4a64553e09dbf9391cd5750", kVerified},
    {"model-00008-of-00008.safetensors", 1912371880,
     "0d6b92296e326d39bbbaeb32c3ec454ac606da843d4c8ffa8edf010b62b8c9e0", kVerified},
    {"model.safetensors.index.json", 36514,
     "62d7ad35757bae5e7baa452cb1483178b7daa50e869e923226b8da10871f7ebc", kVerified},
    {"config.json", 728, "e73c3664ca09b10a673fef0c22e8a6b456201d49bd4713c9691f775720e8857a",
     kVerified},
    kInstructGeneration,
    kInstructTokenizer,
    kInstructTokenizerConfig,
    kVocabJson,
    kMergesTxt,
};

constexpr PinnedFile kQwen332bFiles[] = {
    {"model-00001-of-00017.safetensors", 3957109648,
     "52562b2ff97b61764260273e71bf5b4cf8a66f569399398f26dec0300fcf1316", kVerified},
    {"model-00002-of-00017.safetensors", 3900791760,
     "e26764b2c6878e3fb7198895fa833ec62838d84a19665e6abfbae43c6daf02b3", kVerified},
    {"model-00003-of-00017.safetensors", 3900791760,
     "6c5ba7bed9c52bc121e75cbe8a7be46936d0006cc80f42a6d5886ed40b4c2a62", kVerified},
    {"model-00004-of-00017.safetensors", 3900791800,
     "f736f6ac4d8c30866107fb1185a05b3c3cfce9717720082f466fa44e691bcec8", kVerified},
    {"model-00005-of-00017.safetensors", 3900791800,
     "a52ed375c083209c54d42ac510afeb1fbb5af4f193be2dc7d103f665a0f212d3", kVerified},
    {"model-00006-of-00017.safetensors", 3900791800,
     "37fae28990b0e4a70228549d040c0393e87bee3820d59e58e47844974d8dff5b", kVerified},
    {"model-00007-of-00017.safetensors", 3900791800,
     "37776006aeaba29eca8bc73b2b963fe3477e1c2e3f6a27cb9527be75b905e1bf", kVerified},
    {"model-00008-of-00017.safetensors", 3900791800,
     "73e74e9129674fe330948005075d70ab4fa0b92b68fb220c5a693f9cea553730", kVerified},
    {"model-00009-of-00017.safetensors", 3900791800,
     "a044b3602a01bd8ea62ff51badf9cc038ab1d73d97399480e6a55b4c86fa7fa6", kVerified},
    {"model-00010-of-00017.safetensors", 3900791800,
     "9966612ba7ecfc2cd2e592fb95224b86d743271ff88e172cc272a4b26382aa75", kVerified},
    {"model-00011-of-00017.safetensors", 3900791800,
     "e2a058a0ac7d4b992b731c29221ecfb4b76b8a48d9004d0e8a62ba44f699845c", kVerified},
    {"model-00012-of-00017.safetensors", 3900791800,
     "58a1aa89093fea07325f787072a468e3482a470ff4b7fe5ead5f749683907c40", kVerified},
    {"model-00013-of-00017.safetensors", 3900791800,
     "35f3381bab31a23370c37d922290aeecdf603418336058fb86fe42d8f51ac40c", kVerified},
    {"model-00014-of-00017.safetensors", 3900791800,
     "8713b062ddc178acf5917610b7f4b64eede833b2ea4aa37bd562dcf2f3a3339d", kVerified},
    {"model-00015-of-00017.safetensors", 3900791800,
     "bec439d23931821a236d8f62fa79deecf5551bd25602278aa2ae0ce432b378cf", kVerified},
    {"model-00016-of-00017.safetensors", 3900791800,
     "e569139fadd61fe7c8f9eb1c976d9a627cae48c57ddf228cfbd0593c59c64ff7", kVerified},
    {"model-00017-of-00017.safetensors", 3055341992,
     "1f47c318fcd7797c0f85b4233cb754438b10e795b8bc874889090c416a94bd38", kVerified},
    {"model.safetensors.index.json", 58330,
     "bed42c6c55274bc08a1f616bceb3bcb84b3f02cb6584c573bd18c6519291ecd0", kVerified},
    {"config.json", 728, "97e295b63283935788fac5e4f8860862a56d4089538cafc93f0431f2ebe483bb",
     kVerified},
    kInstructGeneration,
    kInstructTokenizer,
    kInstructTokenizerConfig,
    kVocabJson,
    kMergesTxt,
};

constexpr PinnedFile kQwen34bInstruct2507Files[] = {
    {"model-00001-of-00003.safetensors", 3957900840,
     "75311d91bb08cf0b882913da464a1e722a31fb44db35208663487efb7a3d8ed6", kVerified},
    {"model-00002-of-00003.safetensors", 3987450520,
     "0b48adbb1f60e901153d91907ba11ce63bd4b8b584482e730f48808d055dfba1", kVerified},
    {"model-00003-of-00003.safetensors", 99630640,
     "7dd39ccca5e4de123c74c14af44c9bf2eb75df33b4614382af0134528e060d5d", kVerified},
    k4bIndex,
    {"config.json", 727, "5beea1a4a34c62782bfb2f911c606741a3bab8f92d80a118fa053c28af12e8ba",
     kVerified},
    {"generation_config.json", 238,
     "835fffe355c9438e7a25be099b3fccaa98350b83451f9fd2d99512e74f1ade48", kVerified},
    kInstructTokenizer,
    {"tokenizer_config.json", 9377,
     "a62ff0a2472a0fa1b8eaabcb57c59b58afa42a22831dc141400b6e0cf2b65ce3", kVerified},
    kVocabJson,
    {"merges.txt", 1671839, "599bab54075088774b1733fde865d5bd747cbcc7a547c5bc12610e874e26f5e3",
     kVerified},
};

constexpr PinnedFile kQwen34bThinking2507Files[] = {
    {"model-00001-of-00003.safetensors", 3957900840,
     "98178c1cddbca8ad76102afdbf76e4df79b64b82377ad4dca34c755cac00571a", kUnverified},
    {"model-00002-of-00003.safetensors", 3987450520,
     "57b5bd1f667d420350f169342a90b50e5ffc2aa202ba1819da1af3367ff2261f", kUnverified},
    {"model-00003-of-00003.safetensors", 99630640,
     "e3cccb84e8926f3f18c334465639939a68af310b0729938fccc2de66a9a31953", kUnverified},
    unverified(k4bIndex),
    {"config.json", 0, "", kUnverified},
    {"generation_config.json", 0, "", kUnverified},
    unverified(kInstructTokenizer),
    {"tokenizer_config.json", 10834,
     "60adcfc35f5f251e19a196ec977b4ca0fcfb534852911b3196d68d5e3b146aa0", kVerified},
    unverified(kVocabJson),
    {"merges.txt", 0, "", kUnverified},
};

}  // namespace

std::span<const PinnedFile> pinned_files(std::string_view id) {
  if (id == "qwen3-0.6b-base") return kQwen306bBaseFiles;
  if (id == "qwen3-1.7b-base") return kQwen317bBaseFiles;
  if (id == "qwen3-4b-base") return kQwen34bBaseFiles;
  if (id == "qwen3-8b-base") return kQwen38bBaseFiles;
  if (id == "qwen3-14b-base") return kQwen314bBaseFiles;
  if (id == "qwen3-0.6b") return kQwen306bFiles;
  if (id == "qwen3-1.7b") return kQwen317bFiles;
  if (id == "qwen3-4b") return kQwen34bFiles;
  if (id == "qwen3-8b") return kQwen38bFiles;
  if (id == "qwen3-14b") return kQwen314bFiles;
  if (id == "qwen3-32b") return kQwen332bFiles;
  if (id == "qwen3-4b-instruct-2507") return kQwen34bInstruct2507Files;
  if (id == "qwen3-4b-thinking-2507") return kQwen34bThinking2507Files;
  return {};
}

}  // namespace kipp
