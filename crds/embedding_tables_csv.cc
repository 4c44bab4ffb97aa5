#include "crds/embedding_tables_csv.h"

#include <array>
#include <cmath>
#include <unordered_map>

#include "base/gzip.h"
#include "base/number.h"
#include "crds/checker.h"
#include "crds/decoder.h"
#include "crds/training_job_fields.h"

namespace plimsoll::crds {
namespace {

// Of a table: the table, the number of its line by name, and two names of the greatest length; vector and map grow.
constexpr Bytes kBytesPerTable{512};
constexpr std::size_t kMaxColumns = 5;
constexpr std::array<std::string_view, kMaxColumns> kColumns = {"name", "rows", "dim", "pooling_factor",
                                                                "lookup_frequency"};

struct Cells {
  std::array<std::string_view, kMaxColumns> text;
  std::size_t count = 0;  // kMaxColumns + 1 means more
};

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

Cells split(std::string_view line) {
  Cells cells;
  std::size_t begin = 0;
  while (cells.count <= kMaxColumns) {
    const std::size_t comma = line.find(',', begin);
    if (cells.count < kMaxColumns) {
      cells.text[cells.count] = trimmed(line.substr(begin, comma - begin));
    }
    ++cells.count;
    if (comma == std::string_view::npos) {
      break;
    }
    begin = comma + 1;
  }
  return cells;
}

bool is_header(const Cells& cells) {
  if (cells.count < kMaxColumns - 1 || cells.count > kMaxColumns) {
    return false;
  }
  for (std::size_t i = 0; i < cells.count; ++i) {
    if (cells.text[i] != kColumns[i]) {
      return false;
    }
  }
  return true;
}

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const std::optional<Number> read = parse_number<Number>(text);
  value = read.value_or(value);
  return read.has_value();
}

Error at_line(std::size_t line, const std::string& message, std::string_view fragment) {
  return invalid("line " + std::to_string(line) + ": " + message, std::string(fragment.substr(0, 64)));
}

Result<EmbeddingTable> read_table(const Cells& cells, std::size_t line, std::string_view whole) {
  if (cells.count < kMaxColumns - 1 || cells.count > kMaxColumns) {
    return at_line(line, "must be name,rows,dim,pooling_factor[,lookup_frequency]", whole);
  }
  EmbeddingTable table;
  table.name = cells.text[0];
  if (!obeys(kTableName, table.name)) {
    return at_line(line, std::string("name must be ") + kTableName.form, whole);
  }
  if (!read_number(cells.text[1], table.rows)) {
    return at_line(line, "rows must be an integer", cells.text[1]);
  }
  if (!read_number(cells.text[2], table.dim)) {
    return at_line(line, "dim must be an integer", cells.text[2]);
  }
  if (!read_number(cells.text[3], table.pooling_factor)) {
    return at_line(line, "pooling_factor must be a number", cells.text[3]);
  }
  if (cells.count == kMaxColumns && !read_number(cells.text[4], table.lookup_frequency)) {
    return at_line(line, "lookup_frequency must be a number", cells.text[4]);
  }
  return table;
}

// The bounds of the schema; "rows: must be at least 1, is 0".
Result<void> check_table(const EmbeddingTable& table, std::size_t line) {
  FieldErrors errors;
  const FieldPath path(table.name);
  Checker checker(path, errors);
  describe(checker, table);
  if (!errors.empty()) {
    return at_line(line, to_string(errors.list()), {});
  }
  return {};
}

class Parser {
 public:
  explicit Parser(Budget* budget) : memory_(budget) {}

  Result<std::vector<EmbeddingTable>> parse(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) {
      text.remove_prefix(3);  // the byte order mark that spreadsheets write
    }
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      ++line_;
      charge(memory_.budget(), 1 + std::min(end, text.size()) / kScannedPerUnit);
      Result<void> read = read_line(trimmed(text.substr(0, end)));
      if (!read) {
        return read.error();
      }
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    if (tables_.empty()) {
      return invalid(
          "holds no embedding tables; write lines of name,rows,dim,pooling_factor[,lookup_frequency]");
    }
    return std::move(tables_);
  }

 private:
  Result<void> read_line(std::string_view line) {
    if (line.empty() || line.front() == '#') {
      return {};
    }
    const Cells cells = split(line);
    if (tables_.empty() && !header_seen_ && is_header(cells)) {
      header_seen_ = true;
      return {};
    }
    Result<EmbeddingTable> table = read_table(cells, line_, line);
    if (!table) {
      return table.error();
    }
    Result<void> checked = check_table(*table, line_);
    if (!checked) {
      return checked;
    }
    const auto [first, fresh] = line_of_.emplace(table->name, line_);
    if (!fresh) {
      return at_line(line_, "the name is already in line " + std::to_string(first->second), table->name);
    }
    if (static_cast<std::int64_t>(tables_.size()) == kMaxEmbeddingTables) {
      return Error(ErrorCode::kTooLarge,
                   "holds more than " + std::to_string(kMaxEmbeddingTables) + " tables");
    }
    if (tables_.size() == tables_.capacity()) {
      const std::size_t capacity = std::max<std::size_t>(64, 2 * tables_.size());
      memory_.resize(kBytesPerTable * static_cast<std::int64_t>(capacity));
      tables_.reserve(capacity);
    }
    tables_.push_back(*std::move(table));
    return {};
  }

  static constexpr std::size_t kScannedPerUnit = 64;  // bytes in the time of a unit of work

  BudgetBytes memory_;
  std::size_t line_ = 0;
  bool header_seen_ = false;
  std::vector<EmbeddingTable> tables_;
  std::unordered_map<std::string, std::size_t> line_of_;
};

}  // namespace

Result<std::vector<EmbeddingTable>> parse_embedding_tables_csv(std::string_view text, Bytes limit,
                                                               Budget* budget) {
  const BudgetCause cause(budget, {"spec.model.dlrm.tablesFrom"});
  if (is_gzip(text)) {
    const BudgetBytes memory(budget, limit * 2);  // a string grows by copying
    const Result<std::string> content = gunzip(text, limit);
    if (!content) {
      return content.error();
    }
    return Parser(budget).parse(*content);
  }
  if (static_cast<std::int64_t>(text.size()) > limit.count) {
    return Error(ErrorCode::kTooLarge, "holds more than " + to_string(limit));
  }
  return Parser(budget).parse(text);
}

}  // namespace plimsoll::crds
