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
  const std::optional<Diagnosis> found =
      read_termination_message(logged + "Traceback (most recent call last):\nValueError: no such feature");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->priority, Priority::kException);
  EXPECT_EQ(found->outcome, Outcome::kUserError);
  EXPECT_EQ(found->line, "ValueError: no such feature");
  const std::optional<Diagnosis> alone = read_termination_message(kOutOfMemory);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->priority, Priority::kCause);
  EXPECT_EQ(alone->outcome, Outcome::kCudaOutOfMemory);
  EXPECT_TRUE(alone->out_of_memory.needed);
  EXPECT_FALSE(read_termination_message("step 7, loss 0.3"));
  EXPECT_FALSE(read_termination_message(""));
}

}  // namespace
}  // namespace plimsoll::remediation
