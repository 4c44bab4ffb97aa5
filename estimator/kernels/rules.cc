#include "estimator/kernels/rules.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "estimator/kernels/convolution.h"
#include "estimator/kernels/formulas.h"

namespace plimsoll::estimator::inline kernels {

extern const char* const kRulesCsv;  // rules.csv

namespace {

struct NamedFormula {
  std::string_view name;
  KernelFormula formula;
};
constexpr NamedFormula kFormulas[] = {
    {"none", formula::none},
    {"batch_norm_backward", formula::batch_norm_backward},
    {"batch_statistics", formula::batch_statistics},
    {"contiguous_inputs", formula::contiguous_inputs},
    {"cpu_convolution", formula::cpu_convolution},
    {"cpu_convolution_backward", formula::cpu_convolution_backward},
    {"elementwise", formula::elementwise},
    {"embedding_bag_backward", formula::embedding_bag_backward},
    {"embedding_sort", formula::embedding_sort},
    {"group_norm_backward", formula::group_norm_backward},
    {"layer_norm_backward", formula::layer_norm_backward},
    {"matrix_copies", formula::matrix_copies},
    {"mkldnn_rnn", formula::mkldnn_rnn},
    {"mkldnn_rnn_backward", formula::mkldnn_rnn_backward},
    {"safe_softmax", formula::safe_softmax},
    {"softmax_backward", formula::softmax_backward},
};

[[noreturn]] void abort_on_row(std::string_view row) {
  std::fprintf(stderr, "rules.csv: invalid row: %.*s\n", static_cast<int>(row.size()), row.data());
  std::abort();  // the file is compiled into the program
}

KernelFormula formula_of(std::string_view name, std::string_view row) {
  const auto* const found = std::find_if(std::begin(kFormulas), std::end(kFormulas),
                                         [&](const NamedFormula& each) { return each.name == name; });
  return found == std::end(kFormulas) ? (abort_on_row(row), nullptr) : found->formula;
}

// Removes the text up to `end` from `text`, and `end` itself, and returns it.
std::string_view take_until(std::string_view& text, char end) {
  const std::size_t size = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, size);
  text.remove_prefix(std::min(size + 1, text.size()));
  return taken;
}

std::vector<KernelRule> read_rules(std::string_view csv) {
  std::vector<KernelRule> rules;
  while (!csv.empty()) {
    const std::string_view row = take_until(csv, '\n');
    if (row.starts_with('#') || row.starts_with("operator,")) {
      continue;
    }
    std::string_view rest = row;
    const std::string_view name = take_until(rest, ',');
    const KernelFormula cpu = formula_of(take_until(rest, ','), row);
    const KernelFormula cuda = formula_of(take_until(rest, ','), row);
    const std::string_view split = take_until(rest, ',');
    if (rest.empty() || (!rules.empty() && rules.back().name >= name)) {
      abort_on_row(row);
    }
    rules.push_back({.name = name, .cpu = cpu, .cuda = cuda, .split = split, .source = rest});
  }
  return rules;
}

}  // namespace

std::span<const KernelRule> kernel_rules() {
  static const std::vector<KernelRule> rules = read_rules(kRulesCsv);
  return rules;
}

const KernelRule* find_kernel_rule(std::string_view name) {
  const std::span<const KernelRule> rules = kernel_rules();
  const auto found = std::partition_point(rules.begin(), rules.end(),
                                          [&](const KernelRule& each) { return each.name < name; });
  return found == rules.end() || found->name != name ? nullptr : &*found;
}

Bytes conservative_temporary(const KernelCall& call) {
  Bytes sum;
  for (std::size_t i = 0; i < call.inputs(); ++i) {
    sum += call.input(i).bytes();
  }
  for (std::size_t i = 0; i < call.outputs(); ++i) {
    sum += call.output(i).bytes();
  }
  return sum;
}

}  // namespace plimsoll::estimator::kernels
