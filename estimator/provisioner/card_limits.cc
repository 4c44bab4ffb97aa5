#include "estimator/provisioner/card_limits.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "estimator/fixed_costs/table.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

// Operators that only some cards have: the libraries that flash-attention registers (flash_attn/
// flash_attn_interface.py, hopper/flash_attn_interface.py), and PyTorch's scaled products of FP8.
struct DemandingOperator {
  std::string_view prefix;
  std::string CardDemands::*demand;
};
constexpr std::array kDemandingOperators = {
    DemandingOperator{"flash_attn_3::", &CardDemands::flash_attention_3},
    DemandingOperator{"flash_attn::", &CardDemands::flash_attention_2},
    DemandingOperator{"aten::_scaled_mm", &CardDemands::fp8},
    DemandingOperator{"aten::_scaled_grouped_mm", &CardDemands::fp8},
};

void demand_of_precision(crds::Precision precision, CardDemands& demands) {
  const std::string source = std::string("spec.training.precision ") + crds::name_of(precision);
  switch (precision) {
    case crds::Precision::kFP32: break;
    case crds::Precision::kTF32: demands.tf32 = source; break;
    case crds::Precision::kFP16Mixed: demands.fp16 = source; break;
    case crds::Precision::kBF16Mixed:
    case crds::Precision::kBF16: demands.bf16 = source; break;
  }
}

void demands_of_trace(const Trace& trace, CardDemands& demands) {
  for (const std::string& name : trace.operator_names) {
    for (const DemandingOperator& known : kDemandingOperators) {
      if (name.starts_with(known.prefix)) {
        demands.*known.demand = "the graph's operator " + name;
        break;
      }
    }
  }
  for (const std::string& dtype : trace.dtypes) {
    if (dtype.starts_with("float8")) {
      demands.fp8 = "the graph's tensors of " + dtype;
    } else if (dtype == "bfloat16" && demands.bf16.empty()) {
      demands.bf16 = "the graph's tensors of bfloat16";
    }
  }
}

// TF32 and pure BF16 may be estimated from the trace in FP32 (graph_estimate.cc).
bool is_trace_of(crds::Precision precision, const Trace& trace) {
  const bool from_fp32 = precision == crds::Precision::kTF32 || precision == crds::Precision::kBF16;
  return trace.precision == crds::name_of(precision) || (from_fp32 && trace.precision == "FP32");
}

std::string version_text(std::int32_t version) {
  return std::to_string(version / 100) + "." + std::to_string(version % 100);
}

// Whether a program that was built for this CUDA version has code for the card. Code for a lower minor version
// of the same major one runs too.
std::string why_cuda_cannot(std::int32_t cuda, ComputeCapability capability) {
  const std::int32_t oldest = capabilities_of({capability.major, 0}).oldest_cuda;
  const std::int32_t newest = capabilities_of(capability).newest_cuda;
  const std::string is =
      "its compute capability is " + to_string(capability) + ", and the graph's CUDA " + version_text(cuda);
  if (cuda < oldest) {
    return is + " has no code for it: CUDA " + version_text(oldest) + " is the first that has";
  }
  return newest != 0 && cuda > newest
             ? is + " has no code for it: CUDA " + version_text(newest) + " is the last that has"
             : std::string();
}

std::string why_build_cannot(const CardDemands& demands, ComputeCapability capability) {
  const TorchBuild& build = demands.build;
  const std::optional<bool> has_code = build_has_code_for(build, capability);
  if (has_code) {
    return *has_code ? std::string()
                     : "its compute capability is " + to_string(capability) + ", for which no build of " +
                           demands.build_source + " PyTorch " + version_text(build.torch) +
                           (build.cuda == 0 ? std::string() : " with CUDA " + version_text(build.cuda)) +
                           " has code";
  }
  return build.cuda == 0 ? std::string() : why_cuda_cannot(build.cuda, capability);
}

std::string why_driver_cannot(const TorchBuild& build, const AvailableGpu& gpu) {
  const std::optional<DriverVersion> needed = oldest_driver_for(build.cuda);
  if (!needed || !gpu.oldest_driver || *gpu.oldest_driver >= *needed) {
    return {};
  }
  return "a node of it has driver " + to_string(*gpu.oldest_driver) + ", and the graph's CUDA " +
         version_text(build.cuda) + " needs " + to_string(*needed) + " or newer";
}

}  // namespace

CardDemands demands_of(const crds::TrainingJobSpec& spec, const TraceFile* graph) {
  CardDemands demands;
  demands.allow_emulation = spec.provisioning.allow_emulation;
  demand_of_precision(spec.training.precision, demands);
  if (spec.model.transformer && spec.model.transformer->attention == crds::AttentionKind::kFlash) {
    demands.flash_attention_2 = "spec.model.transformer.attention Flash";
  }
  if (spec.training.float8 != crds::Float8::kNone) {
    demands.fp8 = "spec.training.float8";
  }
  if (graph == nullptr) {
    demands.build.torch = torch_version_of(spec.training.torch_version);
    demands.build_source = "spec.training.torchVersion's";
  } else {
    demands.build = {.torch = graph->producer.version, .cuda = cuda_version_of(graph->producer.torch)};
    for (const Trace& trace : graph->traces) {
      if (trace.device == Device::kCuda && is_trace_of(spec.training.precision, trace)) {
        demands_of_trace(trace, demands);
      }
    }
  }
  return demands;
}

std::string why_it_cannot_run(const CardDemands& demands, const AvailableGpu& gpu) {
  if (std::string driver = why_driver_cannot(demands.build, gpu); !driver.empty()) {
    return driver;
  }
  if (!gpu.model.compute_capability) {
    return {};
  }
  const ComputeCapability capability = *gpu.model.compute_capability;
  const Capabilities can = capabilities_of(capability);
  const std::string has = ", and its compute capability is " + to_string(capability);
  struct Check {
    const std::string& demand;
    const char* demanded;
    bool met;
    bool emulated;
  };
  const Check checks[] = {
      {demands.flash_attention_2, "FlashAttention 2 (8.0 or later)", can.flash_attention_2, false},
      {demands.flash_attention_3, "FlashAttention 3 (9.0 only)", can.flash_attention_3, false},
      {demands.fp8, "FP8 (8.9 or later)", can.fp8, false},
      {demands.bf16, "BF16 (native from 8.0 on)", can.bf16, true},
      {demands.tf32, "TF32 (native from 8.0 on)", can.tf32, true},
      {demands.fp16, "FP16 (native from 5.3 on)", can.fp16, true}};
  for (const Check& check : checks) {
    if (!check.demand.empty() && !check.met && !(check.emulated && demands.allow_emulation)) {
      return check.demand + " needs " + check.demanded + has +
             (check.emulated ? "; provisioning.allowEmulation takes it all the same" : "");
    }
  }
  return why_build_cannot(demands, capability);
}

}  // namespace plimsoll::estimator::provisioner
