#include "operator/ready_command.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "base/backoff.h"
#include "base/duration.h"
#include "cli/command.h"
#include "cli/options.h"
#include "kube/http_client.h"

namespace plimsoll::process {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr cli::Help kHelp = {
    "plimsoll ready --url URL [--url URL]... [--timeout TIME]",
    "Asks server processes, at the addresses of their health ports, whether they are ready, and waits until all of\n"
    "them are.",
    "  plimsoll ready --url http://plimsoll-webhook.plimsoll-system.svc:8081\n"
    "  plimsoll ready --url http://127.0.0.1:8081 --timeout 5s",
};

// A Service without a ready pod refuses the connection, or does not answer: it is asked again.
Result<std::string> ask_until(Clock::time_point deadline, kube::Client& client) {
  Backoff backoff({.cap = milliseconds(2'000)}, std::random_device{}());
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    Result<std::string> answer = client.get_raw("/readyz", {.timeout = std::max(left, milliseconds(1))});
    const milliseconds delay = backoff.next();
    if (answer || Clock::now() + delay >= deadline) {
      return answer;
    }
    std::this_thread::sleep_for(delay);
  }
}

}  // namespace

boost::program_options::options_description ready_options() {
  namespace po = boost::program_options;
  po::options_description options;
  options.add_options()("url", po::value<std::vector<std::string>>()->value_name("URL"),
                        "http://HOST:PORT of a health port; may be repeated")(
      "timeout", po::value<std::string>()->value_name("TIME")->default_value("30s"),
      "how long to wait for all of them together")("help,h", "print this help");
  return options;
}

int run_ready(const std::vector<std::string>& arguments, cli::Console& console) {
  boost::program_options::variables_map values;
  if (const std::optional<int> code = cli::read_options(arguments, ready_options(), kHelp, console, values)) {
    return *code;
  }
  const std::optional<milliseconds> timeout = parse_duration(values["timeout"].as<std::string>());
  if (!timeout || timeout->count() <= 0) {
    return cli::complain(console, cli::kExitUsage, "--timeout must be a duration such as 30s");
  }
  if (!values.contains("url")) {
    return cli::complain(console, cli::kExitUsage, "--url is required: http://HOST:PORT of a health port");
  }
  const Clock::time_point deadline = Clock::now() + *timeout;
  for (const std::string& url : values["url"].as<std::vector<std::string>>()) {
    kube::ClientConfig config;
    config.source = url;
    config.server = url;
    const Result<std::unique_ptr<kube::Client>> client = kube::connect(config);
    if (!client) {
      return cli::complain(console, cli::kExitUsage, client.error());
    }
    const Result<std::string> answer = ask_until(deadline, **client);
    if (!answer) {
      return cli::complain(console, cli::kExitRefused, answer.error().within(url + " is not ready"));
    }
    console.out << url << " is ready\n" << *answer;
  }
  return cli::kExitDone;
}

int run_ready_command(const std::vector<std::string>& arguments) {
  cli::Console console = cli::process_console();
  return run_ready(arguments, console);
}

}  // namespace plimsoll::process
