// Watches over a connection are in watch_test.cc.
#include "kube/watch_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace plimsoll::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string line(const std::string& type, const std::string& name) {
  return R"({"type":")" + type + R"(","object":{"metadata":{"name":")" + name + "\"}}}\n";
}

class WatchStreamTest : public ::testing::Test {
 protected:
  std::vector<std::string> events_;
  const WatchStream::OnEvent on_event_ = [this](const WatchEvent& event) {
    static const char* const kNames[] = {"added", "modified", "deleted", "bookmark"};
    events_.push_back(std::string(kNames[static_cast<int>(event.type)]) + " " +
                      text_member(event.object, {"metadata", "name"}));
  };
  WatchStream stream_{on_event_};
};

TEST_F(WatchStreamTest, EachLineIsAnEventHoweverItIsCut) {
  const std::string text =
      line("ADDED", "a") + line("MODIFIED", "b") + line("DELETED", "\u20ac") + line("BOOKMARK", "");
  ASSERT_TRUE(stream_.append(text));
  EXPECT_THAT(events_, ElementsAre("added a", "modified b", "deleted \u20ac", "bookmark "));
  const std::vector<std::string> whole = std::exchange(events_, {});
  for (std::size_t size = 1; size < text.size(); ++size) {
    for (std::size_t at = 0; at < text.size(); at += size) {
      ASSERT_TRUE(stream_.append(std::string_view(text).substr(at, size)));
    }
    EXPECT_EQ(std::exchange(events_, {}), whole) << "pieces of " << size << " bytes";
  }
}

TEST_F(WatchStreamTest, TheLastLineNeedsNoLineBreak) {
  std::string text = line("ADDED", "a");
  text.pop_back();
  ASSERT_TRUE(stream_.append(text));
  EXPECT_THAT(events_, IsEmpty());
  EXPECT_TRUE(stream_.finish());
  EXPECT_THAT(events_, ElementsAre("added a"));
  EXPECT_TRUE(stream_.finish()) << "nothing is left";
  EXPECT_EQ(events_.size(), 1U);
}

TEST_F(WatchStreamTest, HalfAnEventAtTheEndIsAnError) {
  ASSERT_TRUE(stream_.append(line("ADDED", "a").substr(0, 20)));
  EXPECT_EQ(stream_.finish().error().code, ErrorCode::kInternal);
}

TEST_F(WatchStreamTest, BlankLinesAreNoEvents) {
  ASSERT_TRUE(stream_.append("\n\r\n \t\n" + line("ADDED", "a") + "\r\n"));
  EXPECT_TRUE(stream_.finish());
  EXPECT_THAT(events_, ElementsAre("added a"));
}

TEST_F(WatchStreamTest, AnErrorEventEndsItWithItsOwnError) {
  const Result<void> gone = stream_.append(
      line("ADDED", "a") +
      R"({"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410,"message":"too old"}})"
      "\n" +
      line("ADDED", "b"));
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kExpired);
  EXPECT_THAT(gone.error().message, HasSubstr("too old"));
  EXPECT_THAT(events_, ElementsAre("added a")) << "what came before it, and nothing after it";
}

TEST_F(WatchStreamTest, AStatusInPlaceOfAnEventIsItsError) {
  EXPECT_EQ(stream_
                .append(R"({"kind":"Status","reason":"Forbidden","code":403,"message":"no"})"
                        "\n")
                .error()
                .code,
            ErrorCode::kForbidden);
}

TEST_F(WatchStreamTest, AnUnknownTypeIsNamed) {
  const Result<void> handled = stream_.append(line("RENAMED", "a"));
  ASSERT_FALSE(handled);
  EXPECT_EQ(handled.error().code, ErrorCode::kInternal);
  EXPECT_THAT(to_string(handled.error()), HasSubstr("RENAMED"));
}

TEST_F(WatchStreamTest, StoresNoMoreThanTheLimitOfAnIncompleteLine) {
  ASSERT_TRUE(stream_.append(std::string(kWatchLineLimit, ' ')));
  EXPECT_EQ(stream_.append(" ").error().code, ErrorCode::kTooLarge);
}

TEST_F(WatchStreamTest, ALineBeyondTheLimitIsRefusedThoughItArrivesWhole) {
  const Result<void> handled = stream_.append(std::string(kWatchLineLimit + 1, ' ') + "\n");
  ASSERT_FALSE(handled);
  EXPECT_EQ(handled.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace plimsoll::kube
