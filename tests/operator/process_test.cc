#include "operator/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/operator/parsed_options.h"
#include "tests/testing/patience.h"

namespace plimsoll::process {
namespace {

namespace po = boost::program_options;

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    std::string name = (std::filesystem::temp_directory_path() / "process_test_XXXXXX").string();
    ::close(::mkstemp(name.data()));
    path_ = name;
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

ServerOptions parse(const std::vector<std::string>& arguments) {
  return plimsoll::testing::parsed<ServerOptions>(arguments);
}

TEST(DurationOption, NamesTheOptionThatIsWrong) {
  EXPECT_EQ(*duration_option("lame-duck", "1m30s"), std::chrono::seconds(90));
  EXPECT_EQ(duration_option("lame-duck", "soon").error().message,
            "--lame-duck must be a duration such as 15s, is soon");
  EXPECT_FALSE(duration_option("lame-duck", "25h").ok());
  EXPECT_TRUE(duration_option("lame-duck", "25h", std::chrono::hours(26)).ok());
}

TEST(ServerOptions, HaveTheirDefaultsAndTakeWhatIsGiven) {
  EXPECT_EQ(parse({}).ops_port, 8081);
  EXPECT_EQ(parse({}).log_level, "info");
  const ServerOptions given = parse({"--ops-port=0", "--kubeconfig", "file", "--log-format=json"});
  EXPECT_EQ(given.ops_port, 0);
  EXPECT_EQ(given.kubeconfig, "file");
  EXPECT_EQ(given.log_format, "json");
}

TEST(ServerOptions, RefusePortsThatAreNone) {
  for (const char* port : {"-1", "65536", "eighty", "", "80.5"}) {
    EXPECT_THROW(parse({"--ops-port", port}), po::error) << port;
    EXPECT_THROW(parse({"--metrics-port", port}), po::error) << port;
  }
}

TEST(ServerOptions, MetricsAreSecureUnlessTheyShallNotBe) {
  EXPECT_TRUE(parse({}).metrics_secure);
  EXPECT_FALSE(parse({"--metrics-secure=false"}).metrics_secure);
  EXPECT_THROW(parse({"--metrics-secure=perhaps"}), po::error);
  EXPECT_EQ(parse({"--metrics-port=0"}).metrics_port, 0);
}

TEST(PrepareServer, RefusesAPortOfMetricsThatHaveNone) {
  for (const char* option : {"--metrics-port=8443", "--metrics-port-file=port"}) {
    const Result<void> prepared = prepare_server(parse({"--metrics-secure=false", option}));
    ASSERT_FALSE(prepared.ok()) << option;
    EXPECT_NE(prepared.error().message.find("--metrics-secure"), std::string::npos);
  }
}

TEST(NamespacesValue, TakesEachOnce) {
  const std::string longest(63, 'a');
  EXPECT_EQ(
      parse({"--namespace=b", "--namespace=a-1", "--namespace=b", "--namespace=0", "--namespace", longest})
          .namespaces,
      (std::vector<std::string>{"0", "a-1", longest, "b"}));
  EXPECT_TRUE(parse({}).namespaces.empty());
}

std::string problem_of(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
  } catch (const po::error& problem) {
    return problem.what();
  }
  return "none";
}

TEST(NamespacesValue, RefusesWhatIsNoName) {
  for (const std::string& name :
       {std::string("Team"), std::string("team_a"), std::string("a,b"), std::string("-a"), std::string("a-"),
        std::string("a.b"), std::string("*"), std::string(64, 'a')}) {
    const std::string problem = problem_of({"--namespace=" + name});
    EXPECT_NE(problem.find("--namespace must be the name of one namespace"), std::string::npos) << problem;
    EXPECT_NE(problem.find("\"" + name + "\""), std::string::npos) << problem;
  }
  EXPECT_NE(problem_of({"--namespace", ""}), "none");
  std::vector<std::string> many;
  for (int i = 0; i <= 100; ++i) {
    many.push_back("--namespace=n" + std::to_string(i));
  }
  EXPECT_EQ(problem_of(many), "--namespace may be given 100 times, is given 101 times");
  many.pop_back();
  EXPECT_EQ(parse(many).namespaces.size(), 100U);
}

TEST(PrepareServer, RefusesUnknownLogOptions) {
  ServerOptions options;
  options.log_level = "loud";
  EXPECT_EQ(prepare_server(options).error().code, ErrorCode::kInvalid);
  options.log_level = "info";
  options.log_format = "xml";
  EXPECT_EQ(prepare_server(options).error().code, ErrorCode::kInvalid);
}

TEST(LoadGpuCatalog, ExtendsTheBuiltInOne) {
  const Result<estimator::GpuCatalog> built_in = load_gpu_catalog("");
  ASSERT_TRUE(built_in);
  EXPECT_NE(built_in->find("A100-80GB"), nullptr);
  const TemporaryFile file(
      "apiVersion: plimsoll.dev/v1alpha1\nkind: GPUModel\nmetadata: {name: b999}\nspec: {memory: 512Gi, "
      "productLabels: [NVIDIA-B999]}\n");
  const Result<estimator::GpuCatalog> extended = load_gpu_catalog(file.path());
  ASSERT_TRUE(extended) << to_string(extended.error());
  EXPECT_NE(extended->find("NVIDIA-B999"), nullptr);
}

TEST(LoadGpuCatalog, NamesTheFileThatIsWrong) {
  EXPECT_EQ(load_gpu_catalog("/nowhere/gpus.yaml").error().code, ErrorCode::kNotFound);
  const TemporaryFile broken("kind: [");
  const Result<estimator::GpuCatalog> catalog = load_gpu_catalog(broken.path());
  ASSERT_FALSE(catalog);
  EXPECT_NE(catalog.error().message.find(broken.path()), std::string::npos);
}

// A pipe on which a child tells its parent that it is ready for the next signal.
class Barrier {
 public:
  Barrier() { EXPECT_EQ(::pipe(ends_), 0); }
  ~Barrier() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  void reach() const {
    const char byte = 0;
    EXPECT_EQ(::write(ends_[1], &byte, 1), 1);
  }
  // False when the child has ended.
  bool wait() {
    ::close(std::exchange(ends_[1], -1));  // the parent's
    char byte = 0;
    return ::read(ends_[0], &byte, 1) == 1;
  }

 private:
  int ends_[2] = {-1, -1};
};

// Runs `body` in a process of its own, for signals are the whole process's, and returns how it ended. The body calls
// reach() before each further signal. SIGALRM ends a body that hangs.
int in_child(void (*body)(const Barrier&), const std::vector<int>& signals) {
  Barrier barrier;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(static_cast<unsigned>(testing::kPatience.count()));
    if (!prepare_server({})) {
      ::_exit(99);
    }
    barrier.reach();
    body(barrier);
    ::_exit(0);
  }
  for (const int signal : signals) {
    EXPECT_TRUE(barrier.wait());
    ::kill(child, signal);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(WaitForStopSignal, ReturnsAtEitherSignalAndTheSecondEndsTheProcess) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const int status = in_child([](const Barrier&) { wait_for_stop_signal(); }, {signal});
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << signal;
  }
  const int status = in_child(
      [](const Barrier& barrier) {
        wait_for_stop_signal();
        barrier.reach();
        ::pause();
      },
      {SIGTERM, SIGTERM});
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

// SIGTERM was ignored while decisions ran that did not end.
TEST(ExitAfter, EndsAProcessThatDoesNotStop) {
  const int hangs = in_child(
      [](const Barrier&) {
        const std::jthread limit = exit_after(std::chrono::milliseconds(100));
        ::pause();
      },
      {});
  EXPECT_TRUE(WIFEXITED(hangs) && WEXITSTATUS(hangs) == kExitFailed);
  const int stops =
      in_child([](const Barrier&) { const std::jthread limit = exit_after(std::chrono::hours(1)); }, {});
  EXPECT_TRUE(WIFEXITED(stops) && WEXITSTATUS(stops) == 0);
}

}  // namespace
}  // namespace plimsoll::process
