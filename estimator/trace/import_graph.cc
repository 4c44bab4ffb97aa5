#include "estimator/trace/import_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/gzip.h"
#include "base/json/view.h"
#include "base/utf8.h"

namespace plimsoll::estimator::inline trace {
namespace {

constexpr std::string_view kFormat = "plimsoll-graph/1";
constexpr std::size_t kMaxRank = 64;             // PyTorch's own limit
constexpr std::size_t kMaxRows = 1U << 26;       // indices stay far inside 32 bits
constexpr double kMaxCoefficient = 4.611686e18;  // 2^62
constexpr std::int64_t kMaxRecordedBatch = std::int64_t{1} << 32;
constexpr std::size_t kMaxNameShown = 80;
constexpr std::size_t kMaxNotes = 8;
constexpr std::size_t kMaxNote = 256;

const char* const kRoleNames[] = {"parameter", "buffer",     "input",    "output",
                                  "loss",      "activation", "gradient", "backward"};
const char* const kPrecisions[] = {"FP32", "TF32", "BF16Mixed", "FP16Mixed", "BF16", "FP16"};

// Where a value is: "traces[0].operators[17][3]". Lives on the stack, made into text only for an error.
class Place {
 public:
  explicit Place(std::string_view key) : key_(key) {}
  Place(const Place& parent, std::string_view key) : parent_(&parent), key_(key) {}
  Place(const Place& parent, std::size_t index) : parent_(&parent), index_(index) {}

  std::string text() const {
    const std::string before = parent_ == nullptr ? std::string() : parent_->text();
    if (key_.empty()) {
      return before + '[' + std::to_string(index_) + ']';
    }
    return before + (before.empty() ? "" : ".") + std::string(key_);
  }

 private:
  const Place* parent_ = nullptr;
  std::string_view key_;
  std::size_t index_ = 0;
};

Error wrong(const Place& place, const std::string& what) {
  return invalid(place.text() + ": " + what);
}

std::string shown(std::string_view text) {
  return '"' + std::string(text.substr(0, kMaxNameShown)) + '"';
}

// Parsed JSON: simdjson's tape, strings and index, at most, for each byte of the text
// (dom_parser_implementation).
constexpr std::int64_t kParsedBytesPerByte = 15;
constexpr std::size_t kParsedPerUnit = 256;  // bytes in the time of a unit of work
// A row of any table as its vector grows, and an element of a list in it.
constexpr std::int64_t kBytesPerRow = 192;
constexpr std::int64_t kBytesPerElement = 16;

// What reading a file takes beyond its text.
class Reading {
 public:
  explicit Reading(Budget* budget) : memory_(budget) {}

  void rows(std::size_t count) { take(Bytes{kBytesPerRow} * static_cast<std::int64_t>(count), count); }
  void elements(std::size_t count) {
    take(Bytes{kBytesPerElement} * static_cast<std::int64_t>(count), count);
  }

 private:
  static constexpr Bytes kStep = 256_KiB;

  void take(Bytes bytes, std::size_t work) {
    charge(memory_.budget(), work);
    taken_ += bytes;
    if (taken_ > memory_.bytes()) {
      memory_.resize(taken_ + kStep);
    }
  }

  BudgetBytes memory_;
  Bytes taken_;
};

// Reads one trace. Each reader returns false once something is wrong; error() then says what and where.
class TraceReader {
 public:
  TraceReader(const Place& place, Reading& reading) : place_(place), reading_(reading) {}

  bool read(JsonView view) {
    if (view.kind() != JsonView::Kind::kObject) {
      return fail(place_, "must be an object");
    }
    return index_members(view) && read_heading() && read_notes() && read_names() && read_attributes() &&
           read_layouts() && read_operators() && read_storages() && read_tensors() && check_operands() &&
           read_saved() && read_temporaries() && read_parameters() && read_buffers();
  }
  Trace take() { return std::move(trace_); }
  const Error& error() const { return error_; }

 private:
  using Member = std::pair<std::string_view, JsonView>;

  bool fail(const Place& place, const std::string& what) {
    error_ = wrong(place, what);
    return false;
  }

  // ---- single values ----

  bool index_members(JsonView view) {
    for (const Member each : view.members()) {
      for (const Member& before : members_) {
        if (before.first == each.first) {
          return fail(Place(place_, each.first), "is given twice");
        }
      }
      members_.push_back(each);
      if (members_.size() > 256) {
        return fail(place_, "has more than 256 members");
      }
    }
    return true;
  }

  bool find(std::string_view key, JsonView::Kind kind, std::optional<JsonView>& found) {
    const auto member =
        std::find_if(members_.begin(), members_.end(), [&](const Member& each) { return each.first == key; });
    if (member == members_.end()) {
      return fail(place_, "has no \"" + std::string(key) + "\"");
    }
    found = member->second;
    if (found->kind() != kind) {
      return fail(Place(place_, key), kind == JsonView::Kind::kArray    ? "must be an array"
                                      : kind == JsonView::Kind::kString ? "must be a string"
                                                                        : "must be an integer");
    }
    return true;
  }

  bool text(std::string_view key, std::string& into) {
    std::optional<JsonView> found;
    if (!find(key, JsonView::Kind::kString, found)) {
      return false;
    }
    into = *found->text();
    return true;
  }

  bool in_range(const Place& place, JsonView view, std::int64_t least, std::int64_t most,
                std::int32_t& into) {
    const std::optional<std::int64_t> value = view.integer();
    if (!value || *value < least || *value > most) {
      return fail(place, "must be an integer from " + std::to_string(least) + " to " + std::to_string(most) +
                             (value ? ", is " + std::to_string(*value) : ""));
    }
    into = static_cast<std::int32_t>(*value);
    return true;
  }

  bool coefficient(const Place& place, JsonView view, double& into) {
    const std::optional<double> value = view.number();
    if (!value || !std::isfinite(*value) || std::abs(*value) > kMaxCoefficient) {
      return fail(place, "must be a number within 2^62");
    }
    into = *value;
    return true;
  }

  bool count(const Place& place, JsonView view, Count& into) {
    into = Count{};
    if (view.kind() != JsonView::Kind::kArray) {
      return coefficient(place, view, into.c[0]);
    }
    const JsonRange<JsonView> elements = view.elements();
    if (elements.empty() || elements.size() > into.c.size()) {
      return fail(place, "a count has 1 to " + std::to_string(into.c.size()) + " coefficients, not " +
                             std::to_string(elements.size()));
    }
    std::size_t i = 0;
    for (const JsonView each : elements) {
      if (!coefficient(Place(place, i), each, into.c[i])) {
        return false;
      }
      ++i;
    }
    return true;
  }

  bool names(std::string_view key, std::vector<std::string>& into) {
    std::optional<JsonView> found;
    if (!find(key, JsonView::Kind::kArray, found)) {
      return false;
    }
    const Place place(place_, key);
    if (!few_enough(place, found->elements().size())) {
      return false;
    }
    for (const JsonView each : found->elements()) {
      reading_.rows(1);
      const std::optional<std::string_view> name = each.text();
      if (!name) {
        return fail(Place(place, into.size()), "must be a string");
      }
      into.emplace_back(*name);
    }
    return true;
  }

  bool few_enough(const Place& place, std::size_t rows) {
    return rows <= kMaxRows || fail(place, "has more than " + std::to_string(kMaxRows) + " rows");
  }

  // ---- tables ----

  // Calls `read(place, row)` for each row.
  template <class Read>
  bool table(std::string_view key, Read read) {
    std::optional<JsonView> found;
    if (!find(key, JsonView::Kind::kArray, found)) {
      return false;
    }
    const Place place(place_, key);
    if (!few_enough(place, found->elements().size())) {
      return false;
    }
    std::size_t i = 0;
    for (const JsonView row : found->elements()) {
      reading_.rows(1);
      if (!read(Place(place, i), row)) {
        return false;
      }
      ++i;
    }
    return true;
  }

  // A row of `columns` columns; `read(column, place, value)` for each.
  template <class Read>
  bool row(const Place& place, JsonView view, std::size_t columns, Read read) {
    if (view.kind() != JsonView::Kind::kArray || view.elements().size() != columns) {
      return fail(place, "must be an array of " + std::to_string(columns));
    }
    std::size_t column = 0;
    reading_.elements(columns);
    for (const JsonView value : view.elements()) {
      if (!read(column, Place(place, column), value)) {
        return false;
      }
      ++column;
    }
    return true;
  }

  template <class Values>
  static std::int64_t last(const Values& values) {
    return static_cast<std::int64_t>(values.size()) - 1;
  }

  bool read_heading() {
    std::string device;
    if (!text("device", device) || !text("precision", trace_.precision) || !text("method", trace_.method)) {
      return false;
    }
    if (device != "cpu" && device != "cuda") {
      return fail(Place(place_, "device"), "must be \"cpu\" or \"cuda\", is " + shown(device));
    }
    trace_.device = device == "cpu" ? Device::kCpu : Device::kCuda;
    if (std::find(std::begin(kPrecisions), std::end(kPrecisions), trace_.precision) ==
        std::end(kPrecisions)) {
      return fail(Place(place_, "precision"), "is not known: " + shown(trace_.precision));
    }
    const bool read = table("batchSizes", [this](const Place& place, JsonView each) {
      const std::optional<std::int64_t> batch = each.integer();
      if (!batch || *batch < 1 || *batch > kMaxRecordedBatch) {
        return fail(place, "must be an integer from 1 to " + std::to_string(kMaxRecordedBatch));
      }
      trace_.batch_sizes.push_back(*batch);
      return true;
    });
    return read && (!trace_.batch_sizes.empty() || fail(Place(place_, "batchSizes"), "must not be empty"));
  }

  // For a person, in a terminal and in the warnings of an API server: a few, short, without line breaks.
  bool read_notes() {
    const auto notes = std::find_if(members_.begin(), members_.end(),
                                    [](const Member& each) { return each.first == "notes"; });
    if (notes == members_.end()) {
      return true;
    }
    return table("notes", [this](const Place& place, JsonView each) {
      const std::optional<std::string_view> note = each.text();
      if (!note) {
        return fail(place, "must be a string");
      }
      if (trace_.notes.size() < kMaxNotes) {
        std::string& kept = trace_.notes.emplace_back(utf8_prefix(*note, kMaxNote));
        std::replace_if(
            kept.begin(), kept.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
      }
      return true;
    });
  }

  bool read_names() {
    std::vector<std::string> roles;
    if (!names("dtypes", trace_.dtypes) || !names("roles", roles) || !names("modules", trace_.modules) ||
        !names("operatorNames", trace_.operator_names)) {
      return false;
    }
    for (std::size_t i = 0; i < trace_.dtypes.size(); ++i) {
      if (width_of_dtype(trace_.dtypes[i]) == 0) {
        return fail(Place(Place(place_, "dtypes"), i),
                    "no type of PyTorch is called " + shown(trace_.dtypes[i]));
      }
    }
    if (trace_.dtypes.size() > 1000) {
      return fail(Place(place_, "dtypes"), "has more than 1000 rows");
    }
    for (std::size_t i = 0; i < roles.size(); ++i) {
      const auto* const role = std::find(std::begin(kRoleNames), std::end(kRoleNames), roles[i]);
      if (role == std::end(kRoleNames)) {
        return fail(Place(Place(place_, "roles"), i), "no storage has the role " + shown(roles[i]));
      }
      roles_.push_back(static_cast<StorageRole>(role - std::begin(kRoleNames)));
    }
    return true;
  }

  bool attribute_value(const Place& place, JsonView view, AttributeValue& into) {
    Count one;
    switch (view.kind()) {
      case JsonView::Kind::kNull: return true;
      case JsonView::Kind::kString: into = std::string(*view.text()); return true;
      case JsonView::Kind::kBoolean:
        one.c[0] = *view.boolean() ? 1 : 0;
        into = one;
        return true;
      case JsonView::Kind::kInteger:
      case JsonView::Kind::kReal:
        // Rules look at small numbers only: what a scalar is worth plays no role for memory.
        one.c[0] = *view.number();
        into = one;
        return true;
      case JsonView::Kind::kObject: {
        const std::optional<JsonView> inner = view.member("count");
        if (!inner || !count(Place(place, "count"), *inner, one)) {
          return inner ? false : fail(place, "an object among attributes must be {\"count\": COUNT}");
        }
        into = one;
        return true;
      }
      case JsonView::Kind::kArray: return attribute_list(place, view, into);
    }
    return true;
  }

  bool attribute_list(const Place& place, JsonView view, AttributeValue& into) {
    std::vector<Count> list;
    for (const JsonView each : view.elements()) {
      reading_.elements(sizeof(Count) / kBytesPerElement);
      AttributeValue value;
      if (each.kind() == JsonView::Kind::kArray) {
        return fail(place, "lists among attributes are flat");
      }
      if (!attribute_value(Place(place, list.size()), each, value)) {
        return false;
      }
      const Count* number = std::get_if<Count>(&value);
      list.push_back(number == nullptr ? Count{} : *number);
    }
    into = std::move(list);
    return true;
  }

  bool read_attributes() {
    return table("attributes", [this](const Place& place, JsonView view) {
      if (view.kind() != JsonView::Kind::kObject) {
        return fail(place, "must be an object");
      }
      Attributes& attributes = trace_.attributes.emplace_back();
      for (const Member each : view.members()) {
        reading_.rows(1);
        Attribute& attribute = attributes.emplace_back(Attribute{std::string(each.first), {}});
        if (!attribute_value(Place(place, each.first), each.second, attribute.value)) {
          return false;
        }
      }
      return true;
    });
  }

  bool counts(const Place& place, JsonView view, Span& into) {
    if (view.kind() != JsonView::Kind::kArray || view.elements().size() > kMaxRank) {
      return fail(place, "must be an array of at most " + std::to_string(kMaxRank));
    }
    into = {static_cast<std::int32_t>(trace_.counts.size()),
            static_cast<std::int32_t>(view.elements().size())};
    std::size_t i = 0;
    for (const JsonView each : view.elements()) {
      if (!count(Place(place, i), each, trace_.counts.emplace_back())) {
        return false;
      }
      ++i;
    }
    return true;
  }

  bool read_layouts() {
    return table("layouts", [this](const Place& place, JsonView view) {
      TraceLayout& layout = trace_.layouts.emplace_back();
      const std::optional<JsonView> shape = view.member("shape");
      if (!shape) {
        return fail(place, "must be an object with a \"shape\"");
      }
      if (!counts(Place(place, "shape"), *shape, layout.shape)) {
        return false;
      }
      const std::optional<JsonView> strides = view.member("strides");
      if (!strides) {
        return true;
      }
      layout.contiguous = false;
      if (!counts(Place(place, "strides"), *strides, layout.strides)) {
        return false;
      }
      return layout.strides.size == layout.shape.size ||
             fail(Place(place, "strides"), "must be as many as the shape's dimensions");
    });
  }

  bool operands(const Place& place, JsonView view, Span& into) {
    if (view.kind() != JsonView::Kind::kArray) {
      return fail(place, "must be an array of tensors");
    }
    into.begin = static_cast<std::int32_t>(trace_.operands.size());
    std::size_t i = 0;
    for (const JsonView each : view.elements()) {
      reading_.elements(1);
      if (!in_range(Place(place, i), each, -1, static_cast<std::int64_t>(kMaxRows),
                    trace_.operands.emplace_back())) {
        return false;
      }
      ++i;
    }
    into.size = static_cast<std::int32_t>(trace_.operands.size()) - into.begin;
    return few_enough(place, trace_.operands.size());
  }

  bool read_operators() {
    const bool read = table("operators", [this](const Place& place, JsonView view) {
      TraceOperator& op = trace_.operators.emplace_back();
      return row(place, view, 5, [&](std::size_t column, const Place& at, JsonView value) {
        switch (column) {
          case 0: return in_range(at, value, 0, last(trace_.operator_names), op.name);
          case 1: return in_range(at, value, -1, last(trace_.modules), op.module);
          case 2: return in_range(at, value, -1, last(trace_.attributes), op.attributes);
          case 3: return operands(at, value, op.inputs);
          default: return operands(at, value, op.outputs);
        }
      });
    });
    if (!read) {
      return false;
    }
    const auto many = static_cast<std::int64_t>(trace_.operators.size());
    std::optional<JsonView> end;
    return find("forwardEnd", JsonView::Kind::kInteger, end) &&
           in_range(Place(place_, "forwardEnd"), *end, 0, many, trace_.forward_end) &&
           find("lossEnd", JsonView::Kind::kInteger, end) &&
           in_range(Place(place_, "lossEnd"), *end, trace_.forward_end, many, trace_.loss_end);
  }

  bool time(const Place& place, JsonView value, std::int32_t least, std::int32_t& into) {
    return in_range(place, value, least, last(trace_.operators) + 1, into);
  }

  bool read_storages() {
    return table("storages", [this](const Place& place, JsonView view) {
      TraceStorage& storage = trace_.storages.emplace_back();
      const bool read = row(place, view, 4, [&](std::size_t column, const Place& at, JsonView value) {
        std::int32_t role = 0;
        switch (column) {
          case 0: return count(at, value, storage.bytes);
          case 1:
            if (!in_range(at, value, 0, last(roles_), role)) {
              return false;
            }
            storage.role = roles_[static_cast<std::size_t>(role)];
            return true;
          case 2: return in_range(at, value, -1, last(trace_.operators), storage.allocated_at);
          default: return time(at, value, -1, storage.released_at);
        }
      });
      return read && (storage.released_at < 0 || storage.released_at > storage.allocated_at ||
                      fail(place, "is freed before it is allocated"));
    });
  }

  bool read_tensors() {
    return table("tensors", [this](const Place& place, JsonView view) {
      TraceTensor& tensor = trace_.tensors.emplace_back();
      return row(place, view, 3, [&](std::size_t column, const Place& at, JsonView value) {
        std::int32_t dtype = 0;
        switch (column) {
          case 0: return in_range(at, value, -1, last(trace_.storages), tensor.storage);
          case 1: return in_range(at, value, 0, last(trace_.layouts), tensor.layout);
          default:
            if (!in_range(at, value, 0, last(trace_.dtypes), dtype)) {
              return false;
            }
            tensor.dtype = static_cast<std::int16_t>(dtype);
            return true;
        }
      });
    });
  }

  // Operators come before tensors here, for the times of storages; so their operands are checked afterwards.
  bool check_operands() {
    const Place place(place_, "operators");
    for (std::size_t i = 0; i < trace_.operators.size(); ++i) {
      const Span in = trace_.operators[i].inputs;
      const Span out = trace_.operators[i].outputs;
      for (std::int32_t at = in.begin; at < out.begin + out.size; ++at) {
        if (trace_.operands[static_cast<std::size_t>(at)] > last(trace_.tensors)) {
          return fail(Place(place, i), "names tensor " +
                                           std::to_string(trace_.operands[static_cast<std::size_t>(at)]) +
                                           ", but there are " + std::to_string(trace_.tensors.size()));
        }
      }
    }
    return true;
  }

  bool read_saved() {
    return table("saved", [this](const Place& place, JsonView view) {
      TraceSaved& saved = trace_.saved.emplace_back();
      const bool read = row(place, view, 4, [&](std::size_t column, const Place& at, JsonView value) {
        switch (column) {
          case 0: return in_range(at, value, 0, last(trace_.tensors), saved.tensor);
          case 1: return time(at, value, 0, saved.packed_at);
          case 2: return time(at, value, -1, saved.unpacked_at);
          default: return time(at, value, -1, saved.released_at);
        }
      });
      return read && (saved.released_at < 0 || saved.released_at >= saved.packed_at ||
                      fail(place, "is freed before it is saved"));
    });
  }

  bool has(std::string_view key) const {
    return std::any_of(members_.begin(), members_.end(),
                       [&](const Member& each) { return each.first == key; });
  }

  bool read_temporaries() {
    trace_.measured = has("temporaries");
    const bool read = !trace_.measured || table("temporaries", [this](const Place& place, JsonView view) {
      TraceTemporary& temporary = trace_.temporaries.emplace_back();
      return row(place, view, 2, [&](std::size_t column, const Place& at, JsonView value) {
        return column == 0 ? in_range(at, value, 0, last(trace_.operators), temporary.op)
                           : count(at, value, temporary.bytes);
      });
    });
    return read && (!has("unmeasured") || table("unmeasured", [this](const Place& place, JsonView view) {
             return in_range(place, view, 0, last(trace_.operators), trace_.unmeasured.emplace_back());
           }));
  }

  bool object_member(const Place& place, JsonView view, std::string_view key, std::int64_t least,
                     std::int64_t most, std::int32_t& into) {
    const std::optional<JsonView> value = view.member(key);
    return value ? in_range(Place(place, key), *value, least, most, into)
                 : fail(place, "has no \"" + std::string(key) + "\"");
  }

  bool named(const Place& place, JsonView view, std::string& name, std::int32_t& storage) {
    const std::optional<JsonView> given = view.member("name");
    if (!given || !given->text()) {
      return fail(place, "must be an object with a \"name\"");
    }
    name = *given->text();
    return object_member(place, view, "storage", 0, last(trace_.storages), storage);
  }

  bool truth(const Place& place, JsonView view, std::string_view key, bool& into) {
    const std::optional<JsonView> value = view.member(key);
    if (!value || !value->boolean()) {
      return fail(Place(place, key), "must be true or false");
    }
    into = *value->boolean();
    return true;
  }

  bool read_parameters() {
    return table("parameters", [this](const Place& place, JsonView view) {
      TraceParameter& parameter = trace_.parameters.emplace_back();
      std::int32_t dtype = 0;
      if (!named(place, view, parameter.name, parameter.storage) ||
          !object_member(place, view, "layout", 0, last(trace_.layouts), parameter.layout) ||
          !object_member(place, view, "dtype", 0, last(trace_.dtypes), dtype) ||
          !truth(place, view, "trainable", parameter.trainable) ||
          !truth(place, view, "sparseGradient", parameter.sparse_gradient)) {
        return false;
      }
      parameter.dtype = static_cast<std::int16_t>(dtype);
      const std::optional<JsonView> gradient = view.member("gradient");
      if (!gradient || gradient->kind() != JsonView::Kind::kArray || gradient->elements().size() > 16) {
        return fail(Place(place, "gradient"), "must be an array of storages");
      }
      for (const JsonView each : gradient->elements()) {
        if (!in_range(Place(place, "gradient"), each, 0, last(trace_.storages),
                      parameter.gradient.emplace_back())) {
          return false;
        }
      }
      return true;
    });
  }

  bool read_buffers() {
    return table("buffers", [this](const Place& place, JsonView view) {
      TraceBuffer& buffer = trace_.buffers.emplace_back();
      return named(place, view, buffer.name, buffer.storage);
    });
  }

  const Place& place_;
  Reading& reading_;
  std::vector<Member> members_;
  std::vector<StorageRole> roles_;
  Trace trace_;
  Error error_;
};

// "2.15.0+cu132" -> 215. 0: not a version.
TorchVersion version_of(std::string_view text) {
  std::int32_t parts[2] = {0, 0};
  std::size_t part = 0;
  bool digits = false;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      parts[part] = std::min(parts[part] * 10 + (c - '0'), 9999);
      digits = true;
    } else if (c == '.' && digits && part == 0) {
      part = 1;
      digits = false;
    } else {
      break;
    }
  }
  return part == 1 && digits ? parts[0] * 100 + std::min(parts[1], 99) : 0;
}

Result<TraceProducer> read_producer(JsonView root) {
  const Place place("producer");
  TraceProducer producer;
  const std::optional<JsonView> view = root.member("producer");
  const std::optional<JsonView> torch = view ? view->member("torch") : std::nullopt;
  if (!torch || !torch->text()) {
    return wrong(place, "must be an object that tells \"torch\", the version of PyTorch");
  }
  producer.torch = std::string(*torch->text()).substr(0, kMaxNameShown);
  producer.version = version_of(producer.torch);
  if (producer.version == 0) {
    return wrong(Place(place, "torch"), "is no version: " + shown(producer.torch));
  }
  if (const std::optional<JsonView> threads = view->member("threads")) {
    const std::optional<std::int64_t> value = threads->integer();
    if (!value || *value < 0) {
      return wrong(Place(place, "threads"), "must be a number of threads");
    }
    producer.threads = *value;
  }
  if (const std::optional<JsonView> capability = view->member("cpuCapability")) {
    producer.cpu_capability = std::string(capability->text().value_or("")).substr(0, kMaxNameShown);
  }
  return producer;
}

std::string described(const Trace& trace) {
  return std::string(trace.device == Device::kCpu ? "cpu" : "cuda") + " " + trace.precision;
}

Result<TraceFile> read_file(JsonView root, Reading& reading) {
  const std::optional<JsonView> format = root.member("format");
  if (!format || format->text() != kFormat) {
    return invalid("this is no exported graph: \"format\" must be \"" + std::string(kFormat) + "\"" +
                   (format && format->text() ? ", is " + shown(*format->text()) : ""));
  }
  TraceFile file;
  if (const std::optional<JsonView> name = root.member("name")) {
    file.name = std::string(name->text().value_or("")).substr(0, 256);
  }
  Result<TraceProducer> producer = read_producer(root);
  if (!producer) {
    return producer.error();
  }
  file.producer = *std::move(producer);
  const std::optional<JsonView> traces = root.member("traces");
  const Place place("traces");
  if (!traces || traces->elements().empty()) {
    return wrong(place, "must be an array of at least one trace");
  }
  for (const JsonView each : traces->elements()) {
    const Place at(place, file.traces.size());
    TraceReader reader(at, reading);
    if (!reader.read(each)) {
      return reader.error();
    }
    Trace trace = reader.take();
    for (const Trace& before : file.traces) {
      if (described(before) == described(trace)) {
        return wrong(at, "is a second trace of " + described(trace));
      }
    }
    file.traces.push_back(std::move(trace));
  }
  return file;
}

}  // namespace

Result<TraceFile> import_traces(std::string_view content, const ImportLimits& limits) {
  const BudgetCause cause(limits.budget, {"spec.model.graph"});
  std::string unpacked;
  BudgetBytes memory(limits.budget);
  if (is_gzip(content)) {
    memory.resize(limits.text * 2);  // a string grows by copying
    Result<std::string> text = gunzip(content, limits.text);
    if (!text) {
      return text.error();
    }
    unpacked = *std::move(text);
    content = unpacked;
  }
  if (static_cast<std::int64_t>(content.size()) > limits.text.count) {
    return Error(ErrorCode::kTooLarge, "the graph exceeds " + to_string(limits.text));
  }
  const auto size = static_cast<std::int64_t>(content.size());
  charge(limits.budget, content.size() / kParsedPerUnit + 1);
  memory.resize(Bytes{static_cast<std::int64_t>(unpacked.capacity())} + Bytes{kParsedBytesPerByte} * size);
  const Result<JsonText> text = JsonText::parse(content);
  if (!text) {
    return text.error();
  }
  Reading reading(limits.budget);
  return read_file(text->root(), reading);
}

Result<const Trace*> choose_trace(const TraceFile& graph, Device device, std::string_view precision) {
  std::string present;
  for (const Trace& trace : graph.traces) {
    if (trace.device == device && trace.precision == precision) {
      return &trace;
    }
    present += (present.empty() ? "" : ", ") + described(trace);
  }
  const std::string name = device == Device::kCpu ? "cpu" : "cuda";
  return Error(ErrorCode::kUnsupported,
               "the graph has no trace of " + name + " " + std::string(precision) + ", only of " + present +
                   "; export it with: python3 -m plimsoll.export MODULE:FUNCTION --device " + name +
                   " --precision " + std::string(precision));
}

}  // namespace plimsoll::estimator::trace
