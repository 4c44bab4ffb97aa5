#include "base/json/edit.h"
#include "cli/options.h"
#include "cli/subcommands.h"

namespace plimsoll::cli {
namespace {

constexpr Help kHelp = {
    "plimsoll version [-o FORMAT]",
    "Prints the version of this program and of the API that it speaks.",
    "  plimsoll version\n  plimsoll version -o json",
};

}  // namespace

po::options_description version_options() {
  po::options_description options;
  add_output_option(options);
  options.add_options()("help,h", "print this help");
  return options;
}

int run_version(const std::vector<std::string>& arguments, Console& console) {
  po::variables_map values;
  OutputFormat format{};
  if (const std::optional<int> code =
          read_options(arguments, version_options(), kHelp, console, values, format)) {
    return *code;
  }
  if (format == OutputFormat::kTable) {
    console.out << "plimsoll " << PLIMSOLL_VERSION << " (plimsoll.dev/v1alpha1)\n";
    return kExitDone;
  }
  JsonObject json;
  json["version"] = PLIMSOLL_VERSION;
  json["apiVersion"] = "plimsoll.dev/v1alpha1";
  print_answers(console, format, {json});
  return kExitDone;
}

}  // namespace plimsoll::cli
