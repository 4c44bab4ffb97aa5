// What the examples of base/ leave open.
#pragma once

#include <condition_variable>

#include "base/budget.h"
#include "base/json/packed.h"
#include "base/json/selection.h"
#include "base/json/view.h"
#include "base/recently_used.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {

struct backoff_example {
  std::uint64_t seed = 0;
  void sleep(std::chrono::nanoseconds delay);
};
struct budget_example {
  using Plan = int;
  using Table = int;
  std::chrono::steady_clock::time_point deadline;
  std::stop_token stop;
  int request = 0;
  std::int64_t size = 0;
  std::vector<Table> tables;
  Result<Plan> search(int request, Budget& budget);
};
struct bytes_example {
  Bytes reserved;
  void log(const std::string& text);
};
struct catch_all_example {
  std::string key;
  void handle(const std::string& key);
};
struct cgroup_example {
  void start_workers(int count);
};
struct edit_example {
  Json job, name, container, volume;
};
struct selection_example {
  JsonView pod;
};
struct split_example {
  std::string body;
};
struct view_example {
  std::string content;
  void use(std::int64_t count);
};
struct memory_pool_example {
  std::chrono::steady_clock::time_point deadline;
  std::stop_token stop;
};
struct packed_example {
  JsonView view;
  JsonSelection selection;
};
struct recently_used_example {
  using Decision = int;
  std::string key;
  Decision decision = 0;
  void use(Decision decision);
};
struct result_example {
  using Job = Json;
  std::string text;
  Result<Job> decode(const std::string& text);
  void use(const Job& job);
};

}  // namespace plimsoll::examples
