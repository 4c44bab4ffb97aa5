#include "controllers/attempt_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controllers/last_words.h"
#include "controllers/log_lines.h"
#include "controllers/out_of_memory_text.h"
#include "tests/controllers/endings.h"

namespace plimsoll::controllers {
namespace {

using ::testing::HasSubstr;

TEST(AttemptEnd, CorpusIsJudgedAsAPersonWould) {
  std::vector<Ending> endings = endings_of_memory();
  for (const auto& more : {endings_of_the_cluster(), endings_of_programs()}) {
    endings.insert(endings.end(), more.begin(), more.end());
  }
  EXPECT_GE(endings.size(), 200U);
  for (const Ending& ending : endings) {
    const AttemptEnd end = classify(ending.pods);
    EXPECT_STREQ(name_of(end.verdict), name_of(ending.verdict)) << ending.name << ": " << end.evidence.text;
    // In whatever order the API lists them.
    std::vector<Json> reversed(ending.pods.rbegin(), ending.pods.rend());
    EXPECT_EQ(classify(reversed).verdict, ending.verdict) << ending.name << ", in reverse";
  }
}

TEST(AttemptEnd, ShowsWhatItGoesBy) {
  const AttemptEnd end = classify({ended({.message = kNccl}, "job-0"),
                                   ended({.message = std::string("loading\n") + kOutOfMemory}, "job-1")});
  EXPECT_EQ(end.evidence.pod, "job-1");
  EXPECT_EQ(end.evidence.container, "trainer");
  EXPECT_EQ(end.evidence.field, "status.containerStatuses[trainer].state.terminated.message");
  EXPECT_THAT(end.evidence.text, HasSubstr("CUDA out of memory. Tried to allocate 2.00 GiB."));
  EXPECT_LE(end.evidence.text.size(), 300U);
}

TEST(AttemptEnd, ALogSaysWhatTheStatusDoesNot) {
  const std::vector<Json> pods = {ended({.code = 1}, "job-0"), ended({.code = 1}, "job-1")};
  EXPECT_EQ(classify(pods).verdict, Verdict::kUnknown);
  const AttemptEnd end = classify(pods, {{.pod = "job-1", .container = "", .text = kOutOfMemory}});
  EXPECT_EQ(end.verdict, Verdict::kCudaOutOfMemory);
  EXPECT_EQ(end.evidence.pod, "job-1");
  EXPECT_EQ(end.evidence.field, "log");
  EXPECT_EQ(classify(pods, {{.pod = "job-7", .container = "", .text = kOutOfMemory}}).verdict,
            Verdict::kUnknown);
}

TEST(AttemptEnd, SurvivesStatusesOfNonsense) {
  const std::vector<Json> values = {Json(),     Json(5),     Json("x"), Json(::Json::arrayValue),
                                    Json(true), Json(1e300), Json(-1),  Json(::Json::objectValue)};
  for (const Json& value : values) {
    for (const char* field : {"metadata", "status"}) {
      Json odd = ended({.message = kOutOfMemory});
      odd[field] = value;
      classify({odd, value});
    }
    for (const char* field : {"phase", "reason", "message", "conditions", "containerStatuses"}) {
      Json odd = ended({.message = kOutOfMemory});
      odd["status"][field] = value;
      classify({odd});
    }
    Json odd = ended({.message = kOutOfMemory});
    Json& state = odd["status"]["containerStatuses"][0]["state"];
    state["terminated"]["exitCode"] = value;
    classify({odd});
    state["terminated"] = value;
    classify({odd});
    state = value;
    classify({odd});
  }
}

TEST(AttemptEnd, TheTrainerIsFoundBehindAProxyThatAMeshPutFirst) {
  Json made =
      with(ended({.message = kOutOfMemory, .container = "main"}),
           {.code = 137, .reason = "OOMKilled", .time = "2026-11-21T08:00:00Z", .container = "proxy"});
  EXPECT_EQ(classify({made}).verdict, Verdict::kHostOutOfMemory);  // who is the trainer is not told
  Json& containers = made["spec"]["containers"];
  containers[0]["name"] = "proxy";
  containers[1]["name"] = "main";
  containers[1]["resources"]["limits"]["nvidia.com/gpu"] = "8";
  EXPECT_EQ(classify({made}).verdict, Verdict::kCudaOutOfMemory);
  EXPECT_EQ(classify({made}).evidence.container, "main");
}

TEST(AttemptEnd, ALogIsReadThoughNoStatusSaysWhoWroteIt) {
  const std::vector<LogTail> log = {{.pod = "", .container = "", .text = kOutOfMemory}};
  EXPECT_EQ(classify({pod()}, log).verdict, Verdict::kCudaOutOfMemory);
  EXPECT_EQ(classify({}, log).verdict, Verdict::kCudaOutOfMemory);
  EXPECT_EQ(classify({pod("job-0", "Running")}, log).verdict, Verdict::kRunning);
}

struct Figures {
  const char* text;
  std::optional<double> needed;  // GiB
  std::optional<double> capacity;
  std::optional<double> fragmentation;
};

TEST(OutOfMemoryText, ReadsTheFiguresOfEachSpelling) {
  const std::vector<Figures> all = {
      {kOutOfMemory, 79.90, 79.15, 5.25},
      {"CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.78 GiB total capacity; 14.20 GiB already "
       "allocated; 312.75 MiB free; 14.38 GiB reserved in total by PyTorch)",
       14.88, 15.78, 0.18},
      // Who holds what is not said of this process: all that is not free.
      {"CUDA out of memory. Tried to allocate 1.00 GiB. GPU 1 has a total capacty of 40.00 GiB of which 0.50 "
       "GiB "
       "is free. Process 22 has 39.00 GiB memory in use. Of the allocated memory 37.10 GiB is allocated by "
       "PyTorch, and 1.25 GiB is reserved by PyTorch but unallocated.",
       40.50, 40.00, 1.25},
      {"CUDA out of memory. Tried to allocate 512 bytes.", {}, {}, {}},
      {"RuntimeError: CUDA error: out of memory", {}, {}, {}},
      {"CUDA out of memory. Tried to allocate nan GiB. GPU 0 has a total capacity of -1 GiB of which",
       {},
       {},
       {}},
      // No size that a card could have had to do with is taken for one.
      {"CUDA out of memory. Tried to allocate 1e308 GiB. this process has 1e308 GiB memory in use",
       {},
       {},
       {}},
      {"CUDA out of memory. Tried to allocate more than 1EB memory.", {}, {}, {}},
      {"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 0 "
       "bytes "
       "is free. Of the allocated memory 14.51 GiB is allocated by PyTorch, and 15.90 MiB is reserved by "
       "PyTorch but unallocated.",
       8.0195, 8.00, 0.01553},
      // A private pool of CUDA graphs, a share of the card that the process may have.
      {"CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 79.11 GiB of which "
       "12.00 "
       "GiB is free. Including non-PyTorch memory, this process has 67.11 GiB memory in use. 63.29 GiB "
       "allowed; Of the allocated memory 60.00 GiB is allocated by PyTorch, with 54.00 MiB allocated in "
       "private pools (e.g., CUDA Graphs), and 2.25 GiB is reserved by PyTorch but unallocated.",
       68.61, 79.11, 2.25},
      // PyTorch 1.3 and before it.
      {"CUDA out of memory. Tried to allocate 256.00 MiB (GPU 0; 10.91 GiB total capacity; 9.50 GiB already "
       "allocated; 3.25 MiB free; 512.00 MiB cached)",
       10.25, 10.91, 0.50},
  };
  for (const Figures& figures : all) {
    const std::optional<MemoryWords> words = find_memory_words(figures.text);
    ASSERT_TRUE(words) << figures.text;
    EXPECT_TRUE(words->of_gpu);
    const OutOfMemoryFigures found = read_figures(figures.text);
    const auto expect = [&](const std::optional<Bytes>& is, const std::optional<double>& wanted) {
      ASSERT_EQ(is.has_value(), wanted.has_value()) << figures.text;
      if (is) {
        EXPECT_NEAR(static_cast<double>(is->count) / 0x1p30, *wanted, 0.001) << figures.text;
      }
    };
    expect(found.needed, figures.needed);
    expect(found.capacity, figures.capacity);
    expect(found.fragmentation, figures.fragmentation);
  }
}

TEST(OutOfMemoryText, DoesNotMixTwoRanksFigures) {
  const std::string two =
      "CUDA out of memory. Tried to allocate 1.00 GiB.\nCUDA out of memory. Tried to allocate 7.00 GiB. GPU "
      "0 has a "
      "total capacity of 10.00 GiB of which 1.00 GiB is free.";
  EXPECT_FALSE(read_figures(two).capacity.has_value());
}

TEST(OutOfMemoryText, EveryBeginningOfALongTextIsRead) {
  const std::string text = std::string(kOutOfMemory) + "\n" + kNccl;
  for (std::size_t length = 0; length <= text.size(); ++length) {
    read_last_words(std::string_view(text).substr(0, length));
    read_last_words(std::string_view(text).substr(length));
    line_at(std::string_view(text).substr(0, length), length / 2, 40);
  }
}

}  // namespace
}  // namespace plimsoll::controllers
