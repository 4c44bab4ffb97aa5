#include <vector>

namespace plimsoll::gates {

struct Candidate {
  double cost = 0;
  int option = 0;
};

int second() {
  std::vector<Candidate> candidates(1);
  return candidates.front().option;
}

}  // namespace plimsoll::gates
