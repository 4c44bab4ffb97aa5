#include "estimator/kernels/temporaries.h"

#include <algorithm>
#include <set>

#include "estimator/kernels/convolution.h"
#include "estimator/kernels/rules.h"

namespace plimsoll::estimator::inline kernels {
Result<KernelTemporaries> kernel_temporaries(const Trace& trace, const TraceShapes& shapes,
                                             const TraceProducer& producer, const KernelOptions& options) {
  KernelTemporaries result;
  result.inside.assign(trace.operators.size(), Bytes{});
  for (const TraceTemporary& temporary : trace.temporaries) {
    result.inside[index(temporary.op)] = Bytes{std::max<std::int64_t>(0, temporary.bytes.at(shapes.batch()))};
  }
  if (trace.measured && trace.unmeasured.empty()) {
    return result;
  }
  std::vector<const KernelRule*> rules;
  for (const std::string& name : trace.operator_names) {
    rules.push_back(find_kernel_rule(name));
  }
  std::vector<bool> by_rule(trace.operators.size(), !trace.measured);
  for (const std::int32_t op : trace.unmeasured) {
    by_rule[index(op)] = true;
  }
  if (trace.device == Device::kCuda) {
    result.workspaces.assign(trace.operators.size(), Bytes{});
  }
  std::set<std::string> unknown;
  for (std::size_t i = 0; i < trace.operators.size(); ++i) {
    if (!by_rule[i]) {
      continue;
    }
    const TraceOperator& op = trace.operators[i];
    charge(options.budget, index(op.inputs.size) + index(op.outputs.size) + 1);
    const KernelCall call(trace, shapes, producer, i);
    const std::string& name = trace.operator_names[index(op.name)];
    const KernelRule* rule = rules[index(op.name)];
    if (trace.device == Device::kCuda) {
      result.workspaces[i] =
          cuda_convolution_workspace(name, call, options.gpu_family, options.convolution_workspace);
      result.convolutions.add(convolution_totals(name, call));
    }
    if (rule == nullptr) {
      unknown.insert(name);
      result.inside[i] = conservative_temporary(call);
    } else {
      result.inside[i] = trace.device == Device::kCpu ? rule->cpu(call) : rule->cuda(call);
    }
  }
  for (const std::string& name : unknown) {
    if (!options.lenient) {
      return Error(ErrorCode::kUnsupported, "there is no rule for the kernel temporaries of operator " +
                                                name.substr(0, 120) +
                                                "; with --lenient a conservative bound is used instead");
    }
    result.warnings.push_back("no rule for " + name.substr(0, 120) +
                              ": charged the size of its inputs and outputs");
  }
  return result;
}

}  // namespace plimsoll::estimator::kernels
