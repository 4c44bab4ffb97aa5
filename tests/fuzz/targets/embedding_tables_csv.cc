// CSV of embedding tables, as ConfigMaps hold it, plain or gzipped.
#include "crds/embedding_tables_csv.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {

FUZZ_TARGET(embedding_tables_csv) {
  const Result<std::vector<crds::EmbeddingTable>> tables = crds::parse_embedding_tables_csv(input);
  if (!tables) {
    require(!tables.error().message.empty(), "an error says what is wrong");
    return;
  }
  require(tables->size() <= static_cast<std::size_t>(crds::kMaxEmbeddingTables),
          "no more tables than allowed");
  for (const crds::EmbeddingTable& table : *tables) {
    require(!table.name.empty() && table.rows >= 1 && table.dim >= 1, "a table has a name, rows and columns");
  }
}

}  // namespace plimsoll::testing
