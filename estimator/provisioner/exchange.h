// What lookups and their exchanges allocate on each rank beside the tables: indices that arrive, rows that are
// looked up for other ranks, and the buffers in which results and gradients travel.
//
//   std::vector<RankExchange> ranks = exchanges_of(request, plan, {.collectives_copy = true});
//   ranks[0].kept + ranks[0].pooled.forward;
//
// It replays what torchrec's modules allocate and free in their order, one sharding type after the other:
// distributed/comm_ops.py (All2All_Pooled_*, All2All_Seq_*, ReduceScatterBase_*), sharding/rw_sharding.py,
// sharding/twrw_sharding.py, dist_data.py (KJTAllToAll). Trainers have equal batches, and lookups spread evenly over
// a table's rows. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline provisioner {

// Of one kind of collection, pooled or sequences: the most that is allocated at once.
struct ExchangePeaks {
  Bytes forward;   // before the results are the dense part's, these included
  Bytes backward;  // beside the gradient of the results, which the dense part has made
  // What of that gradient is never made where it is a part of another tensor: all of it, if each sharding type takes its columns of
  // that, or DDP's lookups read it as it is; none, if one exchange sends all.
  Bytes unmade{};
};

struct RankExchange {
  Bytes kept;  // all the time: FBGEMM's modules keep their last indices and offsets; DDP keeps buckets
  ExchangePeaks pooled;
  ExchangePeaks sequences;
};

struct ExchangeOptions {
  bool collectives_copy = false;  // gloo copies what it gathers and scatters; NCCL does not
  std::int64_t result_bytes = 4;  // of an element of a result: torchrec's default is fp32
};

// By rank.
std::vector<RankExchange> exchanges_of(const ShardRequest& request, const Plan& plan,
                                       const ExchangeOptions& options);

}  // namespace plimsoll::estimator::provisioner
