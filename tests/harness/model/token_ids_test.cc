// Token files: the ids that NumPy wrote, and what is refused.
#include "harness/model/token_ids.h"

#include <gtest/gtest.h>

#include "tests/harness/model/tiny_hugging_face.h"

namespace kv {
namespace {

using test::contains;
using test::refusal;
using test::TempFolder;

// The format of numpy.save: version 1.0, padded to 64 bytes.
std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(117, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  std::string bytes("\x93NUMPY\x01\x00", 8);
  test::append_raw(bytes, &length, 1);
  return bytes + header + data;
}

template <class Number>
std::string raw(std::vector<Number> numbers) {
  std::string bytes;
  test::append_raw(bytes, numbers.data(), numbers.size());
  return bytes;
}

class TokenFile : public testing::Test {
 protected:
  std::vector<int> read(const std::string& name, const std::string& bytes) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return model::read_token_file(path, 100);
  }
  std::string refused(const std::string& name, const std::string& bytes) const {
    return refusal([&] { read(name, bytes); });
  }
  const TempFolder folder_;
};

TEST_F(TokenFile, EveryTypeReadsAlike) {
  const std::vector<int> want = {1, 99, 0};
  EXPECT_EQ(read("a.npy", npy("<u2", "(3,)", raw<uint16_t>({1, 99, 0}))), want);
  EXPECT_EQ(read("a.npy", npy("<u4", "(3,)", raw<uint32_t>({1, 99, 0}))), want);
  EXPECT_EQ(read("a.npy", npy("<i4", "(3,)", raw<int32_t>({1, 99, 0}))), want);
  EXPECT_EQ(read("a.npy", npy("<i8", "(3,)", raw<int64_t>({1, 99, 0}))), want);
  EXPECT_EQ(read("a.u16", raw<uint16_t>({1, 99, 0})), want);
  EXPECT_EQ(read("a.u32", raw<uint32_t>({1, 99, 0})), want);
}

TEST_F(TokenFile, WhatIsNotAListOfIdsIsRefused) {
  EXPECT_TRUE(contains(refused("a.npy", npy("<f4", "(1,)", raw<float>({1}))),
                       "its elements are '<f4'; expected <u2, <u4, <i4 or <i8"));
  EXPECT_TRUE(contains(refused("a.npy", npy("<u4", "(1, 1)", raw<uint32_t>({1}))),
                       "its shape is (1, 1); expected one dimension"));
  EXPECT_TRUE(contains(refused("a.npy", npy("<u4", "(3,)", raw<uint32_t>({1, 2}))),
                       "its shape is (3,), its data holds 2 ids"));
  EXPECT_TRUE(contains(refused("a.npy", "hello, this is text"), "not a .npy file"));
  EXPECT_TRUE(contains(refused("a.u32", "abc"), "its 3 bytes are not whole ids of 4"));
  EXPECT_TRUE(contains(refused("a.u16", ""), "it holds no ids"));
}

TEST_F(TokenFile, IdsOutsideTheVocabularyAreRefused) {
  EXPECT_TRUE(contains(refused("a.u16", raw<uint16_t>({3, 100})),
                       "id 100 at place 1 is not in the model's vocabulary, 0 to 99"));
  EXPECT_TRUE(contains(refused("a.npy", npy("<i4", "(1,)", raw<int32_t>({-1}))), "id -1 at place 0"));
}

TEST_F(TokenFile, TextWithoutATokenizerIsRefused) {
  EXPECT_TRUE(contains(refusal([] { model::read_tokens("book.txt", "", 100); }), "needs a tokenizer"));
}

}  // namespace
}  // namespace kv
