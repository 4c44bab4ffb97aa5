#include "cli/classify_command.h"

#include <utility>

#include "base/json/edit.h"
#include "base/quantity.h"
#include "cli/classify_explanation.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/options.h"
#include "remediation/attempt_end.h"
#include "remediation/log_lines.h"

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

Json bytes_or_null(const std::optional<Bytes>& bytes) {
  return bytes ? Json(static_cast<::Json::Int64>(bytes->count)) : Json();
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

JsonObject to_json(const remediation::AttemptEnd& end) {
  JsonObject json;
  json["verdict"] = name_of(end.outcome);
  const JsonPlace evidence = json["evidence"];
  evidence["pod"] = text_or_null(end.evidence.pod);
  evidence["container"] = text_or_null(end.evidence.container);
  evidence["field"] = text_or_null(end.evidence.field);
  evidence["text"] = text_or_null(end.evidence.text);
  json["sharedMemory"] = end.shared_memory;
  json["neededBytes"] = bytes_or_null(end.out_of_memory.needed);
  json["capacityBytes"] = bytes_or_null(end.out_of_memory.capacity);
  json["fragmentationBytes"] = bytes_or_null(end.out_of_memory.fragmentation);
  return json;
}

void print(Console& console, const remediation::AttemptEnd& end) {
  console.out << name_of(end.outcome) << '\n';
  const remediation::Evidence& evidence = end.evidence;
  const auto line = [&](const char* what, const std::string& text) {
    if (!text.empty()) {
      console.out << "  " << what << remediation::without_terminal_codes(text) << '\n';
    }
  };
  line("pod        ", evidence.pod);
  line("container  ", evidence.container);
  line("field      ", evidence.field);
  line("text       ", evidence.text);
  line("needed     ", end.out_of_memory.needed ? to_string(*end.out_of_memory.needed) : "");
  line("capacity   ", end.out_of_memory.capacity ? to_string(*end.out_of_memory.capacity) : "");
  line("fragments  ", end.out_of_memory.fragmentation ? to_string(*end.out_of_memory.fragmentation) : "");
}

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
    print(console, explained.end);
    console.out << (explain ? classify_explanation_text(explained) : "");
  } else {
    JsonObject json = to_json(explained.end);
    if (explain) {
      json["explanation"] = classify_explanation_json(explained);
    }
    print_answers(console, format, {std::move(json)});
  }
  return kExitDone;
}

}  // namespace plimsoll::cli
