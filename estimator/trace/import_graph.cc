#include "estimator/trace/import_graph.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/gzip.h"
#include "base/json/view.h"
#include "base/utf8.h"
#include "estimator/trace/import_tables.h"

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

// The path of a value in the file: "traces[0].operators[17][3]". Lives on the stack; text() is called only
// for an error.
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

Error error_at(const Place& place, const std::string& what) {
  return invalid(place.text() + ": " + what);
}

std::string quoted(std::string_view text) {
  return '"' + std::string(text.substr(0, kMaxNameShown)) + '"';
}

// Memory of parsed JSON per byte of text: simdjson's tape, strings and index, at most
// (dom_parser_implementation).
constexpr std::int64_t kParsedBytesPerByte = 15;
constexpr std::size_t kParsedPerUnit = 256;  // bytes parsed per unit of work
// Memory of a table's row while its vector grows, and of an element of a list in it.
constexpr std::int64_t kBytesPerRow = 192;
constexpr std::int64_t kBytesPerElement = 16;

// Charges the budget for the tables that are built from a file.
class TableBudget {
 public:
  explicit TableBudget(Budget* budget) : memory_(budget) {}

  void rows(std::size_t count) { take(Bytes{kBytesPerRow} * static_cast<std::int64_t>(count), count); }
  Budget* budget() const { return memory_.budget(); }
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

// Reads one trace. Each reader returns false after an error; error() then returns it, with its place.
class TraceReader {
 public:
  TraceReader(const Place& place, TableBudget& budget) : place_(place), budget_(budget) {}

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
    error_ = error_at(place, what);
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

  const JsonView* member(std::string_view key) const {
    const auto found =
        std::find_if(members_.begin(), members_.end(), [&](const Member& each) { return each.first == key; });
    return found == members_.end() ? nullptr : &found->second;
  }

  bool find(std::string_view key, JsonView::Kind kind, std::optional<JsonView>& found) {
    const JsonView* const value = member(key);
    if (value == nullptr) {
      return fail(place_, "has no \"" + std::string(key) + "\"");
    }
    found = *value;
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

  template <class Integer>
  bool in_range(const Place& place, JsonView view, std::int64_t least, std::int64_t most, Integer& into) {
    const std::optional<std::int64_t> value = view.integer();
    if (!value || *value < least || *value > most) {
      return fail(place, "must be an integer from " + std::to_string(least) + " to " + std::to_string(most) +
                             (value ? ", is " + std::to_string(*value) : ""));
    }
    into = static_cast<Integer>(*value);
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
    return each_element(place, view,
                        [&](const Place& at, JsonView each) { return coefficient(at, each, into.c[i++]); });
  }

  // Calls `read(place, element)` for each element of an array, until one returns false.
  template <class Read>
  static bool each_element(const Place& place, JsonView view, Read read) {
    std::size_t i = 0;
    for (const JsonView each : view.elements()) {
      if (!read(Place(place, i), each)) {
        return false;
      }
      ++i;
    }
    return true;
  }

  bool check_rows(const Place& place, std::size_t rows) {
    return rows <= kMaxRows || fail(place, "has more than " + std::to_string(kMaxRows) + " rows");
  }

  // ---- tables ----

  // Calls `read(place, row)` for each row of a table.
  template <class Read>
  bool table(std::string_view key, Read read) {
    std::optional<JsonView> found;
    if (!find(key, JsonView::Kind::kArray, found)) {
      return false;
    }
    const Place place(place_, key);
    return check_rows(place, found->elements().size()) &&
           each_element(place, *found, [&](const Place& at, JsonView row) {
             budget_.rows(1);
             return read(at, row);
           });
  }

  bool names(std::string_view key, std::vector<std::string>& into) {
    return table(key, [&](const Place& place, JsonView each) {
      const std::optional<std::string_view> name = each.text();
      if (!name) {
        return fail(place, "must be a string");
      }
      into.emplace_back(*name);
      return true;
    });
  }

  // Reads a row; each of `columns` is called as `read(place, value)` for its value.
  template <class... Columns>
  bool row(const Place& place, JsonView view, Columns... columns) {
    constexpr std::size_t kColumns = sizeof...(columns);
    if (view.kind() != JsonView::Kind::kArray || view.elements().size() != kColumns) {
      return fail(place, "must be an array of " + std::to_string(kColumns));
    }
    budget_.elements(kColumns);
    std::size_t column = 0;
    auto value = view.elements().begin();
    const auto read_column = [&](auto& read) {
      const bool read_well = read(Place(place, column), *value);
      ++column;
      ++value;
      return read_well;
    };
    return (read_column(columns) && ...);
  }

  // Columns of a row: an index into a table, a time, a count.
  template <class Table, class Index>
  auto index_of(const Table& table, Index& into, std::int64_t least = 0) {
    return [this, &table, &into, least](const Place& place, JsonView value) {
      return in_range(place, value, least, last(table), into);
    };
  }
  auto time(std::int32_t& into, std::int64_t least = -1) {
    return [this, &into, least](const Place& place, JsonView value) {
      return in_range(place, value, least, last(trace_.operators) + 1, into);
    };
  }
  auto count_of(Count& into) {
    return [this, &into](const Place& place, JsonView value) { return count(place, value, into); };
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
      return fail(Place(place_, "device"), "must be \"cpu\" or \"cuda\", is " + quoted(device));
    }
    trace_.device = device == "cpu" ? Device::kCpu : Device::kCuda;
    if (std::find(std::begin(kPrecisions), std::end(kPrecisions), trace_.precision) ==
        std::end(kPrecisions)) {
      return fail(Place(place_, "precision"), "is not known: " + quoted(trace_.precision));
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

  // Notes are shown in a terminal and in an API server's warnings, so they are few, short and on one line.
  bool read_notes() {
    if (member("notes") == nullptr) {
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
                    "no type of PyTorch is called " + quoted(trace_.dtypes[i]));
      }
    }
    if (trace_.dtypes.size() > 1000) {
      return fail(Place(place_, "dtypes"), "has more than 1000 rows");
    }
    for (std::size_t i = 0; i < roles.size(); ++i) {
      const auto* const role = std::find(std::begin(kRoleNames), std::end(kRoleNames), roles[i]);
      if (role == std::end(kRoleNames)) {
        return fail(Place(Place(place_, "roles"), i), "no storage has the role " + quoted(roles[i]));
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
        // Only small integers matter to the rules; the value of a scalar does not affect memory.
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
      budget_.elements(sizeof(Count) / kBytesPerElement);
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
        budget_.rows(1);
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
    return each_element(place, view, [&](const Place& at, JsonView each) {
      return count(at, each, trace_.counts.emplace_back());
    });
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
    const bool read = each_element(place, view, [&](const Place& at, JsonView each) {
      budget_.elements(1);
      return in_range(at, each, -1, static_cast<std::int64_t>(kMaxRows), trace_.operands.emplace_back());
    });
    if (!read) {
      return false;
    }
    into.size = static_cast<std::int32_t>(trace_.operands.size()) - into.begin;
    return check_rows(place, trace_.operands.size());
  }

  bool read_operators() {
    const bool read = table("operators", [this](const Place& place, JsonView view) {
      TraceOperator& op = trace_.operators.emplace_back();
      const auto operands_of = [this](Span& span) {
        return [this, &span](const Place& at, JsonView value) { return operands(at, value, span); };
      };
      return row(place, view, index_of(trace_.operator_names, op.name),
                 index_of(trace_.modules, op.module, -1), index_of(trace_.attributes, op.attributes, -1),
                 operands_of(op.inputs), operands_of(op.outputs));
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

  bool read_storages() {
    return table("storages", [this](const Place& place, JsonView view) {
      TraceStorage& storage = trace_.storages.emplace_back();
      std::size_t role = 0;
      const bool read = row(place, view, count_of(storage.bytes), index_of(roles_, role),
                            index_of(trace_.operators, storage.allocated_at, -1), time(storage.released_at));
      storage.role = read ? roles_[role] : storage.role;
      return read && (storage.released_at < 0 || storage.released_at > storage.allocated_at ||
                      fail(place, "is freed before it is allocated"));
    });
  }

  bool read_tensors() {
    return table("tensors", [this](const Place& place, JsonView view) {
      TraceTensor& tensor = trace_.tensors.emplace_back();
      return row(place, view, index_of(trace_.storages, tensor.storage, -1),
                 index_of(trace_.layouts, tensor.layout), index_of(trace_.dtypes, tensor.dtype));
    });
  }

  // Operators are read before tensors, because the times of storages need them; operands are checked
  // afterwards.
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
      const bool read = row(place, view, index_of(trace_.tensors, saved.tensor), time(saved.packed_at, 0),
                            time(saved.unpacked_at), time(saved.released_at));
      return read && (saved.released_at < 0 || saved.released_at >= saved.packed_at ||
                      fail(place, "is freed before it is saved"));
    });
  }

  bool read_temporaries() {
    trace_.measured = member("temporaries") != nullptr;
    const bool read = !trace_.measured || table("temporaries", [this](const Place& place, JsonView view) {
      TraceTemporary& temporary = trace_.temporaries.emplace_back();
      return row(place, view, index_of(trace_.operators, temporary.op), count_of(temporary.bytes));
    });
    return read &&
           (member("unmeasured") == nullptr || table("unmeasured", [this](const Place& place, JsonView view) {
              return in_range(place, view, 0, last(trace_.operators), trace_.unmeasured.emplace_back());
            }));
  }

  template <class Table, class Index>
  bool index_member(const Place& place, JsonView view, std::string_view key, const Table& table,
                    Index& into) {
    const std::optional<JsonView> value = view.member(key);
    return value ? in_range(Place(place, key), *value, 0, last(table), into)
                 : fail(place, "has no \"" + std::string(key) + "\"");
  }

  bool name_and_storage(const Place& place, JsonView view, std::string& name, std::int32_t& storage) {
    const std::optional<JsonView> given = view.member("name");
    if (!given || !given->text()) {
      return fail(place, "must be an object with a \"name\"");
    }
    name = *given->text();
    return index_member(place, view, "storage", trace_.storages, storage);
  }

  bool boolean(const Place& place, JsonView view, std::string_view key, bool& into) {
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
      if (!name_and_storage(place, view, parameter.name, parameter.storage) ||
          !index_member(place, view, "layout", trace_.layouts, parameter.layout) ||
          !index_member(place, view, "dtype", trace_.dtypes, parameter.dtype) ||
          !boolean(place, view, "trainable", parameter.trainable) ||
          !boolean(place, view, "sparseGradient", parameter.sparse_gradient)) {
        return false;
      }
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
      return name_and_storage(place, view, buffer.name, buffer.storage);
    });
  }

  const Place& place_;
  TableBudget& budget_;
  std::vector<Member> members_;
  std::vector<StorageRole> roles_;
  Trace trace_;
  Error error_;
};

Result<TraceProducer> read_producer(JsonView root) {
  const Place place("producer");
  TraceProducer producer;
  const std::optional<JsonView> view = root.member("producer");
  const std::optional<JsonView> torch = view ? view->member("torch") : std::nullopt;
  if (!torch || !torch->text()) {
    return error_at(place, "must be an object with \"torch\", the version of PyTorch");
  }
  producer.torch = std::string(*torch->text()).substr(0, kMaxNameShown);
  producer.version = torch_version_of(producer.torch);
  if (producer.version == 0) {
    return error_at(Place(place, "torch"), "is not a version: " + quoted(producer.torch));
  }
  if (const std::optional<JsonView> threads = view->member("threads")) {
    const std::optional<std::int64_t> value = threads->integer();
    if (!value || *value < 0) {
      return error_at(Place(place, "threads"), "must be a number of threads");
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

Result<TraceFile> read_file(JsonView root, TableBudget& budget) {
  const std::optional<JsonView> format = root.member("format");
  if (!format || format->text() != kFormat) {
    return invalid("this is not an exported graph: \"format\" must be \"" + std::string(kFormat) + "\"" +
                   (format && format->text() ? ", is " + quoted(*format->text()) : ""));
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
  Result<std::vector<crds::EmbeddingTable>> embeddings = import_tables(root, budget.budget());
  if (!embeddings) {
    return embeddings.error();
  }
  file.embeddings = *std::move(embeddings);
  const std::optional<JsonView> traces = root.member("traces");
  const Place place("traces");
  if (!traces || traces->elements().empty()) {
    return error_at(place, "must be an array of at least one trace");
  }
  for (const JsonView each : traces->elements()) {
    const Place at(place, file.traces.size());
    TraceReader reader(at, budget);
    if (!reader.read(each)) {
      return reader.error();
    }
    Trace trace = reader.take();
    for (const Trace& before : file.traces) {
      if (described(before) == described(trace)) {
        return error_at(at, "is a second trace of " + described(trace));
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
  TableBudget budget(limits.budget);
  return read_file(text->root(), budget);
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
