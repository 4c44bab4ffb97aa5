#include "remediation/shared_memory.h"

#include <algorithm>

#include "base/json/edit.h"

namespace plimsoll::remediation {

using crds::SharedMemory;
using Change = SharedMemoryGrowth::Change;

SharedMemoryGrowth enlarge_shared_memory(const crds::TrainingJob& job, const crds::Attempt& attempt,
                                         Bytes most) {
  SharedMemoryGrowth growth;
  const Json& pod = member(job.raw, {"spec", "template", "spec"});
  const Json& containers = member(pod, {"containers"});
  const int trainer = crds::trainer_container(containers);
  if (trainer < 0 ||
      (!attempt.container.empty() &&
       attempt.container != text_member(element(containers, static_cast<std::size_t>(trainer)), {"name"}))) {
    return growth;
  }
  growth.given = crds::shared_memory_of(pod);
  if (growth.given.kind == SharedMemory::Kind::kHost || growth.given.kind == SharedMemory::Kind::kForeign) {
    growth.change = Change::kNotPlimsolls;
    return growth;
  }
  if (growth.given.kind == SharedMemory::Kind::kUnsized) {
    growth.change = Change::kIsAllMemory;
    return growth;
  }
  const Bytes asked = attempt.shared_memory.value_or(Bytes{});
  const Bytes memory = attempt.host_memory.value_or(Bytes{});
  growth.before = std::max(growth.given.size, asked);
  growth.now =
      std::max(growth.before * 2, crds::usual_shared_memory(std::min(attempt.per_node, attempt.trainers)));
  if (most > Bytes{}) {
    growth.now = std::min(growth.now, Bytes{std::max(trainer_memory(job, memory), most).count / 2});
  }
  if (growth.now <= growth.before) {
    growth.change = Change::kAtLimit;
    growth.now = growth.before;
    return growth;
  }
  growth.change = Change::kEnlarged;
  // A memory limit was chosen without the runtime's own /dev/shm in mind.
  const bool counted = growth.given.kind == SharedMemory::Kind::kSized || asked > Bytes{};
  growth.memory = add_host_memory(job, growth.now - (counted ? growth.before : Bytes{}), most, memory);
  return growth;
}

}  // namespace plimsoll::remediation
