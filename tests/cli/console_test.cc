#include "cli/console.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>

#include "cli/command.h"

namespace plimsoll::cli {
namespace {

TEST(Complain, GoesToStandardErrorAndGivesTheExitCode) {
  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  Console console{in, out, err};
  EXPECT_EQ(complain(console, kExitRefused, "it does not fit"), kExitRefused);
  EXPECT_EQ(complain(console, kExitUsage, invalid("not a number", "12x")), kExitUsage);
  EXPECT_EQ(complain(console, kExitUsage, invalid("nothing was given")), kExitUsage);
  EXPECT_EQ(err.str(),
            "plimsoll: it does not fit\nplimsoll: not a number (near `12x`)\nplimsoll: nothing was given\n");
  EXPECT_EQ(out.str(), "");
}

// Sets the variables of the locale, and puts back what there was.
class ProcessConsole : public ::testing::Test {
 protected:
  ProcessConsole() {
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
      if (const char* value = std::getenv(name)) {
        before_[name] = value;
      }
      ::unsetenv(name);
    }
  }
  ~ProcessConsole() override {
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
      ::unsetenv(name);
    }
    for (const auto& [name, value] : before_) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }

  std::map<std::string, std::string> before_;
};

TEST_F(ProcessConsole, HasTheStandardStreams) {
  const Console console = process_console();
  EXPECT_EQ(&console.in, &std::cin);
  EXPECT_EQ(&console.out, &std::cout);
  EXPECT_EQ(&console.err, &std::cerr);
}

// setlocale(3): LC_ALL, then LC_CTYPE, then LANG; an empty one counts as unset.
TEST_F(ProcessConsole, DrawsWithBlocksWhereTheLocaleIsUtf8) {
  EXPECT_FALSE(process_console().unicode) << "the C locale";
  ::setenv("LANG", "de_DE.UTF-8", 1);
  EXPECT_TRUE(process_console().unicode);
  ::setenv("LC_CTYPE", "C", 1);
  EXPECT_FALSE(process_console().unicode);
  ::setenv("LC_ALL", "", 1);
  EXPECT_FALSE(process_console().unicode);
  ::setenv("LC_ALL", "en_US.utf8", 1);
  EXPECT_TRUE(process_console().unicode);
}

}  // namespace
}  // namespace plimsoll::cli
