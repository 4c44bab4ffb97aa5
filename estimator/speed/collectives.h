// collective_seconds(): the time of a collective among the trainers of a group, by NCCL's ring.
//
//   Links links{.intra = 300e9, .inter = 25e9};
//   Group group = group_of(64, 8, 8);       // 64 trainers, every eighth: one on each of 64 nodes
//   collective_seconds(Collective::kAllGather, 1e9, group, links);
//
// Time = latency + bytes / bandwidth for the fastest of NCCL's three protocols, as NCCL itself chooses (nccl 5067397c
// src/graph/tuning.cc). The bytes are those of the whole tensor; each trainer moves (n-1)/n of them, twice for an all-reduce
// (nccl-tests doc/PERFORMANCE.md). Pure; any thread.
#pragma once

#include <cstdint>

namespace plimsoll::estimator::inline speed {

enum class Collective : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll };

// Bytes per second and GPU, in one direction, as data sheets have them.
struct Links {
  double intra = 0;  // NVLink, or PCIe
  double inter = 0;  // the GPU's share of its node's network
  double host = 0;   // and its host's memory
};

struct Group {
  std::int64_t size = 1;
  std::int64_t on_node = 1;  // members on one node
  std::int64_t nodes() const { return (size + on_node - 1) / on_node; }
};

// `size` trainers whose ranks are `stride` apart; each node has `per_node`.
Group group_of(std::int64_t size, std::int64_t stride, std::int64_t per_node);

// 0 for a group of one.
double collective_seconds(Collective collective, double bytes, const Group& group, const Links& links);

// The share of the GPU's multiprocessors that a collective of the group keeps from computation.
double occupied_share(const Group& group);

// From one trainer to another.
double send_seconds(double bytes, bool between_nodes, const Links& links);

}  // namespace plimsoll::estimator::speed
