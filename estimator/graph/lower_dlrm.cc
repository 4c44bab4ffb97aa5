#include "estimator/graph/lower_dlrm.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "crds/embedding_tables_csv.h"

namespace plimsoll::estimator {
namespace {

constexpr double kMostLookupsPerSample = 1e12;

// What the graph needs to know of thousands of tables.
struct TableSummary {
  std::map<std::int64_t, std::int64_t> tables_of_width;
  std::int64_t tables = 0;
  std::int64_t columns = 0;  // of all tables together
  double lookups_per_sample = 0;
};

bool possible(std::int64_t size) {
  return size >= 1 && size <= kMaxModelDim;
}

Result<void> check_dim(std::int64_t size, const std::string& field) {
  if (!possible(size)) {
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
        "model.dlrm.denseFeatures is 0: without dense features there can be no bottomMLP, and tables "
        "are needed");
  }
  if (model.interaction == crds::Interaction::kDot && model.bottom_mlp.empty() && !model.tables.empty()) {
    return invalid(
        "model.dlrm.bottomMLP is empty: the Dot interaction takes its width from the bottom MLP's last "
        "layer; give one, or use Cat or DCN");
  }
  if (model.interaction == crds::Interaction::kDCN) {
    if (model.cross_layers < 1 || model.cross_layers > 1000) {
      return invalid("model.dlrm.crossLayers must be from 1 to 1000 for the DCN interaction, is " +
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

Result<TableSummary> summarise(const std::vector<crds::EmbeddingTable>& groups) {
  TableSummary summary;
  for (const crds::EmbeddingTable& group : groups) {
    if (!possible(group.dim)) {
      return check_dim(group.dim, "table " + group.name + ": dim").error();
    }
    if (group.count < 1 || group.count > crds::kMaxEmbeddingTables - summary.tables) {
      return invalid("table " + group.name + ": count must be at least 1, and all tables together at most " +
                     std::to_string(crds::kMaxEmbeddingTables));
    }
    const double lookups = group.pooling_factor * group.lookup_frequency * static_cast<double>(group.count);
    if (!(lookups >= 0 && lookups <= kMostLookupsPerSample)) {
      return invalid("table " + group.name +
                     ": poolingFactor and lookupFrequency must be positive and below 1e12");
    }
    summary.tables_of_width[group.dim] += group.count;
    summary.tables += group.count;
    summary.columns += group.count * group.dim;
    summary.lookups_per_sample += lookups;
  }
  return summary;
}

class DlrmLowering {
 public:
  DlrmLowering(const crds::DlrmModel& model, const TableSummary& tables, crds::Precision precision)
      : model_(model), tables_(tables) {
    switch (precision) {
      case crds::Precision::kFP32:
      case crds::Precision::kTF32: break;  // TF32 is a way to multiply; tensors stay fp32
      case crds::Precision::kBF16Mixed: compute_ = ElementType::kBF16; break;
      case crds::Precision::kFP16Mixed: compute_ = ElementType::kFP16; break;
      case crds::Precision::kBF16: stored_ = compute_ = ElementType::kBF16; break;
    }
  }

  OperatorGraph run() {
    std::vector<Feature> features;
    if (model_.dense_features > 0) {
      features.push_back(bottom_mlp());
    }
    if (tables_.tables > 0) {
      const std::vector<TensorId> pooled = lookup();
      graph_.begin_block();
      graph_.begin_unit();
      features = interact(std::move(features), pooled);
    } else {
      graph_.begin_block();
      graph_.begin_unit();
      if (model_.interaction == crds::Interaction::kDCN) {
        features = {cross(features.front())};
      }
    }
    graph_.end_block();
    graph_.end_unit();
    loss(top_mlp(concat("interaction", features)));
    return std::move(graph_);
  }

 private:
  // A tensor of batch x width.
  struct Feature {
    TensorId id = -1;
    std::int64_t width = 0;
  };

  static Shape rows_of(std::int64_t width) { return {per_sample(1), fixed(width)}; }

  TensorId cast(TensorId x, ElementType type) {
    const Tensor& tensor = graph_.tensor(x);
    if (tensor.type == type) {
      return x;
    }
    Shape shape = graph_.shape_of(x);
    return graph_.apply(OpKind::kCast, graph_.name_of(x) + ".cast", {x}, std::move(shape), type,
                        tensor.count);
  }

  // `count` linear layers of equal size side by side. Autocast gives matrix products half inputs.
  Feature linear(const std::string& name, TensorId x, std::int64_t in, std::int64_t out, bool bias = true,
                 std::int64_t count = 1) {
    const TensorId weight = graph_.add_parameter(name + ".weight", {fixed(out), fixed(in)}, stored_, count);
    TensorIds inputs = {cast(x, compute_), cast(weight, compute_)};
    if (bias) {
      inputs.push_back(cast(graph_.add_parameter(name + ".bias", {fixed(out)}, stored_, count), compute_));
    }
    return {graph_.apply(OpKind::kLinear, name, inputs, rows_of(out), compute_, count), out};
  }

  Feature relu(const Feature& x) {
    return {graph_.apply(OpKind::kRelu, graph_.name_of(x.id) + ".relu", {x.id}, rows_of(x.width),
                         graph_.tensor(x.id).type),
            x.width};
  }

  Feature concat(const std::string& name, const std::vector<Feature>& parts) {
    if (parts.size() == 1) {
      return parts.front();
    }
    ElementType type = graph_.tensor(parts.front().id).type;
    for (const Feature& part : parts) {
      type = widest(type, graph_.tensor(part.id).type);
    }
    TensorIds inputs;
    std::int64_t width = 0;
    for (const Feature& part : parts) {
      inputs.push_back(cast(part.id, type));
      width += part.width;
    }
    return {graph_.apply(OpKind::kConcat, name, inputs, rows_of(width), type), width};
  }

  Feature bottom_mlp() {
    Feature x{graph_.add_input("dense", rows_of(model_.dense_features), stored_), model_.dense_features};
    graph_.begin_block();
    graph_.begin_unit();
    for (std::size_t i = 0; i < model_.bottom_mlp.size(); ++i) {
      x = relu(linear("bottom." + std::to_string(i), x.id, x.width, model_.bottom_mlp[i]));
    }
    graph_.end_block();
    graph_.end_unit();
    return x;
  }

  // One part for each width; a part stands for all tables of that width.
  std::vector<TensorId> lookup() {
    // Indices of the rows, and per table an offset a sample.
    const std::int64_t indices =
        static_cast<std::int64_t>(std::ceil(tables_.lookups_per_sample)) + tables_.tables;
    const TensorId sparse = graph_.add_input("sparse", {per_sample(indices)}, ElementType::kInt64);
    const TensorId pooled =
        graph_.apply(OpKind::kEmbeddingLookup, "embeddings", {sparse}, rows_of(tables_.columns), stored_);
    std::vector<Shape> shapes;
    std::vector<std::int64_t> counts;
    for (const auto& [width, count] : tables_.tables_of_width) {
      shapes.push_back(rows_of(width));
      counts.push_back(count);
    }
    return graph_.split("embeddings.split", pooled, std::move(shapes), counts);
  }

  std::vector<Feature> interact(std::vector<Feature> dense, const std::vector<TensorId>& pooled) {
    const bool dot = model_.interaction == crds::Interaction::kDot;
    std::vector<TensorId> parts;
    std::int64_t columns = 0;
    std::size_t group = 0;
    for (const auto& [width, count] : tables_.tables_of_width) {
      TensorId part = pooled[group++];
      std::int64_t part_width = width;
      if (dot && width != dense.front().width) {
        part =
            linear("projection." + std::to_string(width), part, width, dense.front().width, false, count).id;
        part_width = dense.front().width;
      }
      parts.push_back(part);
      columns += count * part_width;
    }
    ElementType type = graph_.tensor(parts.front()).type;
    for (const TensorId part : parts) {
      type = widest(type, graph_.tensor(part).type);
    }
    for (TensorId& part : parts) {
      part = cast(part, type);
    }
    const Feature sparse{graph_.apply(OpKind::kConcat, "embeddings.cat", parts, rows_of(columns), type),
                         columns};
    std::vector<Feature> all = std::move(dense);
    all.push_back(sparse);
    switch (model_.interaction) {
      case crds::Interaction::kCat: break;
      case crds::Interaction::kDCN: return {cross(concat("combined", all))};
      case crds::Interaction::kDot: return {all.front(), dot_products(all)};
    }
    return all;
  }

  // Products of each pair of the features, dense one included: batch x F(F+1)/2 of F tables.
  Feature dot_products(const std::vector<Feature>& all) {
    const Feature combined = concat("combined", all);
    const std::int64_t features = tables_.tables + 1;
    const std::int64_t width = all.front().width;
    const TensorId matrix =
        graph_.view("combined.matrix", combined.id, {per_sample(1), fixed(features), fixed(width)});
    const TensorId transposed =
        graph_.view("combined.transposed", matrix, {per_sample(1), fixed(width), fixed(features)});
    const std::int64_t pairs = features * tables_.tables / 2;
    const TensorId products =
        graph_.apply(OpKind::kMatMul, "dot", {cast(matrix, compute_), cast(transposed, compute_)},
                     {per_sample(1), fixed(features), fixed(features)}, compute_);
    const TensorId upper = graph_.add_input("dot.indices", {fixed(2), fixed(pairs)}, ElementType::kInt64);
    return {graph_.apply(OpKind::kGather, "dot.pairs", {products, upper}, rows_of(pairs), compute_), pairs};
  }

  Feature cross(const Feature& x0) {
    Feature x = x0;
    for (std::int64_t i = 0; i < model_.cross_layers; ++i) {
      graph_.begin_block();
      graph_.begin_unit();
      const std::string name = "cross." + std::to_string(i);
      Feature inner = x;
      if (model_.cross_rank > 0) {
        inner = linear(name + ".v", x.id, x.width, model_.cross_rank, false);
      }
      inner = linear(name + ".w", inner.id, inner.width, x.width, false);
      const TensorId bias = graph_.add_parameter(name + ".bias", {fixed(x.width)}, stored_);
      const TensorId shifted = elementwise(OpKind::kAdd, name + ".shift", inner.id, bias, x.width);
      const TensorId crossed = elementwise(OpKind::kMul, name + ".mul", x0.id, shifted, x.width);
      x = {elementwise(OpKind::kAdd, name + ".add", crossed, x.id, x.width), x.width};
    }
    return x;
  }

  TensorId elementwise(OpKind kind, std::string name, TensorId a, TensorId b, std::int64_t width) {
    const ElementType type = widest(graph_.tensor(a).type, graph_.tensor(b).type);
    return graph_.apply(kind, std::move(name), {a, b}, rows_of(width), type);
  }

  Feature top_mlp(Feature x) {
    graph_.begin_block();
    graph_.begin_unit();
    for (std::size_t i = 0; i < model_.top_mlp.size(); ++i) {
      x = linear("top." + std::to_string(i), x.id, x.width, model_.top_mlp[i]);
      if (i + 1 < model_.top_mlp.size()) {
        x = relu(x);
      }
    }
    graph_.end_block();
    graph_.end_unit();
    return x;
  }

  void loss(const Feature& logits) {
    // Autocast computes this loss in fp32.
    const TensorId labels = graph_.add_input("labels", rows_of(logits.width), stored_);
    graph_.apply(OpKind::kBceWithLogits, "loss", {cast(logits.id, stored_), labels}, {fixed(1)}, stored_);
  }

  const crds::DlrmModel& model_;
  const TableSummary& tables_;
  ElementType stored_ = ElementType::kFP32;   // of parameters, inputs and embeddings
  ElementType compute_ = ElementType::kFP32;  // of matrix products
  OperatorGraph graph_;
};

}  // namespace

Result<OperatorGraph> lower_dlrm(const crds::DlrmModel& model, const crds::TrainingSpec& training) {
  Result<void> checked = check(model);
  if (!checked) {
    return checked.error();
  }
  Result<TableSummary> tables = summarise(model.tables);
  if (!tables) {
    return tables.error();
  }
  return DlrmLowering(model, *tables, training.precision).run();
}

}  // namespace plimsoll::estimator
