#include "estimator/spec/dhen.h"

#include <vector>

namespace plimsoll::estimator::inline spec {
namespace {

Shape flat(std::int64_t width) {
  return {per_sample(1), fixed(width)};
}
Shape matrix(std::int64_t features, std::int64_t width) {
  return {per_sample(1), fixed(features), fixed(width)};
}

class DhenLowering {
 public:
  DhenLowering(ModelBuilder& builder, const crds::DlrmModel& model, std::int64_t width)
      : builder_(builder),
        graph_(builder.graph()),
        stack_(*model.dhen),
        rank_(model.cross_rank),
        width_(width) {}

  TensorId layer(const std::string& name, TensorId x, std::int64_t features) {
    std::vector<TensorId> parts;
    for (std::size_t i = 0; i < stack_.modules.size(); ++i) {
      parts.push_back(module(name + ".modules." + std::to_string(i), stack_.modules[i], x, features));
    }
    const auto out_features = stack_.features * static_cast<std::int64_t>(parts.size());
    const TensorId ensemble = concat(name + ".ensemble", parts, out_features);
    const TensorId shortcut =
        out_features == features ? x : combine(name + ".shortcut", x, features, out_features);
    const TensorId sum =
        builder_.binary(OpKind::kAdd, name + ".residual", ensemble, shortcut, matrix(out_features, width_));
    return builder_.layer_norm(name + ".norm", sum, width_, true);
  }

 private:
  TensorId concat(const std::string& name, std::vector<TensorId> parts, std::int64_t features) {
    ElementType type = builder_.type(parts.front());
    for (const TensorId part : parts) {
      type = widest(type, builder_.type(part));
    }
    for (TensorId& part : parts) {
      part = builder_.cast(part, type);
    }
    return graph_.apply(OpKind::kConcat, name, parts, matrix(features, width_), type);
  }

  TensorId module(const std::string& name, crds::DhenModule kind, TensorId x, std::int64_t features) {
    const std::int64_t out = stack_.features * width_;
    switch (kind) {
      case crds::DhenModule::kLinear: return combine(name, x, features, stack_.features);
      case crds::DhenModule::kAttention:
        return combine(name, attend(name, x, features), features, stack_.features);
      case crds::DhenModule::kDot: {
        const TensorId pairs = pairwise_products(builder_, name, x);
        const TensorId inner =
            builder_.linear(name + ".mlp.0", pairs, flat(out), features * (features - 1) / 2, out, true);
        const TensorId active = builder_.unary(OpKind::kRelu, name + ".mlp.relu", inner);
        return as_matrix(name, builder_.linear(name + ".mlp.1", active, flat(out), out, out, true));
      }
      case crds::DhenModule::kDCN: {
        const std::int64_t in = features * width_;
        const TensorId row = graph_.view(name + ".flat", x, flat(in));
        const TensorId crossed = cross_layer(builder_, name + ".cross", row, row, in, rank_);
        return as_matrix(name, builder_.linear(name + ".out", crossed, flat(out), in, out, true));
      }
    }
    return x;
  }

  TensorId as_matrix(const std::string& name, TensorId x) {
    return graph_.view(name + ".features", x, matrix(stack_.features, width_));
  }

  // A Linear over the features, which are transposed to the last dimension by a copy, and back.
  TensorId combine(const std::string& name, TensorId x, std::int64_t features, std::int64_t out_features) {
    const TensorId transposed =
        graph_.apply(OpKind::kCopy, name + ".turned", {builder_.cast(x, builder_.compute())},
                     matrix(width_, features), builder_.compute());
    const TensorId mixed =
        builder_.linear(name + ".w", transposed, matrix(width_, out_features), features, out_features, true);
    return graph_.alias(OpKind::kReshape, name + ".back", {mixed}, matrix(out_features, width_));
  }

  TensorId attend(const std::string& name, TensorId x, std::int64_t features) {
    const std::int64_t head = width_ / stack_.heads;
    const Shape by_head = {per_sample(1), fixed(stack_.heads), fixed(features), fixed(head)};
    TensorIds inputs;
    for (const char* which : {".q", ".k", ".v"}) {
      const TensorId rows = builder_.linear(name + which, x, matrix(features, width_), width_, width_, true);
      inputs.push_back(graph_.view(name + which + ".heads", rows, by_head));
    }
    const TensorId out =
        graph_.apply(OpKind::kAttention, name + ".attention", inputs, by_head, builder_.compute());
    const TensorId rows = graph_.view(name + ".rows", out, matrix(features, width_));
    return builder_.linear(name + ".out", rows, matrix(features, width_), width_, width_, true);
  }

  ModelBuilder& builder_;
  ForwardGraph& graph_;
  const crds::DhenStack& stack_;
  const std::int64_t rank_;
  const std::int64_t width_;
};

}  // namespace

Result<void> check_dhen(const crds::DlrmModel& model) {
  if (!model.dhen) {
    return invalid("model.dlrm.dhen is missing: the DHEN interaction needs layers, features and modules");
  }
  const crds::DhenStack& stack = *model.dhen;
  constexpr std::int64_t kMaxFeatures = 1 << 16;
  if (stack.layers < 1 || stack.layers > 1000 || stack.features < 1 || stack.features > kMaxFeatures ||
      stack.modules.empty() || stack.modules.size() > 64) {
    return invalid("model.dlrm.dhen: layers must be from 1 to 1000, features from 1 to " +
                   std::to_string(kMaxFeatures) + ", and the number of modules from 1 to 64");
  }
  if (stack.heads < 1 || (!model.bottom_mlp.empty() && model.bottom_mlp.back() % stack.heads != 0)) {
    return invalid("model.dlrm.dhen.heads is " + std::to_string(stack.heads) +
                   " and must divide the width of the bottom MLP's last layer");
  }
  return {};
}

TensorId lower_dhen(ModelBuilder& builder, const crds::DlrmModel& model, TensorId x, std::int64_t* features) {
  DhenLowering lowering(builder, model, builder.shape(x).back().constant);
  const TensorId input = x;
  for (std::int64_t i = 0; i < model.dhen->layers; ++i) {
    builder.graph().begin_block();
    builder.graph().begin_unit();
    const TensorId before = x;
    x = lowering.layer("dhen." + std::to_string(i), x, *features);
    builder.graph().end_scope({before});
    *features = model.dhen->features * static_cast<std::int64_t>(model.dhen->modules.size());
  }
  builder.graph().end_scope({input});  // held by the caller
  return x;
}

TensorId pairwise_products(ModelBuilder& builder, const std::string& name, TensorId x) {
  ForwardGraph& graph = builder.graph();
  const std::int64_t features = builder.shape(x)[1].constant;
  const std::int64_t width = builder.shape(x)[2].constant;
  const std::int64_t pairs = features * (features - 1) / 2;
  const TensorId transposed = graph.view(name + ".transposed", x, matrix(width, features));
  const TensorId products = builder.matmul(name, x, transposed, matrix(features, features));
  const TensorId upper = graph.add_input(name + ".indices", {fixed(2), fixed(pairs)}, ElementType::kInt64);
  return graph.apply(OpKind::kGather, name + ".pairs", {products, upper}, flat(pairs), builder.compute());
}

TensorId cross_layer(ModelBuilder& builder, const std::string& name, TensorId x0, TensorId x,
                     std::int64_t width, std::int64_t rank) {
  TensorId inner = x;
  if (rank > 0) {
    inner = builder.linear(name + ".v", x, flat(rank), width, rank, false);
  }
  inner = builder.linear(name + ".w", inner, flat(width), rank > 0 ? rank : width, width, false);
  const TensorId bias = builder.parameter(name + ".bias", {fixed(width)});
  const TensorId shifted = builder.add(name + ".shift", inner, bias);
  return builder.add(name + ".add", builder.multiply(name + ".mul", x0, shifted), x);
}

}  // namespace plimsoll::estimator::spec
