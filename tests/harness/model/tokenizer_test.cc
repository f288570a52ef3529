// The tokenizer against llama2.c's rules, spelled out naively here, and against the real files.
#include "harness/model/model.h"
#include "tests/harness/model/model_support.h"

namespace kv::tokenizer_test {
namespace {

using test::contains;
using test::data_path;
using test::refusal;
using test::TempFile;

struct Piece {
  std::string text;
  float score;
};

// 0 <unk>, 1 BOS, 2 EOS, then characters and what they merge to.
std::vector<Piece> small_vocabulary() {
  return {{"<unk>", 0}, {"\n<s>\n", 0}, {"\n</s>\n", 0}, {" ", -1},  {"a", -2},  {"b", -3},    {"c", -4},
          {"é", -5},    {"ab", -6},     {"bc", -5.5f},   {"aa", -7}, {" a", -8}, {"aab", -20}, {"aaa", -9}};
}

std::vector<Piece> with_byte_pieces() {
  std::vector<Piece> pieces = small_vocabulary();
  std::vector<Piece> bytes;
  for (int i = 0; i < 256; ++i) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", i);
    bytes.push_back({name, 0});
  }
  pieces.insert(pieces.begin() + 3, bytes.begin(), bytes.end());
  return pieces;
}

std::string file_of(const std::vector<Piece>& pieces, uint32_t max_length = 7) {
  std::string bytes;
  test::append_raw(bytes, &max_length, 1);
  for (const Piece& piece : pieces) {
    const int32_t length = static_cast<int32_t>(piece.text.size());
    test::append_raw(bytes, &piece.score, 1);
    test::append_raw(bytes, &length, 1);
    bytes += piece.text;
  }
  return bytes;
}

model::Tokenizer tokenizer_of(const std::vector<Piece>& pieces) {
  const TempFile file(file_of(pieces));
  return model::Tokenizer(file.path(), static_cast<int>(pieces.size()));
}

// run.c's merging as it stands there: scan all pairs, merge the best (the first of equals), and again.
std::vector<int> merge_naively(std::vector<int> ids, const std::vector<Piece>& pieces) {
  for (;;) {
    size_t best_at = 0;
    int best = -1;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const std::string both =
          pieces[static_cast<size_t>(ids[i])].text + pieces[static_cast<size_t>(ids[i + 1])].text;
      for (size_t id = 3; id < pieces.size(); ++id) {
        if (pieces[id].text != both) continue;
        if (best < 0 || pieces[id].score > pieces[static_cast<size_t>(best)].score) {
          best = static_cast<int>(id);
          best_at = i;
        }
      }
    }
    if (best < 0) return ids;
    ids[best_at] = best;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(Tokenizer, BeginsWithBosAndADummySpace) {
  const model::Tokenizer tokenizer = tokenizer_of(small_vocabulary());
  EXPECT_EQ(tokenizer.encode(""), (std::vector<int>{1}));
  EXPECT_EQ(tokenizer.encode("b"), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(tokenizer.encode("a"), (std::vector<int>{1, 11}));
}

TEST(Tokenizer, MergesTheBestScoreFirstAndTheLeftmostOfEquals) {
  const model::Tokenizer tokenizer = tokenizer_of(small_vocabulary());
  EXPECT_EQ(tokenizer.encode("cabc"), (std::vector<int>{1, 3, 6, 4, 9}));     // "bc" before "ab"
  EXPECT_EQ(tokenizer.encode("caaaa"), (std::vector<int>{1, 3, 6, 10, 10}));  // not a, aa, a
}

TEST(Tokenizer, EqualsTheNaiveMergeOnRandomTexts) {
  const std::vector<Piece> pieces = small_vocabulary();
  const model::Tokenizer tokenizer = tokenizer_of(pieces);
  std::mt19937 bits(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> ids = {1, 3};
    std::string text;
    for (unsigned i = 0; i <= bits() % 24; ++i) {
      ids.push_back(3 + static_cast<int>(bits() % 4));
      text += pieces[static_cast<size_t>(ids.back())].text;
    }
    EXPECT_EQ(tokenizer.encode(text), merge_naively(ids, pieces)) << text;
  }
}

TEST(Tokenizer, UnknownCharactersBecomeUnkWithoutBytePieces) {
  const model::Tokenizer tokenizer = tokenizer_of(small_vocabulary());
  EXPECT_EQ(tokenizer.encode("bü\né"), (std::vector<int>{1, 3, 5, 0, 0, 7}));
  EXPECT_EQ(tokenizer.decode(std::vector<int>{1, 3, 5, 0}), "b<unk>");
}

TEST(Tokenizer, UnknownCharactersBecomeTheirBytesWhereTheFileHasThem) {
  const model::Tokenizer tokenizer = tokenizer_of(with_byte_pieces());
  EXPECT_EQ(tokenizer.encode("bü"), (std::vector<int>{1, 259, 261, 3 + 0xC3, 3 + 0xBC}));
  const std::string everything = std::string("a\0\n\xFF\xC3 \xE2\x82 é€abc  aa<s><0x41>", 30);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(everything)), everything);
}

TEST(Tokenizer, ControlPiecesDoNotComeOutOfText) {
  std::vector<Piece> pieces = small_vocabulary();
  pieces[0].text = "ca";  // would be the merge of c and a
  const model::Tokenizer tokenizer = tokenizer_of(pieces);
  EXPECT_EQ(tokenizer.encode("ca"), (std::vector<int>{1, 3, 6, 4}));
}

TEST(Tokenizer, DecodeDropsOneSpaceAfterBosOnly) {
  const model::Tokenizer tokenizer = tokenizer_of(small_vocabulary());
  EXPECT_EQ(tokenizer.decode(std::vector<int>{1, 11, 11}), "a a");
  EXPECT_EQ(tokenizer.decode(std::vector<int>{11, 11}), " a a");
  EXPECT_EQ(tokenizer.decode(std::vector<int>{1, 3, 3, 5, 2, 1, 11}), " ba");
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  const model::Tokenizer tokenizer = tokenizer_of(small_vocabulary());
  EXPECT_TRUE(contains(refusal([&] { tokenizer.decode(std::vector<int>{14}); }), "id 14: expected 0 to 13"));
  EXPECT_TRUE(contains(refusal([&] { tokenizer.decode(std::vector<int>{-1}); }), "id -1"));
}

std::string refusal_of(const std::string& bytes, int vocab_size) {
  const TempFile file(bytes);
  const std::string message = refusal([&] { model::Tokenizer(file.path(), vocab_size); });
  EXPECT_TRUE(contains(message, file.path())) << message;
  return message;
}

TEST(Tokenizer, RefusesEveryTruncation) {
  const std::string whole = file_of(small_vocabulary());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(
        contains(refusal_of(whole.substr(0, size), 14), size < 4 ? "max_token_length" : "ends in the"));
  }
}

TEST(Tokenizer, RefusesAnotherModelsVocabulary) {
  const std::string whole = file_of(small_vocabulary());
  EXPECT_TRUE(
      contains(refusal_of(whole, 15), "ends in the score of piece 14 of 15: expected 4 bytes, found 0"));
  EXPECT_TRUE(contains(refusal_of(whole, 13), "11 bytes are left after the 13 pieces"));
  EXPECT_TRUE(contains(refusal_of(whole, 2147483647), "piece 14 of 2147483647"));
  EXPECT_TRUE(contains(refusal_of(whole, 2), "expected at least 3"));
  EXPECT_TRUE(contains(refusal_of(whole, -14), "expected at least 3"));
}

TEST(Tokenizer, RefusesAbsurdPieces) {
  std::string bytes = file_of(small_vocabulary());
  const auto with_word = [&](size_t at, uint32_t word) {
    std::string changed = bytes;
    std::memcpy(changed.data() + at, &word, sizeof(word));
    return changed;
  };
  EXPECT_TRUE(contains(refusal_of(with_word(8, 0xFFFFFFFF), 14), "piece 0 of 14 has the length -1"));
  EXPECT_TRUE(contains(refusal_of(with_word(8, 8), 14), "length 8, expected 0 to max_token_length, 7"));
  EXPECT_TRUE(contains(refusal_of(with_word(4, 0x7FC00000), 14), "piece 0 of 14 has the score nan"));
}

TEST(Tokenizer, RefusesWhatIsNoFile) {
  EXPECT_TRUE(
      contains(refusal([] { model::Tokenizer("/no/such/file", 14); }), "/no/such/file: No such file"));
  EXPECT_TRUE(contains(refusal([] { model::Tokenizer(testing::TempDir(), 14); }), "not a regular file"));
}

TEST(RealTokenizer, ReproducesTheIdsThatTheTextsWereStoredAs) {
  if (test::data_is_absent()) GTEST_SKIP() << test::why_skipped();
  const model::Tokenizer tokenizer(data_path("models/tok512.bin"), 512);
  for (const char* name : {"text/grimms_fairy_tales.tok512.u16", "text/alice_in_wonderland.tok512.u16"}) {
    const std::string bytes = test::read_all(data_path(name));
    std::vector<uint16_t> stored(bytes.size() / sizeof(uint16_t));
    std::memcpy(stored.data(), bytes.data(), stored.size() * sizeof(uint16_t));
    const std::vector<int> ids(stored.begin(), stored.end());
    EXPECT_EQ(tokenizer.encode(tokenizer.decode(ids)), ids) << name;
  }
}

TEST(RealTokenizer, RoundTripsWholeBooks) {
  if (test::data_is_absent()) GTEST_SKIP() << test::why_skipped();
  const model::Tokenizer tokenizer(data_path("models/tok512.bin"), 512);
  for (const char* name : {"text/grimms_fairy_tales.txt", "text/tinystories_1000.txt"}) {
    const std::string text = test::read_all(data_path(name));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << name;
  }
}

TEST(RealTokenizer, CharactersOfTok105) {
  if (test::data_is_absent()) GTEST_SKIP() << test::why_skipped();
  const model::Tokenizer tokenizer(data_path("models/tok105.bin"), 105);
  EXPECT_EQ(tokenizer.encode("eat\nheat"), (std::vector<int>{1, 3, 4, 5, 6, 0, 8, 4, 5, 6}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Once upon a time")), "Once upon a time");
}

TEST(RealTokenizer, RefusesTheOtherModelsFile) {
  if (test::data_is_absent()) GTEST_SKIP() << test::why_skipped();
  EXPECT_TRUE(
      contains(refusal([] { model::Tokenizer(data_path("models/tok105.bin"), 512); }), "piece 105 of 512"));
  EXPECT_TRUE(contains(refusal([] { model::Tokenizer(data_path("models/tok512.bin"), 105); }),
                       "are left after the 105"));
}

}  // namespace
}  // namespace kv::tokenizer_test
