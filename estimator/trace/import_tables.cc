#include "estimator/trace/import_tables.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "crds/embedding_tables_csv.h"
#include "crds/enums.h"
#include "crds/field_path.h"

namespace plimsoll::estimator::inline trace {
namespace {

using crds::FieldPath;

constexpr std::array<std::string_view, 4> kPoolings = {"sum", "mean", "max", "none"};
constexpr std::size_t kMaxTextShown = 80;
constexpr std::size_t kMaxTableName = 256;  // longer ones are refused by the rules of tables
constexpr Bytes kBytesPerTable{512};        // while the list grows, with the index of names

Error error_at(const FieldPath& place, const std::string& what) {
  return invalid(place.text() + ": " + what);
}

// Reads the members of one object; keeps the first error.
class TableReader {
 public:
  TableReader(const FieldPath& place, JsonView view) : place_(place), view_(view) {}

  void integer(std::string_view key, std::int64_t& into) {
    const std::optional<JsonView> value = view_.member(key);
    const std::optional<std::int64_t> number = value ? value->integer() : std::nullopt;
    require(number.has_value(), key, "must be an integer");
    into = number.value_or(into);
  }
  std::string_view text(std::string_view key) {
    const std::optional<JsonView> value = view_.member(key);
    const std::optional<std::string_view> found = value ? value->text() : std::nullopt;
    require(found.has_value(), key, "must be a string");
    return found.value_or(std::string_view());
  }
  void require(bool holds, std::string_view key, const std::string& what) {
    if (!holds && !error_) {
      error_ = error_at(FieldPath(place_, key), what);
    }
  }
  Result<crds::EmbeddingTable> read() {
    crds::EmbeddingTable table;
    table.name = text("name").substr(0, kMaxTableName);
    integer("rows", table.rows);
    integer("dim", table.dim);
    const Result<crds::DataType> type = crds::parse_enum<crds::DataType>(std::string(text("dtype")));
    require(type.ok(), "dtype", type ? "" : type.error().message);
    table.dtype = type ? *type : table.dtype;
    const std::optional<JsonView> factor = view_.member("poolingFactor");
    require(factor && factor->number(), "poolingFactor", "must be a number");
    table.pooling_factor = factor ? factor->number().value_or(1) : 1;
    const std::optional<JsonView> features = view_.member("features");
    const bool listed = features && features->kind() == JsonView::Kind::kArray;
    require(listed, "features", "must be an array of names");
    table.features = listed ? static_cast<std::int64_t>(features->elements().size()) : 1;
    read_pooling(table);
    return error_ ? Result<crds::EmbeddingTable>(*error_) : std::move(table);
  }

 private:
  void read_pooling(crds::EmbeddingTable& table) {
    const std::string_view pooling = text("pooling");
    require(std::find(kPoolings.begin(), kPoolings.end(), pooling) != kPoolings.end(), "pooling",
            "must be \"sum\", \"mean\", \"max\" or \"none\", is \"" +
                std::string(pooling.substr(0, kMaxTextShown)) + "\"");
    if (pooling == "none") {
      integer("sequenceLength", table.sequence_length);
      require(table.sequence_length > 0, "sequenceLength", "must be at least 1");
    }
  }

  const FieldPath& place_;
  JsonView view_;
  std::optional<Error> error_;
};

}  // namespace

Result<std::vector<crds::EmbeddingTable>> import_tables(JsonView root, Budget* budget) {
  std::vector<crds::EmbeddingTable> tables;
  const std::optional<JsonView> view = root.member("embeddings");
  if (!view) {
    return tables;
  }
  const FieldPath place("embeddings");
  if (view->kind() != JsonView::Kind::kArray || view->elements().size() > crds::kMaxEmbeddingTables) {
    return error_at(place, "must be an array of at most " + std::to_string(crds::kMaxEmbeddingTables));
  }
  const BudgetBytes memory(budget, kBytesPerTable * static_cast<std::int64_t>(view->elements().size()));
  for (const JsonView each : view->elements()) {
    charge(budget, 1);
    const FieldPath at(place, tables.size());
    Result<crds::EmbeddingTable> table = TableReader(at, each).read();
    if (!table) {
      return table.error();
    }
    tables.push_back(*std::move(table));
  }
  const Result<void> checked = crds::check_tables(tables, "embeddings");
  return checked ? Result<std::vector<crds::EmbeddingTable>>(std::move(tables)) : checked.error();
}

}  // namespace plimsoll::estimator::trace
