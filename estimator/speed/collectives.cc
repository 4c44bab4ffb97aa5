#include "estimator/speed/collectives.h"

#include <algorithm>
#include <limits>

namespace plimsoll::estimator::inline speed {
namespace {

// Plateaus of large messages over the advertised rate (stas00/ml-engineering 744d01e1, network/benchmarks): all-reduce of eight
// A100 235 of 300 GB/s, all-gather and reduce-scatter of eight H200 361 and 363 of 450; 32 B200 on four nodes 37 GB/s of each
// adapter's 50.
constexpr double kIntraShare = 0.80;
constexpr double kInterShare = 0.90;
// ai-dynamo/aiconfigurator 095f58a5, systems/data/*/comm/nccl (Apache-2.0): all-to-all of 512 MiB among eight GPUs moves 68 % of the
// advertised rate on A100, 70 and 69 % on H100 and H200, 63 and 64 % on B200 and B300.
constexpr double kAllToAllShare = 0.68;

// nccl src/graph/tuning.cc, ring: base latency, and that of each step inside a node and between nodes, in seconds; the share
// of the bandwidth that is not spent on flags.
struct Protocol {
  double base, intra, inter, share;
};
constexpr Protocol kProtocols[] = {
    {6.6e-6, 0.6e-6, 2.7e-6, 0.5},    // LL
    {14.0e-6, 1.9e-6, 4.0e-6, 0.92},  // LL128
    {8.4e-6, 3.4e-6, 14.0e-6, 1.0},   // Simple
};

// What one trainer receives a second. Between nodes there are as many rings as members on a node, each through an adapter of
// its own (nccl src/graph/connect.cc: the rings of a node's graph; src/graph/tuning.cc: nChannels * bwInter).
double ring_bandwidth(const Group& group, const Links& links) {
  const double intra = links.intra * kIntraShare;
  if (group.nodes() < 2) {
    return intra;
  }
  const double inter = links.inter * kInterShare * static_cast<double>(group.on_node);
  return group.on_node > 1 ? std::min(intra, inter) : inter;
}

double all_to_all_bandwidth(const Group& group, const Links& links) {
  const double intra = links.intra * kAllToAllShare;
  if (group.nodes() < 2) {
    return intra;
  }
  const auto size = static_cast<double>(group.size);
  const auto others = size - static_cast<double>(group.on_node);
  const double inter = links.inter * kInterShare * (size - 1) / others;
  return std::min(intra, inter);
}

}  // namespace

Group group_of(std::int64_t size, std::int64_t stride, std::int64_t per_node) {
  const std::int64_t fitting = std::max<std::int64_t>(1, per_node / std::max<std::int64_t>(1, stride));
  return {.size = size, .on_node = std::min(size, fitting)};
}

double collective_seconds(Collective collective, double bytes, const Group& group, const Links& links) {
  if (group.size < 2) {
    return 0;
  }
  const auto size = static_cast<double>(group.size);
  const double rounds = collective == Collective::kAllReduce ? 2 : 1;
  const double bandwidth =
      collective == Collective::kAllToAll ? all_to_all_bandwidth(group, links) : ring_bandwidth(group, links);
  const double moved = rounds * bytes * (size - 1) / size;
  const auto crossing = static_cast<double>(group.nodes() - 1);
  const double inside = size - 1 - crossing;
  double fastest = std::numeric_limits<double>::infinity();
  for (const Protocol& protocol : kProtocols) {
    const double latency = protocol.base + rounds * (inside * protocol.intra + crossing * protocol.inter);
    fastest = std::min(fastest, latency + moved / (bandwidth * protocol.share));
  }
  return fastest;
}

double occupied_share(const Group& group) {
  // arXiv 2507.03114: overlapped with exchanges, computation takes 18.9 % longer on average (four A100, H100 and others of a node), and
  // running one after the other takes 10.2 % longer than that. So the exchanges took 1.189 * 1.102 - 1 = 31 % of the computation.
  constexpr double kOccupied = 0.189 / (1.189 * 1.102 - 1);
  // Rings that leave the node at each step move an adapter's bytes alone: calculon-ai/calculon caa4b11f, systems/a100_80g.json
  // (processor_usage).
  constexpr double kOccupiedByNetwork = 0.02;
  return group.size < 2 ? 0 : group.on_node < 2 ? kOccupiedByNetwork : kOccupied;
}

double send_seconds(double bytes, bool between_nodes, const Links& links) {
  const Protocol& simple = kProtocols[2];
  return between_nodes ? simple.base + simple.inter + bytes / (links.inter * kInterShare)
                       : simple.base + simple.intra + bytes / (links.intra * kIntraShare);
}

}  // namespace plimsoll::estimator::speed
