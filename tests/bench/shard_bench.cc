// ./scripts/bench shard: how good the sharder's plans are, and how long it takes to find them.
//
// Batch 1024 a trainer (T200: 512), fp32, row-wise Adagrad, 8 trainers a node, no reserve; torchrec's cost
// model and default bandwidths. "10,000 tables" are those of model A from the beginning again and again.
// Times are medians, on the processor: a search is one thread that waits for nothing. References are what the
// project aims at.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "crds/embedding_tables_csv.h"
#include "estimator/sharder/sharder.h"
#include "tests/bench/report.h"
#include "tests/checkout.h"

namespace plimsoll {
namespace {

constexpr const char* kUsage =
    "usage: shard_bench [--json] [--repeat N] [--tables FOLDER]\n"
    "\n"
    "  --json            one object a line: {bench, case, metric, value, unit, reference}\n"
    "  --repeat N        runs of each case, of which the median counts (default 9)\n"
    "  --tables FOLDER   of the CSV files (default: examples/tables)\n";

struct Settings {
  bool json = false;
  int repeat = 9;
  std::string folder = PLIMSOLL_SOURCE_DIR "/examples/tables";
};

Result<std::vector<estimator::Table>> read_tables(const std::string& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) {
    return Error(ErrorCode::kNotFound, "cannot read " + file);
  }
  const Result<std::vector<crds::EmbeddingTable>> groups = crds::parse_embedding_tables_csv(text.str());
  if (!groups) {
    return groups.error().within("read " + file);
  }
  return estimator::expand_tables(*groups);
}

// The first `count` tables of a model, from its beginning again where it has fewer.
std::vector<estimator::Table> repeated(const std::vector<estimator::Table>& tables, std::size_t count) {
  std::vector<estimator::Table> more;
  for (std::size_t i = 0; i < count; ++i) {
    more.push_back(tables[i % tables.size()]);
    more.back().name = "t" + std::to_string(i);
  }
  return more;
}

double ratio(Bytes a, Bytes b) {
  return static_cast<double>(a.count) / static_cast<double>(std::max<std::int64_t>(b.count, 1));
}

class Bench {
 public:
  explicit Bench(Settings settings) : settings_(std::move(settings)), report_("shard", settings_.json) {}

  Result<void> run() {
    for (const auto& [name, file] : {std::pair{"A", "amp_like_model_A.csv"},
                                     {"B", "amp_like_model_B.csv"},
                                     {"C", "amp_like_model_C.csv"},
                                     {"T200", "hugectr_t200.csv"}}) {
      Result<std::vector<estimator::Table>> tables = read_tables(settings_.folder + "/" + file);
      if (!tables) {
        return tables.error();
      }
      models_[name] = *std::move(tables);
    }
    models_["10,000 tables"] = repeated(models_["A"], 10'000);
    struct Fixed {
      const char* model;
      std::int64_t trainers;
      double time;
      std::optional<double> memory;
      std::optional<double> node;
      double milliseconds;
    };
    for (const Fixed& fixed :
         {Fixed{"A", 128, 1.01, 1.05, 1.03, 15}, Fixed{"B", 128, 1.01, 1.40, 1.15, 15},
          Fixed{"C", 128, 1.01, 1.10, 1.05, 15}, Fixed{"A", 64, 1.01, {}, {}, 15},
          Fixed{"B", 24, 1.01, {}, {}, 15}, Fixed{"T200", 128, 1.10, {}, {}, 5},
          Fixed{"A", 1024, 1.05, {}, {}, 60}, Fixed{"10,000 tables", 4096, 1.05, {}, {}, 1000}}) {
      place(fixed.model, fixed.trainers, {fixed.time, fixed.memory, fixed.node, fixed.milliseconds});
    }
    find_smallest();
    grow();
    return {};
  }

 private:
  using References = std::array<std::optional<double>, 4>;

  estimator::ShardRequest request(const std::string& model, std::int64_t trainers, std::int64_t gib) const {
    return {.tables = models_.at(model),
            .topology = {.trainers = trainers},
            .batch_size = model == "T200" ? 512 : 1024,
            .budget = 1_GiB * gib};
  }

  void place(const std::string& model, std::int64_t trainers, const References& references) {
    const estimator::ShardRequest requested = request(model, trainers, 80);
    const std::string of = model + " x " + std::to_string(trainers);
    std::optional<Result<estimator::Plan>> plan;
    const double milliseconds =
        testing::median_milliseconds(settings_.repeat, [&] { plan = estimator::shard(requested); });
    if (!*plan) {
      report_.add({of, "fits", 0, "", 1});
      return;
    }
    const estimator::Plan& found = **plan;
    report_.add({of, "timeOverBound", found.max_milliseconds / found.lower_bound_milliseconds, "ratio",
                 references[0]});
    report_.add({of, "hbmMaxOverMean", ratio(found.max_memory, found.mean_memory), "ratio", references[1]});
    report_.add({of, "nodeMaxOverMean", ratio(found.node_max_memory, found.node_mean_memory), "ratio",
                 references[2]});
    report_.add({of, "search", milliseconds, "ms", references[3]});
    report_.add({of, "wrong", static_cast<double>(verify(requested, found).size()), "findings", 0});
  }

  // The fewest trainers, beside the fewest that the bounds on memory allow.
  void find_smallest() {
    double over = 0;
    for (const char* model : {"A", "B", "C"}) {
      for (const std::int64_t gib : {80, 40, 32}) {
        const estimator::ShardRequest requested = request(model, 1, gib);
        const std::string of = std::string(model) + " fewest, " + std::to_string(gib) + " GiB";
        constexpr std::int64_t kMaxTrainers = 1024;
        std::optional<Result<estimator::FewestTrainersPlan>> found;
        const double milliseconds = testing::median_milliseconds(settings_.repeat, [&] {
          found = estimator::shard_on_fewest_trainers(requested, 1, kMaxTrainers);
        });
        const Result<std::int64_t> bound = estimator::fewest_trainers_bound(requested, kMaxTrainers);
        if (!*found || !bound) {
          report_.add({of, "fits", 0, "", 1});
          continue;
        }
        const std::int64_t more = (*found)->trainers - *bound;
        over += more > 0 ? 1 : 0;
        report_.add({of, "trainers", static_cast<double>((*found)->trainers), "trainers",
                     static_cast<double>(*bound + requested.topology.per_node)});
        report_.add({of, "search", milliseconds, "ms", 25});
      }
    }
    report_.add({"fewest", "aboveTheNodeBound", over, "cases", 1});
  }

  void grow() {
    for (const std::size_t tables : {1000, 2000, 4000, 8000}) {
      models_["growing"] = repeated(models_["A"], tables);
      time_alone("growing", 128, 400, "growth, " + std::to_string(tables) + " tables x 128");
    }
    for (const std::int64_t trainers : {64, 256, 512, 2048, 4096}) {
      time_alone("A", trainers, 80, "growth, A x " + std::to_string(trainers));
    }
  }

  void time_alone(const std::string& model, std::int64_t trainers, std::int64_t gib, const std::string& of) {
    const estimator::ShardRequest requested = request(model, trainers, gib);
    std::optional<Result<estimator::Plan>> plan;
    const double milliseconds = testing::median_milliseconds(std::min(settings_.repeat, 3),
                                                             [&] { plan = estimator::shard(requested); });
    if (*plan) {
      report_.add(
          {of, "timeOverBound", (*plan)->max_milliseconds / (*plan)->lower_bound_milliseconds, "ratio", {}});
    }
    report_.add({of, "search", milliseconds, "ms", {}});
  }

  Settings settings_;
  testing::Report report_;
  std::map<std::string, std::vector<estimator::Table>> models_;
};

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
      settings.folder = arguments[++i];
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
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  return plimsoll::run({argv + 1, argv + argc});
}
