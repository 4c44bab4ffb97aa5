#include "estimator/spec/dlrm.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "crds/embedding_tables_csv.h"
#include "estimator/spec/dhen.h"
#include "estimator/spec/model_builder.h"

namespace plimsoll::estimator::inline spec {
namespace {

constexpr double kMaxLookupsPerSample = 1e12;
constexpr std::int64_t kMaxSequence = std::int64_t{1} << 20;

constexpr std::int64_t kMaxFeatures = 64;  // of a table; as the API's

// Summary of the tables, of which there may be thousands. A table that several features share counts once for each.
struct Sequences {  // tables of one width and sequence length
  std::int64_t tables = 0;
  double rows_per_sample = 0;  // of all of them together
};
struct TableSummary {
  std::map<std::int64_t, std::int64_t> tables_of_width;                  // pooled tables
  std::map<std::pair<std::int64_t, std::int64_t>, Sequences> sequences;  // by width and length
  std::int64_t tables = 0;
  std::int64_t columns = 0;  // of all pooled tables together
  double lookups_per_sample = 0;
};

bool is_valid_dim(std::int64_t size) {
  return size >= 1 && size <= kMaxModelDim;
}

Result<void> check_dim(std::int64_t size, const std::string& field) {
  if (!is_valid_dim(size)) {
    return invalid(field + " must be from 1 to " + std::to_string(kMaxModelDim) + ", is " +
                   std::to_string(size));
  }
  return {};
}

Result<void> check_widths(const std::vector<std::int64_t>& widths, const std::string& field) {
  for (std::size_t i = 0; i < widths.size(); ++i) {
    Result<void> checked = check_dim(widths[i], field + "[" + std::to_string(i) + "]");
    if (!checked) {
      return checked;
    }
  }
  return {};
}

Result<void> check(const crds::DlrmModel& model) {
  if (model.top_mlp.empty()) {
    return invalid("model.dlrm.topMLP is empty: it needs at least the output layer, [1]");
  }
  if (model.dense_features < 0 || model.dense_features > kMaxModelDim) {
    return invalid("model.dlrm.denseFeatures must be from 0 to " + std::to_string(kMaxModelDim) + ", is " +
                   std::to_string(model.dense_features));
  }
  if (model.dense_features == 0 && (!model.bottom_mlp.empty() || model.tables.empty())) {
    return invalid(
        "model.dlrm.denseFeatures is 0: without dense features there can be no bottomMLP, and tables are needed");
  }
  const bool of_one_width =
      model.interaction == crds::Interaction::kDot || model.interaction == crds::Interaction::kDHEN;
  if (of_one_width && model.bottom_mlp.empty() && !model.tables.empty()) {
    return invalid(
        "model.dlrm.bottomMLP is empty: the Dot and DHEN interactions use the width of the bottom MLP's last "
        "layer; add one, or use Cat or DCN");
  }
  if (model.interaction == crds::Interaction::kDHEN) {
    if (Result<void> stack = check_dhen(model); !stack) {
      return stack;
    }
  }
  if (model.interaction == crds::Interaction::kDCN || model.interaction == crds::Interaction::kDCNv1) {
    if (model.cross_layers < 1 || model.cross_layers > 1000) {
      return invalid("model.dlrm.crossLayers must be from 1 to 1000 for the DCN interactions, is " +
                     std::to_string(model.cross_layers));
    }
    if (model.cross_rank < 0 || model.cross_rank > kMaxModelDim) {
      return invalid("model.dlrm.crossRank must be 0 (full rank) or positive, is " +
                     std::to_string(model.cross_rank));
    }
  }
  Result<void> widths = check_widths(model.bottom_mlp, "model.dlrm.bottomMLP");
  return widths ? check_widths(model.top_mlp, "model.dlrm.topMLP") : widths;
}

Result<TableSummary> summarise(const std::vector<crds::EmbeddingTable>& groups, Budget* budget) {
  TableSummary summary;
  std::int64_t tables = 0;
  for (const crds::EmbeddingTable& group : groups) {
    charge(budget, 1);
    if (!is_valid_dim(group.dim)) {
      return check_dim(group.dim, "table " + group.name + ": dim").error();
    }
    if (group.count < 1 || group.count > crds::kMaxEmbeddingTables - tables) {
      return invalid("table " + group.name + ": count must be at least 1, and all tables together at most " +
                     std::to_string(crds::kMaxEmbeddingTables));
    }
    if (group.features < 1 || group.features > kMaxFeatures) {
      return invalid("table " + group.name + ": features must be from 1 to " + std::to_string(kMaxFeatures) +
                     ", is " + std::to_string(group.features));
    }
    // Each feature of a table has rows of its own, as a table of its own would.
    const std::int64_t lookup_results = group.count * group.features;
    const double lookups =
        group.pooling_factor * group.lookup_frequency * static_cast<double>(lookup_results);
    if (!(lookups >= 0 && lookups <= kMaxLookupsPerSample)) {
      return invalid("table " + group.name +
                     ": poolingFactor and lookupFrequency must be positive and below 1e12");
    }
    tables += group.count;
    summary.tables += lookup_results;
    summary.lookups_per_sample += lookups;
    if (group.sequence_length < 0 || group.sequence_length > kMaxSequence) {
      return invalid("table " + group.name + ": sequenceLength must be from 0 to " +
                     std::to_string(kMaxSequence) + ", is " + std::to_string(group.sequence_length));
    }
    if (group.sequence_length > 0) {
      Sequences& group_sequences = summary.sequences[{group.dim, group.sequence_length}];
      group_sequences.tables += lookup_results;
      group_sequences.rows_per_sample += lookups;
    } else {
      summary.tables_of_width[group.dim] += lookup_results;
      summary.columns += lookup_results * group.dim;
    }
  }
  return summary;
}

class DlrmLowering {
 public:
  DlrmLowering(const crds::DlrmModel& model, const TableSummary& tables, crds::Precision precision,
               Budget* budget)
      : model_(model), tables_(tables), builder_(precision, budget), graph_(builder_.graph()) {}

  ForwardGraph run() {
    std::vector<Feature> features;
    if (model_.dense_features > 0) {
      features.push_back(bottom_mlp());
    }
    if (tables_.tables > 0) {
      const std::vector<Feature> embedded = lookup();
      graph_.begin_unit();
      features = interact(std::move(features), embedded);
    } else {
      begin_part();
      if (crosses()) {
        features = {cross(features.front())};
      } else if (model_.interaction == crds::Interaction::kDHEN) {
        features = {stack(features.front(), 1)};
      }
    }
    end_part();
    loss(top_mlp(concat("interaction", features)));
    return std::move(builder_).graph();
  }

 private:
  // `count` tensors of batch x width.
  struct Feature {
    TensorId id = -1;
    std::int64_t width = 0;
    std::int64_t count = 1;
  };

  static Shape rows_of(std::int64_t width) { return {per_sample(1), fixed(width)}; }
  bool crosses() const {
    return model_.interaction == crds::Interaction::kDCN || model_.interaction == crds::Interaction::kDCNv1;
  }
  // True if all features must have the width of the bottom MLP's last layer.
  bool of_one_width() const {
    return model_.interaction == crds::Interaction::kDot || model_.interaction == crds::Interaction::kDHEN;
  }
  // A part is a block for activation checkpointing and a unit for FSDP.
  void begin_part() {
    graph_.begin_block();
    graph_.begin_unit();
  }
  void end_part() {
    graph_.end_block();
    graph_.end_unit();
  }

  // `count` linear layers of equal size.
  Feature linear(const std::string& name, TensorId x, std::int64_t in, std::int64_t out, bool bias = true,
                 std::int64_t count = 1) {
    const TensorId weight = builder_.parameter(name + ".weight", {fixed(out), fixed(in)}, count);
    const TensorId shift = bias ? builder_.parameter(name + ".bias", {fixed(out)}, count) : -1;
    return {builder_.linear(name, x, weight, shift, rows_of(out), count), out, count};
  }

  Feature relu(const Feature& x) {
    return {builder_.unary(OpKind::kRelu, graph_.name_of(x.id) + ".relu", x.id), x.width};
  }

  Feature concat(const std::string& name, const std::vector<Feature>& parts) {
    return parts.size() == 1 ? parts.front() : concat_copy(name, parts);
  }
  // torch.cat, which copies even a single part.
  Feature concat_copy(const std::string& name, const std::vector<Feature>& parts) {
    ElementType type = builder_.type(parts.front().id);
    for (const Feature& part : parts) {
      type = widest(type, builder_.type(part.id));
    }
    TensorIds inputs;
    std::int64_t width = 0;
    for (const Feature& part : parts) {
      inputs.push_back(builder_.cast(part.id, type));
      width += part.width * part.count;
    }
    return {graph_.apply(OpKind::kConcat, name, inputs, rows_of(width), type), width};
  }

  Feature bottom_mlp() {
    Feature x{graph_.add_input("dense", rows_of(model_.dense_features), builder_.stored()),
              model_.dense_features};
    begin_part();
    for (std::size_t i = 0; i < model_.bottom_mlp.size(); ++i) {
      x = relu(linear("bottom." + std::to_string(i), x.id, x.width, model_.bottom_mlp[i]));
    }
    end_part();
    return x;
  }

  // One feature for each width; it stands for all tables of that width.
  std::vector<Feature> lookup() {
    // Indices of the rows, and one offset per table and sample.
    const std::int64_t indices =
        static_cast<std::int64_t>(std::ceil(tables_.lookups_per_sample)) + tables_.tables;
    const TensorId sparse = graph_.add_input("sparse", {per_sample(indices)}, ElementType::kInt64);
    std::vector<Feature> parts;
    if (!tables_.tables_of_width.empty()) {
      parts = pooled(sparse);
    }
    for (const auto& [key, group] : tables_.sequences) {
      parts.push_back(sequences(sparse, key.first, key.second, group));
    }
    return parts;
  }

  std::vector<Feature> pooled(TensorId sparse) {
    const TensorId all = graph_.apply(OpKind::kEmbeddingLookup, "embeddings", {sparse},
                                      rows_of(tables_.columns), builder_.stored());
    std::vector<Shape> shapes;
    std::vector<std::int64_t> counts;
    std::vector<Feature> parts;
    for (const auto& [width, count] : tables_.tables_of_width) {
      shapes.push_back(rows_of(width));
      counts.push_back(count);
      parts.push_back({-1, width, count});
    }
    const std::vector<TensorId> views = graph_.split("embeddings.split", all, std::move(shapes), counts);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].id = views[i];
    }
    return parts;
  }

  // The rows of all tables concatenated, then padded to one length, then summed (as sum pooling in the kernel
  // does).
  Feature sequences(TensorId sparse, std::int64_t width, std::int64_t length, const Sequences& group) {
    const std::string name = "sequences." + std::to_string(width) + "x" + std::to_string(length);
    const auto rows = static_cast<std::int64_t>(std::ceil(group.rows_per_sample));
    const std::int64_t rows_of_one = (rows + group.tables - 1) / group.tables;
    const TensorId all = graph_.apply(OpKind::kEmbeddingLookup, name, {sparse},
                                      {per_sample(rows), fixed(width)}, builder_.stored());
    const std::vector<TensorId> each =
        graph_.split(name + ".split", all, {{per_sample(rows_of_one), fixed(width)}}, {group.tables});
    const TensorId padded =
        graph_.apply(OpKind::kToPadded, name + ".padded", {each.front()},
                     {per_sample(1), fixed(length), fixed(width)}, builder_.stored(), group.tables);
    return {
        graph_.apply(OpKind::kSum, name + ".sum", {padded}, rows_of(width), builder_.stored(), group.tables),
        width, group.tables};
  }

  std::vector<Feature> interact(std::vector<Feature> dense, std::vector<Feature> parts) {
    // The concatenation is in no block: recomputing it would keep the embeddings and save no memory.
    for (Feature& part : parts) {
      if (of_one_width() && part.width != dense.front().width) {
        part = linear("projection." + graph_.name_of(part.id), part.id, part.width, dense.front().width,
                      false, part.count);
      }
    }
    std::vector<Feature> all = std::move(dense);
    all.push_back(concat_copy("embeddings.cat", parts));
    switch (model_.interaction) {
      case crds::Interaction::kCat: break;
      case crds::Interaction::kDCN:
      case crds::Interaction::kDCNv1: return {cross(concat("combined", all))};
      case crds::Interaction::kDHEN: return {stack(concat("combined", all), tables_.tables + 1)};
      case crds::Interaction::kDot: return {all.front(), dot_products(all)};
    }
    return all;
  }

  // Products of each pair of features, the dense one included: batch x F(F+1)/2 for F tables.
  Feature dot_products(const std::vector<Feature>& all) {
    const Feature combined = concat("combined", all);
    const std::int64_t features = tables_.tables + 1;
    graph_.begin_block();
    const TensorId matrix = graph_.view("combined.matrix", combined.id,
                                        {per_sample(1), fixed(features), fixed(all.front().width)});
    const TensorId pairs = pairwise_products(builder_, "dot", matrix);
    return {pairs, features * tables_.tables / 2};
  }

  Feature stack(const Feature& combined, std::int64_t features) {
    const std::int64_t width = combined.width / features;
    const TensorId matrix =
        graph_.view("combined.matrix", combined.id, {per_sample(1), fixed(features), fixed(width)});
    std::int64_t out_features = features;
    const TensorId out = lower_dhen(builder_, model_, matrix, &out_features);
    return {graph_.view("dhen.flat", out, rows_of(out_features * width)), out_features * width};
  }

  Feature cross(const Feature& x0) {
    Feature x = x0;
    const bool by_vectors = model_.interaction == crds::Interaction::kDCNv1;
    for (std::int64_t i = 0; i < model_.cross_layers; ++i) {
      begin_part();
      const std::string name = "cross." + std::to_string(i);
      x.id = by_vectors ? cross_by_vector(name, x0, x)
                        : cross_layer(builder_, name, x0.id, x.id, x.width, model_.cross_rank);
    }
    return x;
  }

  // x0 * (w x) + b + x
  TensorId cross_by_vector(const std::string& name, const Feature& x0, const Feature& x) {
    const Feature scale = linear(name + ".w", x.id, x.width, 1, false);
    const TensorId scaled = builder_.multiply(name + ".mul", x0.id, scale.id);
    const TensorId bias = builder_.parameter(name + ".bias", {fixed(x.width)});
    return builder_.add(name + ".add", builder_.add(name + ".shift", scaled, bias), x.id);
  }

  Feature top_mlp(Feature x) {
    begin_part();
    for (std::size_t i = 0; i < model_.top_mlp.size(); ++i) {
      x = linear("top." + std::to_string(i), x.id, x.width, model_.top_mlp[i]);
      if (i + 1 < model_.top_mlp.size()) {
        x = relu(x);
      }
    }
    end_part();
    return x;
  }

  void loss(const Feature& logits) {
    // Autocast computes this loss in fp32.
    const TensorId labels = graph_.add_input("labels", rows_of(logits.width), builder_.stored());
    graph_.apply(OpKind::kBceWithLogits, "loss", {builder_.cast(logits.id, builder_.stored()), labels},
                 {fixed(1)}, builder_.stored());
  }

  const crds::DlrmModel& model_;
  const TableSummary& tables_;
  ModelBuilder builder_;
  ForwardGraph& graph_;
};

}  // namespace

Result<ForwardGraph> lower_dlrm(const crds::DlrmModel& model, const crds::TrainingSpec& training,
                                Budget* budget) {
  Result<void> checked = check(model);
  if (!checked) {
    return checked.error();
  }
  Result<TableSummary> tables = summarise(model.tables, budget);
  if (!tables) {
    return tables.error();
  }
  return DlrmLowering(model, *tables, training.precision, budget).run();
}

}  // namespace plimsoll::estimator::spec
