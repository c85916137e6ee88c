// What is an entry, and what ends the search for more.
#include "base/tensor_entries.hpp"

#include <gtest/gtest.h>

#include <string>

namespace hippogriff {
namespace {

constexpr std::string_view first_entry =
    R"("a.b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";

TEST(TensorEntries, are_found_one_after_the_other) {
  const std::string text =
      "{" + std::string(first_entry) + R"(,"":{"dtype":"U8","shape":[],"data_offsets":[24,25]}}  )";
  TensorEntries entries(text, 1, 0);
  const auto first = entries.next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->name, "a.b");
  EXPECT_EQ(first->kind, R"(F32","shape":[2,3])");
  EXPECT_EQ(first->data_begin, 0U);
  EXPECT_EQ(first->data_end, 24U);
  EXPECT_EQ(entries.position(), 1 + first_entry.size() + 1);
  const auto second = entries.next();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->name, "");
  EXPECT_EQ(second->data_begin, 24U);
  EXPECT_EQ(second->data_end, 25U);
  EXPECT_EQ(text.substr(entries.position()), "}  ");
  EXPECT_FALSE(entries.next().has_value());
}

TEST(TensorEntries, go_on_where_the_data_of_the_last_one_ended) {
  EXPECT_FALSE(TensorEntries(first_entry, 0, 8).next().has_value());
  const std::string_view later = R"("c":{"dtype":"F32","shape":[2],"data_offsets":[8,16]})";
  EXPECT_TRUE(TensorEntries(later, 0, 8).next().has_value());
}

TEST(TensorEntries, end_where_no_comma_comes) {
  const std::string text =
      std::string(first_entry) + R"("b":{"dtype":"U8","shape":[1],"data_offsets":[24,25]})";
  TensorEntries entries(text, 0, 0);
  EXPECT_TRUE(entries.next().has_value());
  EXPECT_FALSE(entries.next().has_value());
  EXPECT_EQ(entries.position(), first_entry.size());
}

TEST(TensorEntries, are_not_what_looks_otherwise) {
  for (const std::string_view text : {
           R"()",
           R"(})",
           R"("a)",
           R"(a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})",
           R"("a" :{"dtype":"U8","shape":[1],"data_offsets":[0,1]})",
           R"("a\u0041":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})",
           "\"a\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}",
           "\"\xc3\xa9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}",
           R"("a":{"shape":[1],"dtype":"U8","data_offsets":[0,1]})",
           R"("a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})",
           R"("a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]})",
           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]})",
           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[,1]})",
           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[00,1]})",
           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,01]})",
           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1)",
           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":2})",
           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1000000000000000000]})",
           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551617]})",
       }) {
    TensorEntries entries(text, 0, 0);
    EXPECT_FALSE(entries.next().has_value()) << text;
    EXPECT_EQ(entries.position(), 0U) << text;
  }
  EXPECT_FALSE(TensorEntries(first_entry, first_entry.size() + 1, 0).next().has_value());
  // Its data would end before they begin.
  EXPECT_FALSE(TensorEntries(R"("a":{"dtype":"U8","shape":[1],"data_offsets":[5,4]})", 0, 5)
                   .next()
                   .has_value());
}

TEST(TensorEntries, have_no_endless_shapes) {
  const auto shaped = [](std::size_t lengths) {
    std::string text = R"("a":{"dtype":"U8","shape":[1)";
    for (std::size_t i = 1; i < lengths; ++i) {
      text += ",1";
    }
    return text + R"(],"data_offsets":[0,1]})";
  };
  EXPECT_TRUE(TensorEntries(shaped(512), 0, 0).next().has_value());
  EXPECT_FALSE(TensorEntries(shaped(513), 0, 0).next().has_value());
}

TEST(TensorEntries, stay_within_the_text_where_it_is_cut_anywhere) {
  const std::string text = std::string(first_entry) + ",";
  for (std::size_t size = 0; size < first_entry.size(); ++size) {
    const std::string cut = text.substr(0, size);  // of its own: what reads beyond it is found
    EXPECT_FALSE(TensorEntries(cut, 0, 0).next().has_value()) << cut;
  }
}

}  // namespace
}  // namespace hippogriff
