#include "cli/classify_command.h"

#include <utility>

#include "base/json/edit.h"
#include "cli/classify_report.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/options.h"
#include "remediation/attempt_end.h"

namespace plimsoll::cli {
namespace {

constexpr Help kHelp = {
    "plimsoll classify -f PODS.yaml [--log FILE]... [--explain] [options]",
    "Tells why an attempt of a training job ended: from its pods as `kubectl get pods -o yaml` prints them, and, if\n"
    "given, the last lines of its containers' logs. The verdict is one of CUDAOutOfMemory, HostOutOfMemory, "
    "Preempted,\n"
    "InfrastructureFailure, ShardingFailure, UserError, Succeeded, Running and Unknown.",
    "  kubectl get pods -l batch.kubernetes.io/job-name=ads-1 -o yaml | plimsoll classify -f -\n"
    "  plimsoll classify -f pods.yaml --log rank-3.log --explain\n"
    "  plimsoll classify -f pods.yaml --patterns our-patterns.yaml -o json",
};

// The reason is at the end of a log, which may have any length.
constexpr std::size_t kLogTail = 256 << 10;

Result<std::vector<Json>> read_pods(const std::vector<std::string>& files, Console& console) {
  Result<std::vector<Document>> documents = read_documents(files, console);
  if (!documents) {
    return documents.error();
  }
  std::vector<Json> pods;
  for (Document& document : *documents) {
    const std::string kind = text_member(document.object, {"kind"});
    if (kind == "Pod") {
      pods.push_back(std::move(document.object));
    } else if (kind != "PodList" && kind != "List") {  // an empty list is one of no pods
      return invalid(document.where + ": holds a " +
                     (kind.empty() ? "thing without a kind" : kind.substr(0, 64)) +
                     ", not pods; give what `kubectl get pods -o yaml` prints");
    }
  }
  return pods;
}

Result<remediation::Patterns> read_patterns(const boost::program_options::variables_map& values,
                                            Console& console) {
  if (!values.contains("patterns")) {
    return remediation::Patterns::built_in();
  }
  const std::string file = values["patterns"].as<std::string>();
  const Result<std::string> text = read_input(file, console);
  if (!text) {
    return text.error();
  }
  Result<remediation::Patterns> patterns = remediation::Patterns::with_own(*text);
  return patterns ? std::move(patterns) : Result<remediation::Patterns>(patterns.error().within(file));
}

}  // namespace

boost::program_options::options_description classify_options() {
  namespace po = boost::program_options;
  po::options_description options;
  options.add_options()("filename,f", po::value<std::vector<std::string>>()->value_name("FILE"),
                        "the attempt's pods, YAML or JSON; - is standard input; may be repeated")(
      "log", po::value<std::vector<std::string>>()->value_name("FILE"),
      "the end of the log of a container that failed; may be repeated")(
      "explain", "which line and which pattern or rule decided, what else was seen, and what comes next")(
      "patterns", po::value<std::string>()->value_name("FILE"),
      "texts of your own by which ends are recognised, as YAML (docs/remediation.md)");
  add_output_option(options);
  options.add_options()("help,h", "print this help");
  return options;
}

int run_classify(const std::vector<std::string>& arguments, Console& console) {
  boost::program_options::variables_map values;
  OutputFormat format{};
  if (const std::optional<int> code =
          read_options(arguments, classify_options(), kHelp, console, values, format)) {
    return *code;
  }
  if (!values.contains("filename")) {
    return complain(console, kExitUsage, "-f is required: the attempt's pods");
  }
  const Result<std::vector<Json>> pods =
      read_pods(values["filename"].as<std::vector<std::string>>(), console);
  if (!pods) {
    return complain(console, kExitUsage, pods.error());
  }
  std::vector<remediation::LogTail> logs;
  for (const std::string& file :
       values.contains("log") ? values["log"].as<std::vector<std::string>>() : std::vector<std::string>()) {
    Result<std::string> text = read_input(file, console);
    if (!text) {
      return complain(console, kExitUsage, text.error());
    }
    if (text->size() > kLogTail) {
      text->erase(0, text->size() - kLogTail);
    }
    logs.push_back({.pod = "", .container = "", .text = *std::move(text)});
  }
  Result<remediation::Patterns> patterns = read_patterns(values, console);
  if (!patterns) {
    return complain(console, kExitUsage, patterns.error());
  }
  const remediation::ExplainedEnd explained = remediation::explain(*pods, logs, *patterns);
  const bool explain = values.contains("explain");
  if (format == OutputFormat::kTable) {
    console.out << classify_text(explained, explain);
  } else {
    print_answers(console, format, {classify_json(explained, explain)});
  }
  return kExitDone;
}

}  // namespace plimsoll::cli
