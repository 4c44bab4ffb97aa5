#include <vector>

namespace plimsoll::gates {

struct Candidate {
  int trainers = 0;
};

int first() {
  std::vector<Candidate> candidates(1);
  return candidates.front().trainers;
}

}  // namespace plimsoll::gates
