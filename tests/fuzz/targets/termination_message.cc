// What a container wrote last: its termination message, or the end of its log.
#include <string>
#include <vector>

#include "base/utf8.h"
#include "remediation/attempt_end.h"
#include "remediation/log_lines.h"
#include "remediation/out_of_memory_figures.h"
#include "remediation/signposts.h"
#include "remediation/termination_message.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {
namespace {

Json pod_that_said(std::string_view message) {
  Json pod;
  pod["metadata"]["name"] = "ads-0-0";
  pod["spec"]["containers"][0]["name"] = "trainer";
  pod["status"]["phase"] = "Failed";
  Json& status = pod["status"]["containerStatuses"][0];
  status["name"] = "trainer";
  Json& end = status["state"]["terminated"];
  end["exitCode"] = 1;
  end["finishedAt"] = "2026-01-02T03:04:05Z";
  end["message"] = std::string(message);
  return pod;
}

}  // namespace

FUZZ_TARGET(termination_message) {
  using namespace plimsoll::remediation;
  const std::string plain = without_terminal_codes(input);
  require(plain.size() <= input.size(), "terminal codes are only taken away");
  const std::vector<LogLine> lines = log_lines(plain);
  for (const LoggedException& exception : exceptions_in(lines)) {
    require(exception.line < exception.end && exception.end <= lines.size(), "an exception has lines");
  }
  (void)parse_out_of_memory_figures(input);
  (void)read_termination_message(input);
  const std::vector<Json> pods = {pod_that_said(input)};
  const AttemptEnd end = classify(pods);
  require(end.outcome != Outcome::kRunning, "a failed pod does not run");
  (void)classify({pod_that_said("")},
                 {{.pod = "ads-0-0", .container = "trainer", .text = std::string(input)}});
  const Signposts seen = read_signposts(pods);
  require(!seen.peak || *seen.peak >= Bytes{}, "a peak is not negative");
}

}  // namespace plimsoll::testing
