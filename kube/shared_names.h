// with_shared_names(): the same object with one copy, for all objects of the process, of what they have in
// common: the names of members, and words such as "True" and "Running". jsoncpp keeps a name and a string of
// its own for every member otherwise, which is a third of what a cache of pods takes.
//
//   kept = with_shared_names(project(pod));
//
// Words are remembered for good, so their number is bounded; what comes later is kept as jsoncpp keeps it.
// Members that are null go, since Kubernetes takes them for absent (every condition of a pod has one). In all
// else equal to the value it was made of, and as free to copy and change. Any thread.
#pragma once

#include "base/json.h"

namespace plimsoll::kube {

Json with_shared_names(const Json& value);

}  // namespace plimsoll::kube
