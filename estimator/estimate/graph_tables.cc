#include "estimator/estimate/graph_tables.h"

#include <cmath>
#include <string>

#include "estimator/trace/lookups.h"

namespace plimsoll::estimator::inline estimate {
namespace {

constexpr std::int64_t kIndexBytes = 8;  // int64

// Columns that a sample's pooled rows, and the rows of sequences, have in all.
struct Columns {
  Bytes pooled;  // saturates
  Bytes sequences;
};

struct Lookups {
  Columns columns;
  std::int64_t count = 0;
  bool have_indices = false;
};

Lookups summary_of(const Trace& trace, const TablesRequest& request) {
  Lookups lookups;
  for (const auto& [op, lookup] : lookups_of(trace, request.budget)) {
    if (lookup.backward) {
      continue;
    }
    ++lookups.count;
    lookups.have_indices = lookups.have_indices || lookup.has_indices;
    (lookup.pooled ? lookups.columns.pooled : lookups.columns.sequences) += Bytes{lookup.columns};
  }
  return lookups;
}

Columns columns_of(const std::vector<crds::EmbeddingTable>& tables, Budget* budget) {
  Columns columns;
  for (const crds::EmbeddingTable& table : tables) {
    charge(budget, 1);
    (table.sequence_length == 0 ? columns.pooled : columns.sequences) +=
        Bytes{table.dim} * table.count * table.features;
  }
  return columns;
}

Result<void> check_columns(const char* kind, Bytes of_graph, Bytes of_tables) {
  if (of_graph == of_tables) {
    return {};
  }
  return invalid("the graph's " + std::string(kind) + " embeddings have " + std::to_string(of_graph.count) +
                 " columns and those of the tables " + std::to_string(of_tables.count) +
                 "; the sum of the tables' dim x count x features must be what the graph was exported with");
}

}  // namespace

Result<void> check_tables(const Trace& trace, const std::vector<crds::EmbeddingTable>& tables,
                          const TablesRequest& request) {
  const Lookups lookups = summary_of(trace, request);
  if (lookups.count == 0 && tables.empty()) {
    return {};
  }
  if (tables.empty()) {
    return invalid("the graph looks embeddings up in " + std::to_string(lookups.count) +
                   " places, of tables that it does not describe; give them in spec.model.embeddings");
  }
  if (lookups.count == 0) {
    return invalid(
        "there are embedding tables, but the graph looks nothing up; export the whole model with its embedding "
        "collections, or the dense part with --embedding-inputs, with inputs that require a gradient");
  }
  const Columns needed = columns_of(tables, request.budget);
  const Result<void> pooled = check_columns("pooled", lookups.columns.pooled, needed.pooled);
  return pooled ? check_columns("sequence", lookups.columns.sequences, needed.sequences) : pooled;
}

Trace with_batches_of_tables(const Trace& trace, const std::vector<crds::EmbeddingTable>& tables,
                             const TablesRequest& request) {
  Trace whole = trace;
  if (!summary_of(trace, request).have_indices) {
    double per_sample = 0;
    for (const crds::EmbeddingTable& table : tables) {
      charge(request.budget, 1);
      per_sample += static_cast<double>(table.count * table.features) *
                    (1 + table.pooling_factor * table.lookup_frequency);
    }
    whole.storages.push_back(
        {.bytes = {{0, std::ceil(per_sample) * kIndexBytes, 0, 0}}, .role = StorageRole::kInput});
  }
  for (TraceStorage& storage : whole.storages) {
    if (storage.role == StorageRole::kInput && storage.bytes.depends_on_batch()) {
      storage.count *= request.batches_in_flight;
    }
  }
  return whole;
}

}  // namespace plimsoll::estimator::estimate
