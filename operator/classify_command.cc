#include "operator/classify_command.h"

#include <utility>

#include "base/json/edit.h"
#include "base/quantity.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/options.h"
#include "remediation/attempt_end.h"
#include "remediation/log_lines.h"

namespace plimsoll::process {
namespace {

using cli::Console;

constexpr cli::Help kHelp = {
    "plimsoll classify -f PODS.yaml [--log FILE]... [options]",
    "Tells why an attempt of a training job ended: from its pods as `kubectl get pods -o yaml` prints them, and, if\n"
    "given, the last lines of its containers' logs. The verdict is one of CUDAOutOfMemory, HostOutOfMemory, "
    "Preempted,\n"
    "InfrastructureFailure, ShardingFailure, UserError, Succeeded, Running and Unknown.",
    "  kubectl get pods -l batch.kubernetes.io/job-name=ads-1 -o yaml | plimsoll classify -f -\n"
    "  plimsoll classify -f pods.yaml --log rank-3.log -o json",
};

// The reason is at the end of a log, which may have any length.
constexpr std::size_t kLogTail = 256 << 10;

Json bytes_or_null(const std::optional<Bytes>& bytes) {
  return bytes ? Json(static_cast<::Json::Int64>(bytes->count)) : Json();
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json to_json(const remediation::AttemptEnd& end) {
  JsonObject json;
  json["verdict"] = name_of(end.outcome);
  const JsonPlace evidence = json["evidence"];
  evidence["pod"] = text_or_null(end.evidence.pod);
  evidence["container"] = text_or_null(end.evidence.container);
  evidence["field"] = text_or_null(end.evidence.field);
  evidence["text"] = text_or_null(end.evidence.text);
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
  Result<std::vector<cli::Document>> documents = cli::read_documents(files, console);
  if (!documents) {
    return documents.error();
  }
  std::vector<Json> pods;
  for (cli::Document& document : *documents) {
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

}  // namespace

boost::program_options::options_description classify_options() {
  namespace po = boost::program_options;
  po::options_description options;
  options.add_options()("filename,f", po::value<std::vector<std::string>>()->value_name("FILE"),
                        "the attempt's pods, YAML or JSON; - is standard input; may be repeated")(
      "log", po::value<std::vector<std::string>>()->value_name("FILE"),
      "the end of the log of a container that failed; may be repeated");
  cli::add_output_option(options);
  options.add_options()("help,h", "print this help");
  return options;
}

int run_classify(const std::vector<std::string>& arguments, Console& console) {
  boost::program_options::variables_map values;
  cli::OutputFormat format{};
  if (const std::optional<int> code =
          cli::read_options(arguments, classify_options(), kHelp, console, values, format)) {
    return *code;
  }
  if (!values.contains("filename")) {
    return cli::complain(console, cli::kExitUsage, "-f is required: the attempt's pods");
  }
  const Result<std::vector<Json>> pods =
      read_pods(values["filename"].as<std::vector<std::string>>(), console);
  if (!pods) {
    return cli::complain(console, cli::kExitUsage, pods.error());
  }
  std::vector<remediation::LogTail> logs;
  for (const std::string& file :
       values.contains("log") ? values["log"].as<std::vector<std::string>>() : std::vector<std::string>()) {
    Result<std::string> text = cli::read_input(file, console);
    if (!text) {
      return cli::complain(console, cli::kExitUsage, text.error());
    }
    if (text->size() > kLogTail) {
      text->erase(0, text->size() - kLogTail);
    }
    logs.push_back({.pod = "", .container = "", .text = *std::move(text)});
  }
  const remediation::AttemptEnd end = remediation::classify(*pods, logs);
  if (format == cli::OutputFormat::kTable) {
    print(console, end);
  } else {
    cli::print_answers(console, format, {to_json(end)});
  }
  return cli::kExitDone;
}

int run_classify_command(const std::vector<std::string>& arguments) {
  Console console = cli::process_console();
  const int code = run_classify(arguments, console);
  return console.out.flush()
             ? code
             : cli::complain(console, cli::kExitUsage, "standard output could not be written");
}

}  // namespace plimsoll::process
