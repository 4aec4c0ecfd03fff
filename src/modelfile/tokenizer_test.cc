/// @file
/// What the tokenizers promise, on the small vocabularies of tokenizer_testutil.h: expected pieces worked out by hand,
/// special tokens, BOS and EOS, and equality with a slow encoder on made-up vocabularies.

#include "modelfile/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/prng.h"
#include "modelfile/tokenizer_testutil.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

std::unique_ptr<const Tokenizer> Load(const VocabularySpec& spec) {
  auto tokenizer = spec.Load();
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::vector<std::string> Plain(const Tokenizer& t, std::string_view text) {
  return Pieces(t, t.Encode(text, {.add_special = false}));
}
std::vector<std::string> Parsed(const Tokenizer& t, std::string_view text) {
  return Pieces(t, t.Encode(text, {.add_special = false, .parse_special = true}));
}

TEST(SpmTokenizer, MergesByScoreLeftmostFirst) {
  const auto t = Load(SmallSpm());
  // th, the, at, ▁the, ▁c, ▁cat: each the best pair left.
  EXPECT_THAT(Plain(*t, "the cat"), ElementsAre("▁the", "▁cat"));
  // or, ld, orld, ▁w, ▁world.
  EXPECT_THAT(Plain(*t, "world"), ElementsAre("▁world"));
  // ll and he come before hello; then he+ll and ll+o are no pieces, so hello is out of reach.
  EXPECT_THAT(Plain(*t, "hello"), ElementsAre("▁", "he", "ll", "o"));
  // he, then lo before hel.
  EXPECT_THAT(Plain(*t, "helo"), ElementsAre("▁", "he", "lo"));
  // ▁a first, then the leftmost pairs of six: aa aa aa, aaaa aa.
  EXPECT_THAT(Plain(*t, "aaaaaaa"), ElementsAre("▁a", "aaaa", "aa"));
  EXPECT_THAT(Plain(*t, "  "), ElementsAre("▁▁", "▁"));
  EXPECT_THAT(Plain(*t, "xéé世界"), ElementsAre("▁", "x", "éé", "世界"));
  EXPECT_THAT(Plain(*t, ""), ElementsAre());
}

TEST(SpmTokenizer, FallsBackToBytes) {
  const auto t = Load(SmallSpm());
  EXPECT_THAT(Plain(*t, "ß"), ElementsAre("▁", "<0xC3>", "<0x9F>"));
  EXPECT_THAT(Plain(*t, "a\n"), ElementsAre("▁a", "<0x0A>"));
  EXPECT_THAT(Plain(*t, "\xFF\x80"), ElementsAre("▁", "<0xFF>", "<0x80>"));
  // Without byte tokens there is one unknown token a character.
  VocabularySpec poor = SmallSpm();
  for (size_t i = 0; i < poor.tokens->size(); ++i) {
    if ((*poor.types)[i] == 6) (*poor.types)[i] = 3;
  }
  EXPECT_THAT(Plain(*Load(poor), "aß👍b"), ElementsAre("▁a", "<unk>", "<unk>", "b"));
}

TEST(SpmTokenizer, SpacePrefixIsTheVocabularysChoice) {
  VocabularySpec spec = SmallSpm();
  spec.add_space_prefix = false;
  const auto t = Load(spec);
  EXPECT_THAT(Plain(*t, "the cat"), ElementsAre("the", "▁cat"));
  EXPECT_EQ(t->Decode(t->Encode(" the cat")), " the cat");
  EXPECT_FALSE(t->adds_space_prefix());
}

TEST(SpmTokenizer, ATextThatContinuesAnotherGetsNoSpace) {
  const auto t = Load(SmallSpm());
  const EncodeOptions continues{.add_special = false, .continues = true};
  EXPECT_THAT(Pieces(*t, t->Encode("the cat", continues)), ElementsAre("the", "▁cat"));
  EXPECT_THAT(Pieces(*t, t->Encode("a<tool>a", continues)), ElementsAre("a", "<tool>", "▁a"));
}

TEST(SpmTokenizer, UserDefinedEntriesAreTakenWholeAndLongestFirst) {
  const auto t = Load(SmallSpm());
  EXPECT_THAT(Plain(*t, "a<tool>a"), ElementsAre("▁a", "<tool>", "▁a"));
  EXPECT_THAT(Plain(*t, "<tool"), ElementsAre("▁", "<", "t", "o", "o", "l"));
  EXPECT_THAT(Plain(*t, "\n\n\n\n\n\n"), ElementsAre("\n\n\n\n", "\n\n"));
  EXPECT_THAT(Plain(*t, "\n\n\n\n\n"), ElementsAre("\n\n\n\n", "▁", "<0x0A>"));
  // Gemma's runs of spaces are user-defined, spelled with spaces or with U+2581.
  for (const char* spelling : {"   ", "▁▁▁"}) {
    VocabularySpec gemma = SmallSpm();
    gemma.Add(spelling, 4);
    gemma.add_space_prefix = false;
    const auto g = Load(gemma);
    EXPECT_THAT(Plain(*g, "a   a"), ElementsAre("a", spelling, "a"));
    EXPECT_EQ(g->Decode(g->Encode("a    a")), "a    a");
  }
}

TEST(BpeTokenizer, MergesByRankInsideWords) {
  const auto t = Load(SmallGpt2());
  EXPECT_THAT(Plain(*t, "the cat"), ElementsAre("the", "Ġcat"));
  // th before "Ġ t", so "Ġt" is never made.
  EXPECT_THAT(Plain(*t, " the"), ElementsAre("Ġthe"));
  EXPECT_THAT(Plain(*t, "hello world"), ElementsAre("hello", "Ġworld"));
  EXPECT_THAT(Plain(*t, "aaaaaaa"), ElementsAre("aaaa", "aa", "a"));
  EXPECT_THAT(Plain(*t, "    "), ElementsAre("ĠĠĠĠ"));
  EXPECT_THAT(Plain(*t, "  a"), ElementsAre("Ġ", "Ġ", "a"));  // Words " " and " a".
  EXPECT_THAT(Plain(*t, "é\n\n"), ElementsAre("Ã©", "ĊĊ"));
  EXPECT_THAT(Plain(*t, "123"), ElementsAre("123"));
  EXPECT_THAT(Plain(*t, "xyz"), ElementsAre("x", "y", "z"));
}

TEST(BpeTokenizer, PreTokeniserDecidesWhatMerges) {
  EXPECT_THAT(Plain(*Load(SmallGpt2("qwen2")), "123"), ElementsAre("1", "2", "3"));
  EXPECT_THAT(Plain(*Load(SmallGpt2("smollm")), "123"), ElementsAre("1", "2", "3"));
  const auto llama3 = Load(SmallGpt2("llama-bpe"));
  EXPECT_THAT(Plain(*llama3, "1231"), ElementsAre("123", "1"));
  // Llama 3 takes a word that is an entry as it is, even where no merge makes it.
  EXPECT_THAT(Plain(*llama3, "xyz"), ElementsAre("xyz"));
}

TEST(BpeTokenizer, MergesMayPassThroughWhatIsNoToken) {
  VocabularySpec spec = SmallGpt2();
  spec.merges->push_back("q u");
  spec.merges->push_back("qu i");
  spec.Add("qui");
  const auto t = Load(spec);
  EXPECT_THAT(Plain(*t, "quit"), ElementsAre("qui", "t"));
  EXPECT_THAT(Plain(*t, "quo"), ElementsAre("q", "u", "o"));
}

TEST(BpeTokenizer, ByteWithoutATokenBecomesTheReplacementCharacter) {
  VocabularySpec spec = SmallGpt2();
  const auto at = std::find(spec.tokens->begin(), spec.tokens->end(), "ÿ");
  (*spec.types)[static_cast<size_t>(at - spec.tokens->begin())] = 4;
  const auto t = Load(spec);
  EXPECT_EQ(t->Decode(t->Encode("a\xFF")), "a\xEF\xBF\xBD");
  // DeepSeek LLM does so; then the letter itself, written as text, is that entry.
  EXPECT_THAT(Plain(*t, "ÿ"), ElementsAre("ÿ"));
}

TEST(Tokenizer, ControlTokensComeFromTextOnlyWhenAsked) {
  const auto spm = Load(SmallSpm());
  EXPECT_THAT(Plain(*spm, "<|end|>"), ElementsAre("▁", "<", "|", "e", "n", "d", "|", ">"));
  EXPECT_THAT(Parsed(*spm, "hi<|end|>a"), ElementsAre("▁", "h", "i", "<|end|>", "▁a"));
  EXPECT_THAT(Parsed(*spm, "<s><s>"), ElementsAre("<s>", "<s>"));
  const auto gpt2 = Load(SmallGpt2());
  EXPECT_THAT(Parsed(*gpt2, "the<|im_end|> cat"), ElementsAre("the", "<|im_end|>", "Ġcat"));
  EXPECT_EQ(Plain(*gpt2, "<|im_end|>").size(), 10u);
  // A piece that spells a control token by merges does not become it.
  VocabularySpec trap = SmallSpm();
  trap.Add("s>", 1, -0.5f);
  EXPECT_THAT(Plain(*Load(trap), "<s>"), ElementsAre("▁", "<", "s>"));
}

TEST(Tokenizer, LongestSpecialWins) {
  VocabularySpec spec = SmallGpt2();
  spec.Add("<tool>x", 4);
  spec.Add("<tool>xyz!", 3);
  const auto t = Load(spec);
  EXPECT_THAT(Plain(*t, "<tool>xyz!"), ElementsAre("<tool>x", "y", "z", "!"));
  EXPECT_THAT(Parsed(*t, "<tool>xyz!<tool>"), ElementsAre("<tool>xyz!", "<tool>"));
}

TEST(Tokenizer, PhiThreeMarkersSwallowSpaceAfterThem) {
  VocabularySpec spec = SmallSpm();
  spec.name = "Phi-3 mini";
  EXPECT_THAT(Parsed(*Load(spec), "<|user|> \n a<s> a"), ElementsAre("<|user|>", "▁a", "<s>", "▁", "▁a"));
}

TEST(Tokenizer, AddsBosAndEosByTheVocabularysRules) {
  const auto spm = Load(SmallSpm());
  EXPECT_TRUE(spm->adds_bos());
  EXPECT_FALSE(spm->adds_eos());
  EXPECT_THAT(Pieces(*spm, spm->Encode("the")), ElementsAre("<s>", "▁the"));
  EXPECT_THAT(Pieces(*spm, spm->Encode("")), ElementsAre("<s>"));
  VocabularySpec both = SmallSpm();
  both.add_bos = false;
  both.add_eos = true;
  const auto eos = Load(both);
  EXPECT_THAT(Pieces(*eos, eos->Encode("the")), ElementsAre("▁the", "</s>"));

  EXPECT_FALSE(Load(SmallGpt2())->adds_bos());
  EXPECT_TRUE(Load(SmallGpt2("llama-bpe"))->adds_bos());
  VocabularySpec no_id = SmallGpt2("llama-bpe");
  no_id.bos.reset();
  EXPECT_FALSE(Load(no_id)->adds_bos());
  // Files without the keys rely on SentencePiece's order.
  VocabularySpec bare = SmallSpm();
  bare.bos.reset();
  bare.eos.reset();
  bare.unknown.reset();
  const auto t = Load(bare);
  EXPECT_EQ(t->bos(), TokenId{1});
  EXPECT_EQ(t->eos(), TokenId{2});
  EXPECT_EQ(t->unknown(), TokenId{0});
}

TEST(Tokenizer, KnowsWhatEndsAGeneration) {
  VocabularySpec spec = SmallGpt2();
  spec.Add("<end_of_turn>", 4);  // A file that forgot to call it control.
  spec.Add("stop!", 3);
  spec.Add("halt!", 3);
  const auto size = static_cast<uint32_t>(spec.tokens->size());
  spec.eot = size - 2;
  spec.eom = size - 1;
  const auto t = Load(spec);
  std::vector<std::string> ends;
  for (uint32_t id = 0; id < t->vocab_size(); ++id) {
    if (t->IsEndOfGeneration(TokenId{id})) ends.emplace_back(t->Piece(TokenId{id}));
  }
  EXPECT_THAT(ends, ElementsAre("<|endoftext|>", "<|im_end|>", "<end_of_turn>", "stop!", "halt!"));
  EXPECT_TRUE(t->IsControl(*t->Find("<end_of_turn>")));
  EXPECT_GT(Plain(*t, "<end_of_turn>").size(), 1u);
}

TEST(Tokenizer, TheEndOfAMessageIsNotTheEndWhereOutputsAreSeveralMessages) {
  VocabularySpec v = SmallGpt2();
  v.Add("<|end|>", 3);
  EXPECT_TRUE(Load(v)->IsEndOfGeneration(*Load(v)->Find("<|end|>")));
  v.Add("<|return|>", 3);
  v.Add("<|call|>", 3);
  const auto t = Load(v);
  EXPECT_FALSE(t->IsEndOfGeneration(*t->Find("<|end|>")));
  EXPECT_TRUE(t->IsEndOfGeneration(*t->Find("<|call|>")));
  v.eot = t->Find("<|end|>")->value;
  EXPECT_TRUE(Load(v)->IsEndOfGeneration(*t->Find("<|end|>")));
}

TEST(Tokenizer, GivesBytesPiecesAndIds) {
  const auto t = Load(SmallSpm());
  EXPECT_EQ(t->TokenBytes(*t->Find("▁the")), " the");
  EXPECT_EQ(t->TokenBytes(*t->Find("<0x0A>")), "\n");
  EXPECT_EQ(t->TokenBytes(*t->Find("</s>")), "");
  EXPECT_EQ(t->TokenBytes(*t->Find("</s>"), true), "</s>");
  EXPECT_EQ(t->TokenBytes(*t->Find("<unk>")), "");
  EXPECT_EQ(t->TokenBytes(*t->Find("<tool>")), "<tool>");
  EXPECT_EQ(t->Find("nonesuch"), std::nullopt);
  const auto gpt2 = Load(SmallGpt2());
  EXPECT_EQ(gpt2->TokenBytes(*gpt2->Find("Ġthe")), " the");
  EXPECT_EQ(gpt2->TokenBytes(*gpt2->Find("ÿ")), "\xFF");
  // Of equal pieces the last id counts, as in the reference implementation.
  VocabularySpec twice = SmallGpt2();
  twice.Add("the");
  EXPECT_EQ(Load(twice)->Find("the"), TokenId{static_cast<uint32_t>(twice.tokens->size()) - 1});
}

TEST(Tokenizer, DecodeDropsOnlyTheSpacesThatEncodeAdded) {
  const auto t = Load(SmallSpm());
  for (const std::string text : {"the cat", " the", "  ", "<|user|>a<|end|> the", "<|user|> a", "a<tool>b<tool> c"}) {
    const auto ids = t->Encode(text, {.parse_special = true});
    EXPECT_EQ(t->Decode(ids, true), "<s>" + text);
  }
  EXPECT_EQ(t->Decode(t->Encode("<|user|>the<|end|>", {.parse_special = true})), "the");
}

/// Random text of pieces that the vocabularies know, letters, and any bytes.
std::string RandomText(Prng& random, size_t units) {
  static constexpr std::string_view kUnits[] = {"the",  " ",      "  ",   "cat", "a",  "aaaa", "hello", "\n",
                                                "\n\n", "<tool>", "世界", "é",   "ß",  "👍",   "1",     "12",
                                                "'s",   "<s>",    "ab",   "bc",  "or", "ld"};
  std::string text;
  for (size_t i = 0; i < units; ++i) {
    if (random.Below(4) == 0) {
      text.push_back(static_cast<char>(random.Below(256)));
    } else {
      text += kUnits[random.Below(std::size(kUnits))];
    }
  }
  return text;
}

TEST(Tokenizer, DecodeUndoesEncode) {
  std::vector<std::unique_ptr<const Tokenizer>> all;
  all.push_back(Load(SmallSpm()));
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm", "default"}) {
    all.push_back(Load(SmallGpt2(pre)));
  }
  Prng random(3);
  for (int round = 0; round < 300; ++round) {
    const std::string text = RandomText(random, random.Below(200));
    for (const auto& t : all) {
      EXPECT_EQ(t->Decode(t->Encode(text)), text);
      EXPECT_EQ(t->Decode(t->Encode(text, {.add_special = false, .parse_special = true}), true), text);
    }
  }
}

/// A vocabulary of random pieces over few letters, so that much merges and ties are common.
VocabularySpec RandomVocabulary(Prng& random, bool gpt2) {
  VocabularySpec v;
  v.model = gpt2 ? "gpt2" : "llama";
  v.pre = "gpt-2";
  v.tokens.emplace();
  v.types.emplace();
  if (gpt2) {
    v.merges.emplace();
  } else {
    v.scores.emplace();
  }
  v.add_space_prefix = false;
  for (const char* letter : {"a", "b", "c", "é"}) v.Add(letter, 1, -100);
  const uint64_t count = 4 + random.Below(60);
  for (uint64_t i = 0; i < count; ++i) {
    const std::string left = (*v.tokens)[random.Below(v.tokens->size())];
    const std::string right = (*v.tokens)[random.Below(v.tokens->size())];
    const std::string merged = left + right;
    if (merged.size() > 40) continue;
    const bool known = std::find(v.tokens->begin(), v.tokens->end(), merged) != v.tokens->end();
    if (gpt2) v.merges->push_back(left + " " + right);
    if (!known) v.Add(merged, 1, -static_cast<float>(random.Below(8)));
  }
  return v;
}

TEST(Tokenizer, MergesAsTheSlowEncoderDoes) {
  Prng random(11);
  for (int round = 0; round < 200; ++round) {
    const bool gpt2 = round % 2 == 0;
    const VocabularySpec spec = RandomVocabulary(random, gpt2);
    const auto t = Load(spec);
    // Lengths on both sides of the switch from scanning to queueing.
    for (const uint64_t length : {1, 2, 7, 30, 64, 65, 90, 300}) {
      std::string text, word;
      for (uint64_t i = 0; i < length; ++i) {
        const char letter = static_cast<char>('a' + random.Below(3));
        text.push_back(letter);
      }
      EXPECT_THAT(Plain(*t, text), ElementsAreArray(SlowMerge(spec, text))) << "round " << round << " text " << text;
    }
  }
}

TEST(Tokenizer, LongWordsMergeLikeShortOnes) {
  // A word of many equal stretches that no merge joins: its ids are those of the stretch, over and over. Long enough
  // for the queue's bins.
  Prng random(12);
  for (const bool gpt2 : {true, false}) {
    for (int round = 0; round < 20; ++round) {
      VocabularySpec spec = RandomVocabulary(random, gpt2);
      spec.Add("z", 1, -100);
      const auto t = Load(spec);
      std::string stretch;
      while (stretch.size() < 150) stretch.push_back(static_cast<char>('a' + random.Below(3)));
      stretch.push_back('z');
      std::string text;
      std::vector<std::string> expected;
      const std::vector<std::string> one = SlowMerge(spec, stretch);
      for (int i = 0; i < 100; ++i) {
        text += stretch;
        expected.insert(expected.end(), one.begin(), one.end());
      }
      EXPECT_EQ(Plain(*t, text), expected) << "round " << round << (gpt2 ? " gpt2" : " llama");
    }
  }
}

TEST(Tokenizer, IsSafeFromManyThreads) {
  const auto t = Load(SmallGpt2());
  Prng random(5);
  const std::string text = RandomText(random, 5000);
  const auto expected = t->Encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) wrong += t->Encode(text) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tokenizer, ReplaysTheFuzzCorpus) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVIST_SOURCE_DIR "/tests/fuzz/tokenizer")) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string data(std::istreambuf_iterator<char>(in), {});
    SCOPED_TRACE(entry.path().string());
    FuzzTokenizer(data);
    ++files;
  }
  EXPECT_GT(files, 20);
}

}  // namespace
}  // namespace kvist
