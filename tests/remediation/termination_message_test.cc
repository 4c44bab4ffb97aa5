#include "remediation/termination_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remediation/log_lines.h"
#include "tests/remediation/endings.h"

namespace plimsoll::remediation {
namespace {

TEST(TerminationMessage, EveryBeginningOfALongTextIsRead) {
  const std::string text = std::string(kOutOfMemory) + "\n" + kNccl;
  for (std::size_t length = 0; length <= text.size(); ++length) {
    read_termination_message(std::string_view(text).substr(0, length));
    read_termination_message(std::string_view(text).substr(length));
    line_at(std::string_view(text).substr(0, length), length / 2, 40);
  }
}

TEST(TerminationMessage, AnErrorThatEndedAProcessComesBeforeOneThatWasLogged) {
  const std::string logged = std::string("WARNING caught: ") + kOutOfMemory + "; halving the batch\nstep 7\n";
  const std::vector<Diagnosis> found =
      read_termination_message(logged + "Traceback (most recent call last):\nValueError: no such feature");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().priority, Priority::kException);
  EXPECT_EQ(found.front().outcome, Outcome::kUserError);
  EXPECT_EQ(found.front().line, "ValueError: no such feature");
  const std::vector<Diagnosis> alone = read_termination_message(kOutOfMemory);
  ASSERT_FALSE(alone.empty());
  EXPECT_EQ(alone.front().priority, Priority::kCause);
  EXPECT_EQ(alone.front().outcome, Outcome::kCudaOutOfMemory);
  EXPECT_TRUE(alone.front().out_of_memory.needed);
  EXPECT_TRUE(read_termination_message("step 7, loss 0.3").empty());
  EXPECT_TRUE(read_termination_message("").empty());
}

}  // namespace
}  // namespace plimsoll::remediation
