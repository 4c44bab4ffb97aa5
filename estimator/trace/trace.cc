#include "estimator/trace/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace plimsoll::estimator::inline trace {
namespace {

struct DtypeName {
  const char* name;
  std::int64_t width;
  bool floating;
};
constexpr DtypeName kDtypes[] = {
    {"float32", 4, true},         {"float64", 8, true},         {"float16", 2, true},
    {"bfloat16", 2, true},        {"int64", 8, false},          {"int32", 4, false},
    {"int16", 2, false},          {"int8", 1, false},           {"uint8", 1, false},
    {"uint16", 2, false},         {"uint32", 4, false},         {"uint64", 8, false},
    {"bool", 1, false},           {"complex32", 4, false},      {"complex64", 8, false},
    {"complex128", 16, false},    {"float8_e4m3fn", 1, true},   {"float8_e5m2", 1, true},
    {"float8_e4m3fnuz", 1, true}, {"float8_e5m2fnuz", 1, true},
};

const DtypeName* find(const std::string& name) {
  const auto* found = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const DtypeName& dtype) { return name == dtype.name; });
  return found == std::end(kDtypes) ? nullptr : found;
}

}  // namespace

std::int64_t Count::at(std::int64_t batch) const {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!depends_on_batch() && std::abs(c[0]) < kExact) {
    return std::llround(c[0]);  // the same result as below, without long double arithmetic
  }
  const auto b = static_cast<long double>(batch);
  const long double value = c[0] + b * (c[1] + b * (c[2] + b * static_cast<long double>(c[3])));
  constexpr auto kLimit = static_cast<long double>(std::numeric_limits<std::int64_t>::max());
  if (value >= kLimit) {
    return std::numeric_limits<std::int64_t>::max();
  }
  if (value <= -kLimit) {
    return std::numeric_limits<std::int64_t>::min();
  }
  return std::llround(value);
}

Bytes memory_of(const Trace& trace) {
  std::size_t size = sizeof(Trace);
  const auto rows = [&](const auto& table) { size += table.capacity() * sizeof(table[0]); };
  rows(trace.counts);
  rows(trace.layouts);
  rows(trace.storages);
  rows(trace.tensors);
  rows(trace.operands);
  rows(trace.operators);
  rows(trace.saved);
  rows(trace.temporaries);
  rows(trace.unmeasured);
  rows(trace.parameters);
  rows(trace.buffers);
  for (const std::vector<std::string>* names :
       {&trace.modules, &trace.operator_names, &trace.dtypes, &trace.notes}) {
    rows(*names);
    for (const std::string& name : *names) {
      size += name.capacity();
    }
  }
  for (const Attributes& attributes : trace.attributes) {
    rows(attributes);
    size += attributes.size() * 4 * sizeof(Count);
  }
  return Bytes{static_cast<std::int64_t>(size)};
}

Bytes memory_of(const TraceFile& graph) {
  Bytes sum{sizeof(TraceFile)};
  sum += Bytes{sizeof(crds::EmbeddingTable)} * static_cast<std::int64_t>(graph.embeddings.capacity());
  for (const crds::EmbeddingTable& table : graph.embeddings) {
    sum += Bytes{static_cast<std::int64_t>(table.name.capacity())};
  }
  for (const Trace& trace : graph.traces) {
    sum += memory_of(trace);
  }
  return sum;
}

std::int64_t width_of_dtype(const std::string& name) {
  const DtypeName* dtype = find(name);
  return dtype == nullptr ? 0 : dtype->width;
}

bool is_floating_dtype(const std::string& name) {
  const DtypeName* dtype = find(name);
  return dtype != nullptr && dtype->floating;
}

TorchVersion torch_version_of(std::string_view text) {
  const char* const end = text.data() + text.size();
  std::int32_t major = 0;
  std::int32_t minor = 0;
  const auto [dot, failed] = std::from_chars(text.data(), end, major);
  if (failed != std::errc() || dot == end || *dot != '.' ||
      std::from_chars(dot + 1, end, minor).ec != std::errc() || major < 0 || minor < 0) {
    return 0;
  }
  return std::min(major, 9999) * 100 + std::min(minor, 99);
}

}  // namespace plimsoll::estimator::trace
