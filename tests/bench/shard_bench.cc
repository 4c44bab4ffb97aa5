// ./scripts/bench shard: how good the sharder's plans are, and how long it takes to find them.
//
// Batch 1024 a trainer, fp32, row-wise Adagrad, 8 trainers a node, no reserve; torchrec's default bandwidths.
// Times are medians, on the processor: a search is one thread that waits for nothing. References are what the
// project aims at.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/json.h"
#include "base/yaml.h"
#include "crds/embedding_tables_csv.h"
#include "crds/training_job.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll {
namespace {

constexpr const char* kUsage =
    "usage: shard_bench [--json] [--repeat N] [--tables NAME=FILE]...\n"
    "\n"
    "  --json               one object a line: {bench, case, metric, value, unit, reference}\n"
    "  --repeat N           runs of each case, of which the median counts (default 15)\n"
    "  --tables NAME=FILE   other tables for A, B or C: CSV as `plimsoll shard` reads it, or a TrainingJob\n"
    "                       (default: examples/model-a.yaml, -b, -c)\n";

struct Measured {
  std::string of;  // the case
  std::string metric;
  double value = 0;
  std::string unit;
  std::optional<double> reference;  // aimed at, at most
};

struct Settings {
  bool json = false;
  int repeat = 15;
  std::map<std::string, std::string> files = {{"A", PLIMSOLL_SOURCE_DIR "/examples/model-a.yaml"},
                                              {"B", PLIMSOLL_SOURCE_DIR "/examples/model-b.yaml"},
                                              {"C", PLIMSOLL_SOURCE_DIR "/examples/model-c.yaml"}};
};

// The content of a ConfigMap's key, gzipped or not.
Result<std::string> content_of(const std::vector<Json>& documents, const crds::TablesFrom& from) {
  for (const Json& document : documents) {
    if (text_member(document, {"kind"}) != "ConfigMap" ||
        text_member(document, {"metadata", "name"}) != from.config_map_name) {
      continue;
    }
    const std::string binary = text_member(document, {"binaryData", from.key});
    return binary.empty() ? Result<std::string>(text_member(document, {"data", from.key}))
                          : base64_decode(binary);
  }
  return Error(ErrorCode::kNotFound, "no ConfigMap " + from.config_map_name);
}

Result<std::vector<crds::EmbeddingTable>> tables_of_job(const std::string& text) {
  const Result<std::vector<Json>> documents = parse_yaml_documents(text);
  if (!documents) {
    return documents.error();
  }
  for (const Json& document : *documents) {
    if (text_member(document, {"kind"}) != "TrainingJob") {
      continue;
    }
    const Result<crds::TrainingJob> decoded = crds::decode_training_job(document);
    if (!decoded) {
      return decoded.error();
    }
    const std::optional<crds::DlrmModel>& dlrm = decoded->spec.model.dlrm;
    if (!dlrm || !dlrm->tables_from) {
      return dlrm ? dlrm->tables : std::vector<crds::EmbeddingTable>{};
    }
    const Result<std::string> csv = content_of(*documents, *dlrm->tables_from);
    return csv ? crds::parse_embedding_tables_csv(*csv) : csv.error();
  }
  return invalid("no TrainingJob in it");
}

Result<std::vector<estimator::Table>> read_tables(const std::string& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) {
    return Error(ErrorCode::kNotFound, "cannot read " + file);
  }
  const bool job = file.ends_with(".yaml") || file.ends_with(".yml") || file.ends_with(".json");
  const Result<std::vector<crds::EmbeddingTable>> groups =
      job ? tables_of_job(text.str()) : crds::parse_embedding_tables_csv(text.str());
  if (!groups) {
    return groups.error().within("read " + file);
  }
  if (groups->empty()) {
    return invalid("no embedding tables in " + file);
  }
  return estimator::expand_tables(*groups);
}

// Median milliseconds of a call, of this process' time on the processor.
double time_of(int repeat, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    const std::clock_t start = std::clock();
    call();
    times.push_back(1000.0 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

double ratio(Bytes a, Bytes b) {
  return static_cast<double>(a.count) / static_cast<double>(std::max<std::int64_t>(b.count, 1));
}

class Bench {
 public:
  explicit Bench(Settings settings) : settings_(std::move(settings)) {}

  Result<void> run() {
    for (const auto& [name, file] : settings_.files) {
      Result<std::vector<estimator::Table>> tables = read_tables(file);
      if (!tables) {
        return tables.error();
      }
      models_[name] = *std::move(tables);
    }
    struct Fixed {
      const char* model;
      std::int64_t trainers;
      double time;
      std::optional<double> memory;
      std::optional<double> node;
      double milliseconds;
    };
    for (const Fixed& fixed : {Fixed{"A", 128, 1.01, 1.05, 1.03, 15}, Fixed{"B", 128, 1.01, 1.40, 1.15, 15},
                               Fixed{"C", 128, 1.01, 1.10, 1.05, 15}, Fixed{"A", 64, 1.01, {}, {}, 15},
                               Fixed{"B", 24, 1.01, {}, {}, 15}, Fixed{"A", 1024, 1.05, {}, {}, 60}}) {
      place(fixed.model, fixed.trainers, {fixed.time, fixed.memory, fixed.node, fixed.milliseconds});
    }
    for (const auto& [model, tables] : models_) {
      for (const std::int64_t gib : {80, 40, 32}) {
        find_smallest(model, gib);
      }
    }
    return {};
  }

  const std::vector<Measured>& measured() const { return measured_; }

 private:
  using References = std::array<std::optional<double>, 4>;

  estimator::ShardRequest request(const std::string& model, std::int64_t trainers, std::int64_t gib) const {
    return {.tables = models_.at(model),
            .topology = {.trainers = trainers},
            .batch_size = 1024,
            .budget = 1_GiB * gib};
  }

  void place(const std::string& model, std::int64_t trainers, const References& references) {
    const estimator::ShardRequest asked = request(model, trainers, 80);
    const std::string of = model + " x " + std::to_string(trainers);
    std::optional<Result<estimator::Plan>> plan;
    const double milliseconds = time_of(settings_.repeat, [&] { plan = estimator::shard(asked); });
    if (!*plan) {
      measured_.push_back({of, "fits", 0, "", 1});
      return;
    }
    const estimator::Plan& found = **plan;
    measured_.push_back({of, "timeOverBound", found.max_milliseconds / found.lower_bound_milliseconds,
                         "ratio", references[0]});
    measured_.push_back(
        {of, "hbmMaxOverMean", ratio(found.max_memory, found.mean_memory), "ratio", references[1]});
    measured_.push_back({of, "nodeMaxOverMean", ratio(found.node_max_memory, found.node_mean_memory), "ratio",
                         references[2]});
    measured_.push_back({of, "search", milliseconds, "ms", references[3]});
    measured_.push_back({of, "wrong", static_cast<double>(verify(asked, found).size()), "findings", 0});
  }

  void find_smallest(const std::string& model, std::int64_t gib) {
    const estimator::ShardRequest asked = request(model, 1, gib);
    const std::string of = model + " fewest, " + std::to_string(gib) + " GiB";
    constexpr std::int64_t kMost = 1024;
    std::optional<Result<estimator::SmallestPlan>> found;
    const double milliseconds =
        time_of(settings_.repeat, [&] { found = estimator::shard_smallest(asked, 1, kMost); });
    const Result<std::int64_t> bound = estimator::fewest_trainers_bound(asked, kMost);
    if (!*found || !bound) {
      measured_.push_back({of, "fits", 0, "", 1});
      return;
    }
    measured_.push_back(
        {of, "trainers", static_cast<double>((*found)->trainers), "trainers", static_cast<double>(*bound)});
    measured_.push_back({of, "search", milliseconds, "ms", 25});
  }

  Settings settings_;
  std::map<std::string, std::vector<estimator::Table>> models_;
  std::vector<Measured> measured_;
};

void print_json(const std::vector<Measured>& all) {
  for (const Measured& one : all) {
    Json json(::Json::objectValue);
    json["bench"] = "shard";
    json["case"] = one.of;
    json["metric"] = one.metric;
    json["value"] = one.value;
    json["unit"] = one.unit;
    json["reference"] = one.reference ? Json(*one.reference) : Json();
    std::printf("%s\n", write_json(json).c_str());
  }
}

void print_table(const std::vector<Measured>& all) {
  std::printf("%-20s %-16s %10s  %-9s %s\n", "case", "metric", "value", "unit", "aim, at most");
  for (const Measured& one : all) {
    std::printf("%-20s %-16s %10.4g  %-9s", one.of.c_str(), one.metric.c_str(), one.value, one.unit.c_str());
    if (one.reference) {
      std::printf(" %.4g%s", *one.reference, one.value > *one.reference ? "  MISSED" : "");
    }
    std::printf("\n");
  }
}

// Empty when the arguments are wrong.
std::optional<Settings> parse(const std::vector<std::string>& arguments) {
  Settings settings;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool more = i + 1 < arguments.size();
    if (arguments[i] == "--json") {
      settings.json = true;
    } else if (arguments[i] == "--repeat" && more) {
      settings.repeat = std::atoi(arguments[++i].c_str());
    } else if (arguments[i] == "--tables" && more) {
      const std::string& pair = arguments[++i];
      const std::size_t equals = pair.find('=');
      const std::string name = pair.substr(0, equals);
      if (equals == std::string::npos || settings.files.count(name) == 0) {
        return std::nullopt;
      }
      settings.files[name] = pair.substr(equals + 1);
    } else {
      return std::nullopt;
    }
  }
  return settings.repeat < 1 ? std::nullopt : std::optional(settings);
}

int run(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{"--help"}) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const std::optional<Settings> settings = parse(arguments);
  if (!settings) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  Bench bench(*settings);
  if (const Result<void> ran = bench.run(); !ran) {
    std::fprintf(stderr, "shard_bench: %s\n", to_string(ran.error()).c_str());
    return 1;
  }
  settings->json ? print_json(bench.measured()) : print_table(bench.measured());
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  return plimsoll::run({argv + 1, argv + argc});
}
