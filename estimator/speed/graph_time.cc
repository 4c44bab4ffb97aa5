#include "estimator/speed/graph_time.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <variant>

#include "estimator/parallel/units.h"

namespace plimsoll::estimator::inline speed {
namespace {

using crds::ActivationCheckpointing;

class Operator {
 public:
  Operator(const Trace& trace, const TraceShapes& shapes, std::int32_t op)
      : trace_(trace), shapes_(shapes), op_(trace.operators[index(op)]) {}

  std::string_view name() const {
    constexpr std::string_view kNamespace = "aten::";
    const std::string_view whole = trace_.operator_names[index(op_.name)];
    return whole.substr(whole.starts_with(kNamespace) ? kNamespace.size() : 0);
  }
  bool has_input(std::int32_t i) const { return i < op_.inputs.size && input_id(i) >= 0; }
  TensorView input(std::int32_t i) const { return has_input(i) ? shapes_.tensor(input_id(i)) : TensorView(); }
  TensorView output(std::int32_t i) const {
    return i < op_.outputs.size && output_id(i) >= 0 ? shapes_.tensor(output_id(i)) : TensorView();
  }

  // A boolean argument; false where the call does not say it.
  bool flag(std::string_view name) const {
    if (op_.attributes < 0) {
      return false;
    }
    for (const Attribute& attribute : trace_.attributes[index(op_.attributes)]) {
      if (attribute.name == name) {
        const auto* const value = std::get_if<Count>(&attribute.value);
        return value != nullptr && value->at(shapes_.batch()) != 0;
      }
    }
    return false;
  }

  double bytes_read() const {
    double bytes = 0;
    for (std::int32_t i = 0; i < op_.inputs.size; ++i) {
      bytes += static_cast<double>(input(i).bytes().count);
    }
    return bytes;
  }
  // Of results in memory of their own, and of those that an operator in place writes.
  double bytes_written() const {
    double bytes = 0;
    for (std::int32_t i = 0; i < op_.outputs.size; ++i) {
      const bool written = output_id(i) >= 0 && (name().ends_with('_') || !is_view(output_id(i)));
      bytes += written ? static_cast<double>(output(i).bytes().count) : 0;
    }
    return bytes;
  }

 private:
  std::int32_t input_id(std::int32_t i) const { return trace_.operands[index(op_.inputs.begin + i)]; }
  std::int32_t output_id(std::int32_t i) const { return trace_.operands[index(op_.outputs.begin + i)]; }
  bool is_view(std::int32_t tensor) const {
    for (std::int32_t i = 0; i < op_.inputs.size; ++i) {
      if (has_input(i) &&
          trace_.tensors[index(input_id(i))].storage == trace_.tensors[index(tensor)].storage) {
        return true;
      }
    }
    return false;
  }

  const Trace& trace_;
  const TraceShapes& shapes_;
  const TraceOperator& op_;
};

ElementType type_of(const TensorView& tensor) {
  constexpr std::int64_t kHalf = 2;
  return tensor.width != kHalf       ? ElementType::kFP32
         : tensor.dtype == "float16" ? ElementType::kFP16
                                     : ElementType::kBF16;
}

double elements(const TensorView& tensor) {
  return tensor.present ? static_cast<double>(tensor.elements) : 0;
}

// Operands of products: the left matrix.
std::int32_t left_of(std::string_view name) {
  return name == "addmm" || name == "baddbmm" || name == "addbmm" ? 1
         : name == "mm" || name == "bmm" || name == "linear"      ? 0
                                                                  : -1;
}

void set_product(OperatorWork& work, double result, double inner, const TensorView& left) {
  work.kind = WorkKind::kMatrix;
  work.type = type_of(left);
  work.flops = 2 * result * inner;
  work.result = result;
}

// FLOPs of one product of a convolution: each result sums over the weight of an output channel.
double summed_by_convolution(const TensorView& weight) {
  return elements(weight) / static_cast<double>(std::max<std::int64_t>(1, weight.size(0)));
}

void set_attention(OperatorWork& work, const TensorView& query, const TensorView& key, bool causal,
                   bool backward) {
  constexpr double kCausal = 0.5;
  constexpr double kProducts = 2;
  constexpr double kBackward = 2.5;
  constexpr double kFlops = 2;
  work.kind = WorkKind::kAttention;
  work.type = type_of(query);
  work.head_dim = query.size(-1);
  work.tokens = key.size(-2);
  work.causal = causal;  // the kernel skips what the mask hides; not so with a mask that is an operand
  work.flops = kFlops * kProducts * elements(query) * static_cast<double>(work.tokens) *
               (causal ? kCausal : 1) * (backward ? kBackward : 1);
}

Traffic traffic_of(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("_norm")) {
    return Traffic::kNorm;
  }
  return has("gelu") || has("silu") || has("tanh") || has("sigmoid") ? Traffic::kActivation
                                                                     : Traffic::kStream;
}

// The units' times while the iteration enters and leaves them.
class CurrentUnit {
 public:
  explicit CurrentUnit(const std::vector<UnitEvent>& events) : events_(events) {}

  std::int32_t at(std::int32_t op) {
    for (; next_ < events_.size() && events_[next_].time <= op; ++next_) {
      const UnitEvent& event = events_[next_];
      const bool enters =
          event.kind == UnitEvent::Kind::kEnterForward || event.kind == UnitEvent::Kind::kEnterBackward;
      unit_ = enters ? event.unit : kRootUnit;
    }
    return unit_;
  }

 private:
  const std::vector<UnitEvent>& events_;
  std::size_t next_ = 0;
  std::int32_t unit_ = kRootUnit;
};

void add_parameters(StageTime& stage, const Trace& trace, const TraceShapes& shapes,
                    const TraceUnits& units) {
  for (std::size_t i = 0; i < trace.parameters.size(); ++i) {
    const TraceParameter& parameter = trace.parameters[i];
    const TensorView tensor = shapes.tensor_of(parameter.layout, parameter.dtype);
    UnitTime& unit = stage.units[units.of_parameter[i]];
    unit.parameters += elements(tensor);
    unit.trained += parameter.trainable ? elements(tensor) : 0;
    unit.width = static_cast<double>(tensor.width);
  }
}

Spent spent_of(const OperatorWork& work, const KernelTimes& times) {
  return !times.is_arithmetic(work)          ? Spent::kMemory
         : work.kind == WorkKind::kAttention ? Spent::kAttention
                                             : Spent::kMatrix;
}

}  // namespace

OperatorWork work_of(const Trace& trace, const TraceShapes& shapes, std::int32_t index) {
  const Operator op(trace, shapes, index);
  const std::string_view name = op.name();
  OperatorWork work{.kind = WorkKind::kMemory, .traffic = traffic_of(name)};
  const double written = op.bytes_written();
  if (written <= 0) {
    return {};
  }
  work.bytes = op.bytes_read() + written;
  if (const std::int32_t left = left_of(name); left >= 0) {
    set_product(work, elements(op.output(0)), static_cast<double>(op.input(left).size(-1)), op.input(left));
  } else if (name == "convolution") {
    set_product(work, elements(op.output(0)), summed_by_convolution(op.input(1)), op.input(0));
  } else if (name == "convolution_backward") {
    const double products = (op.output(0).present ? 1 : 0) + (op.output(1).present ? 1 : 0);
    set_product(work, products * elements(op.input(0)), summed_by_convolution(op.input(2)), op.input(0));
  } else if (name.starts_with("_scaled_dot_product")) {
    const bool backward = name.ends_with("_backward");
    set_attention(work, op.input(backward ? 1 : 0), op.input(backward ? 2 : 1), op.flag("is_causal"),
                  backward);
  } else if (name.starts_with("embedding") || name.starts_with("index_select")) {
    work.bytes = 2 * written;  // of a table, only the rows that are looked up
  }
  return work;
}

StageTime graph_time(const Trace& trace, const TraceShapes& shapes, const KernelTimes& times,
                     const StageOptions& options) {
  charge(options.budget, trace.operators.size() + trace.operands.size() + trace.parameters.size());
  StageTime stage;
  const TraceUnits units = units_of(trace);
  const std::vector<std::string_view> blocks = numbered_blocks(trace);
  add_parameters(stage, trace, shapes, units);
  CurrentUnit current(units.events);
  const auto operators = static_cast<std::int32_t>(trace.operators.size());
  for (std::int32_t i = 0; i < operators; ++i) {
    const OperatorWork work = work_of(trace, shapes, i);
    UnitTime& unit = stage.units[current.at(i)];
    if (work.kind == WorkKind::kNone) {
      continue;
    }
    const double seconds = times.forward(work);
    (i < trace.loss_end ? unit.forward : unit.backward) += seconds;
    stage.of(spent_of(work, times)) += seconds;
    ++(i < trace.loss_end ? stage.forward_kernels : stage.backward_kernels);
    const bool in_block =
        i < trace.forward_end && !blocks[trace::index(trace.operators[trace::index(i)].module)].empty();
    if (options.checkpointing == ActivationCheckpointing::kFull && in_block) {
      unit.backward += seconds;
      stage.of(Spent::kRecompute) += seconds;
      ++stage.backward_kernels;
    }
  }
  stage.wait_for_cpu(0);
  return stage;
}

}  // namespace plimsoll::estimator::speed
