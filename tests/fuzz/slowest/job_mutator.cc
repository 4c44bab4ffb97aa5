#include "tests/fuzz/slowest/job_mutator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "crds/enums.h"
#include "crds/training_job_fields.h"

namespace plimsoll::testing {
namespace {

using crds::DecimalRule;
using crds::Presence;
using crds::QuantityRule;
using crds::Range;
using crds::TextRule;

std::int64_t between(Random& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

template <class T>
const T& one_of(Random& random, const T& list) = delete;

template <class Item, std::size_t kSize>
const Item& one_of(Random& random, const std::array<Item, kSize>& list) {
  return list[static_cast<std::size_t>(between(random, 0, kSize - 1))];
}

// As likely between 1 and 2 as between a million and two million.
std::int64_t any_magnitude(Random& random, Range range) {
  const double least = std::log(static_cast<double>(std::max<std::int64_t>(1, range.least)));
  const double most = std::log(static_cast<double>(std::max<std::int64_t>(1, range.most)));
  const double value = std::exp(std::uniform_real_distribution<double>(least, most)(random));
  return std::clamp(static_cast<std::int64_t>(std::llround(value)), range.least, range.most);
}

std::int64_t changed(Random& random, std::int64_t value, Range range) {
  const auto clamped = [&](std::int64_t to) { return std::clamp(to, range.least, range.most); };
  switch (between(random, 0, 8)) {
    case 0: return range.least;
    case 1: return range.most;
    case 2: return clamped(value + 1);
    case 3: return clamped(value - 1);
    case 4: return value > range.most / 2 ? range.most : clamped(value * 2);
    case 5: return clamped(value / 2);
    case 6: return clamped(std::int64_t{1} << between(random, 0, 24));
    default: return any_magnitude(random, range);
  }
}

std::string random_config(Random& random) {
  static constexpr std::array<const char*, 8> kTypes = {"llama",       "mixtral", "gpt2",  "bert",
                                                        "deepseek_v2", "t5",      "qwen2", "gemma"};
  const auto size = [&](std::int64_t most) {
    return Json(static_cast<::Json::Int64>(any_magnitude(random, {1, most})));
  };
  const std::int64_t heads = std::int64_t{1} << between(random, 0, 7);
  const std::int64_t hidden = heads * (std::int64_t{1} << between(random, 0, 7));
  Json config;
  config["model_type"] = one_of(random, kTypes);
  for (const char* name : {"num_hidden_layers", "n_layer", "num_layers"}) {
    config[name] = size(65536);
  }
  for (const char* name : {"hidden_size", "n_embd", "d_model"}) {
    config[name] = static_cast<::Json::Int64>(hidden);
  }
  for (const char* name : {"num_attention_heads", "n_head", "num_heads", "num_key_value_heads"}) {
    config[name] = static_cast<::Json::Int64>(heads);
  }
  for (const char* name : {"intermediate_size", "d_ff", "vocab_size", "moe_intermediate_size"}) {
    config[name] = size(1 << 20);
  }
  for (const char* name : {"num_local_experts", "n_routed_experts", "n_shared_experts"}) {
    config[name] = size(4096);
  }
  config["num_experts_per_tok"] = 1;
  config["n_positions"] = config["max_position_embeddings"] = 1 << 24;
  config["kv_lora_rank"] = config["qk_nope_head_dim"] = config["v_head_dim"] = size(1024);
  config["qk_rope_head_dim"] = 2;
  return write_json(config);
}

// Changes each field with a certain chance.
class Mutator {
 public:
  Mutator(Random& random, double chance) : random_(random), chance_(chance) {}

  void boolean(const char* /*name*/, bool& value, Presence) {
    if (hit()) {
      value = !value;
    }
  }
  void optional_boolean(const char* /*name*/, std::optional<bool>& value) {
    if (hit()) {
      value = !value.value_or(true);
    }
  }
  void integer(const char* /*name*/, std::int64_t& value, Presence, Range range) {
    if (hit()) {
      value = changed(random_, value, range);
    }
  }
  void optional_integer(const char* /*name*/, std::optional<std::int64_t>& value, Range range) {
    if (hit()) {
      value = any_magnitude(random_, range);
    }
  }
  void integers(const char* /*name*/, std::vector<std::int64_t>& values, Presence, Range count, Range range) {
    resize(values, count, [&] { return any_magnitude(random_, range); });
    for (std::int64_t& value : values) {
      if (hit()) {
        value = changed(random_, value, range);
      }
    }
  }
  void integer_set(const char* name, std::vector<std::int64_t>& values, Range count, Range range) {
    integers(name, values, Presence::kOptional, count, range);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }
  // Names decide little; those that do come from a few.
  void text(const char* /*name*/, std::string& value, Presence, const TextRule& rule) {
    if (!hit()) {
      return;
    }
    if (&rule == &crds::kModelConfig) {
      value = random_config(random_);
    } else if (&rule == &crds::kConfigMapKey) {
      static constexpr std::array<const char*, 4> kKeys = {"tables.csv", "many.csv", "graph.json",
                                                           "long.json"};
      value = one_of(random_, kKeys);
    } else if (&rule == &crds::kConfigMapName) {
      value = "config";
    } else if (&rule == &crds::kFamilyName) {
      value = between(random_, 0, 1) == 0 ? "ads" : "";
    }
  }
  void texts(const char* /*name*/, std::vector<std::string>& values, Range count, const TextRule& rule) {
    resize(values, count, [&] { return name_for(rule); });
    // The schema has them as sets.
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }
  void decimal(const char* /*name*/, double& value, Presence, const DecimalRule& rule) {
    if (hit()) {
      value = between(random_, 0, 1) == 0 ? static_cast<double>(any_magnitude(random_, rule.integers))
                                          : std::uniform_real_distribution<double>(
                                                rule.least, std::min(rule.most, 999'999.0))(random_);
    }
  }
  void optional_decimal(const char* name, std::optional<double>& value, const DecimalRule& rule) {
    if (hit()) {
      decimal(name, value.emplace(rule.least), Presence::kOptional, rule);
    }
  }
  void optional_bytes(const char* /*name*/, std::optional<Bytes>& value, const QuantityRule& rule) {
    if (hit()) {
      value = Bytes{any_magnitude(random_, {rule.least, std::int64_t{1} << 50})};
    }
  }
  void percentage(const char* /*name*/, double& value, Presence, const TextRule&) {
    if (hit()) {
      value = static_cast<double>(between(random_, 0, 99)) / 100;
    }
  }
  template <class E>
  void choice(const char* /*name*/, E& value, Presence) {
    if (hit()) {
      value = any<E>();
    }
  }
  template <class E>
  void choice_but(const char* /*name*/, E& value, Presence, std::initializer_list<E> excluded) {
    if (hit()) {
      do {
        value = any<E>();
      } while (std::find(excluded.begin(), excluded.end(), value) != excluded.end());
    }
  }
  template <class E>
  void choices(const char* /*name*/, std::vector<E>& values, Range count) {
    resize(values, count, [&] { return any<E>(); });
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }
  template <class T>
  void object(const char* /*name*/, T& value, Presence) {
    describe(*this, value);
  }
  template <class T>
  void optional_object(const char* /*name*/, std::optional<T>& value) {
    if (hit()) {
      value.has_value() ? value.reset() : static_cast<void>(fresh(value.emplace()));
    }
    if (value) {
      describe(*this, *value);
    }
  }
  template <class T>
  void objects(const char* /*name*/, std::vector<T>& values, Presence, Range count) {
    resize(values, count, [&] {
      T value = values.empty() ? T() : values[static_cast<std::size_t>(between(random_, 0, last(values)))];
      fresh(value);
      return value;
    });
    // Of thousands, a few.
    for (int i = 0; i < 4 && !values.empty(); ++i) {
      describe(*this, values[static_cast<std::size_t>(between(random_, 0, last(values)))]);
    }
  }
  template <class Describe>
  void group(const char* /*name*/, Presence, Describe fields) {
    fields(*this);
  }

 private:
  bool hit() { return std::bernoulli_distribution(chance_)(random_); }

  template <class Values>
  static std::int64_t last(const Values& values) {
    return static_cast<std::int64_t>(values.size()) - 1;
  }

  template <class E>
  E any() {
    return static_cast<E>(between(random_, 0, static_cast<std::int64_t>(crds::kNames<E>.size()) - 1));
  }

  template <class T>
  void fresh(T& value) {
    Mutator all(random_, 0.5);
    describe(all, value);
  }

  std::string name_for(const TextRule& rule) {
    if (&rule == &crds::kRequiredGpuModelName) {
      static constexpr std::array<const char*, 5> kGpus = {"A100-40GB", "A100-80GB", "H100-80GB", "H200",
                                                           "V100-32GB"};
      return one_of(random_, kGpus);
    }
    static constexpr std::array<const char*, 6> kModules = {"*",          "blocks", "blocks.*",
                                                            "blocks.*.q", "*.*.*",  "*.*.*.*.*.*.*.*.*"};
    return between(random_, 0, 2) == 0 ? one_of(random_, kModules)
                                       : "blocks." + std::to_string(between(random_, 0, 300));
  }

  template <class Values, class Make>
  void resize(Values& values, Range count, Make make) {
    if (!hit()) {
      return;
    }
    const auto size = static_cast<std::int64_t>(values.size());
    const std::int64_t wanted = changed(random_, size, count);
    while (static_cast<std::int64_t>(values.size()) < wanted) {
      values.push_back(make());
    }
    values.resize(static_cast<std::size_t>(wanted));
  }

  Random& random_;
  const double chance_;
};

// Writes fields as JSON, as the CRD's schema has them.
class Writer {
 public:
  explicit Writer(Json& object) : object_(object) {}

  void boolean(const char* name, bool value, Presence) { object_[name] = value; }
  void optional_boolean(const char* name, const std::optional<bool>& value) {
    if (value) {
      object_[name] = *value;
    }
  }
  void integer(const char* name, std::int64_t value, Presence, Range) { object_[name] = number(value); }
  void optional_integer(const char* name, const std::optional<std::int64_t>& value, Range) {
    if (value) {
      object_[name] = number(*value);
    }
  }
  void integers(const char* name, const std::vector<std::int64_t>& values, Presence, Range, Range) {
    Json& list = list_of(name);
    for (const std::int64_t value : values) {
      list.append(number(value));
    }
  }
  void integer_set(const char* name, const std::vector<std::int64_t>& values, Range count, Range range) {
    if (!values.empty()) {
      integers(name, values, Presence::kOptional, count, range);
    }
  }
  void text(const char* name, const std::string& value, Presence presence, const TextRule&) {
    if (!value.empty() || presence == Presence::kRequired) {
      object_[name] = value;
    }
  }
  void texts(const char* name, const std::vector<std::string>& values, Range, const TextRule&) {
    Json& list = list_of(name);
    for (const std::string& value : values) {
      list.append(value);
    }
  }
  void decimal(const char* name, double value, Presence, const DecimalRule&) {
    object_[name] =
        std::trunc(value) == value ? number(static_cast<std::int64_t>(value)) : Json(written("%.6f", value));
  }
  void optional_decimal(const char* name, const std::optional<double>& value, const DecimalRule& rule) {
    if (value) {
      decimal(name, *value, Presence::kOptional, rule);
    }
  }
  void optional_bytes(const char* name, const std::optional<Bytes>& value, const QuantityRule&) {
    if (value) {
      object_[name] = format_bytes(*value);
    }
  }
  void percentage(const char* name, double value, Presence, const TextRule&) {
    object_[name] = written("%.4f%%", value * 100);
  }
  template <class E>
  void choice(const char* name, E value, Presence) {
    object_[name] = crds::name_of(value);
  }
  template <class E>
  void choice_but(const char* name, E value, Presence presence, std::initializer_list<E>) {
    choice(name, value, presence);
  }
  template <class E>
  void choices(const char* name, const std::vector<E>& values, Range) {
    if (!values.empty()) {
      Json& list = list_of(name);
      for (const E value : values) {
        list.append(crds::name_of(value));
      }
    }
  }
  template <class T>
  void object(const char* name, const T& value, Presence) {
    write(name, value);
  }
  template <class T>
  void optional_object(const char* name, const std::optional<T>& value) {
    if (value) {
      write(name, *value);
    }
  }
  template <class T>
  void objects(const char* name, const std::vector<T>& values, Presence, Range) {
    Json& list = list_of(name);
    for (const T& value : values) {
      Writer inner(list.append(Json(::Json::objectValue)));
      describe(inner, value);
    }
  }
  template <class Describe>
  void group(const char* name, Presence, Describe fields) {
    object_[name] = Json(::Json::objectValue);
    Writer inner(object_[name]);
    fields(inner);
  }

 private:
  static Json number(std::int64_t value) { return {static_cast<::Json::Int64>(value)}; }
  static std::string written(const char* format, double value) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), format, value);
    return text.data();
  }
  Json& list_of(const char* name) { return object_[name] = Json(::Json::arrayValue); }
  template <class T>
  void write(const char* name, const T& value) {
    object_[name] = Json(::Json::objectValue);
    Writer inner(object_[name]);
    describe(inner, value);
  }

  Json& object_;
};

// What fields demand of each other (crds/validate.cc), so that few jobs are made in vain.

// Of a DLRM, or beside a graph.
template <class Model>
void repair_tables(Model& model) {
  if (model.tables_from) {
    model.tables_from->config_map_name = "config";
    if (!model.tables_from->key.ends_with(".csv")) {
      model.tables_from->key = "tables.csv";
    }
  } else if (model.tables.empty()) {
    model.tables.emplace_back();
  }
  std::int64_t tables = 0;
  for (crds::EmbeddingTable& table : model.tables) {
    table.name = "table-" + std::to_string(&table - model.tables.data());
    table.rows = std::max<std::int64_t>(1, table.rows);
    table.dim = std::max<std::int64_t>(1, table.dim);
    const std::int64_t others = model.tables.data() + model.tables.size() - 1 - &table;
    table.count = std::clamp<std::int64_t>(table.count, 1, crds::kMaxEmbeddingTables - tables - others);
    tables += table.count;
    // So that the sum of sizes stays below 2^63 bytes.
    table.rows = std::min(table.rows, std::int64_t{1} << 40);
    while (static_cast<double>(table.rows) * static_cast<double>(table.dim * table.count) > 1e12) {
      table.rows = table.rows / 2 + 1;
    }
  }
}

void repair(crds::DlrmModel& model) {
  model.top_mlp.empty() ? model.top_mlp.push_back(1) : static_cast<void>(model.top_mlp.back() = 1);
  if (model.dense_features == 0) {
    model.bottom_mlp.clear();
  }
  if (model.interaction == crds::Interaction::kDHEN) {
    model.dense_features = std::max<std::int64_t>(1, model.dense_features);
    if (!model.dhen) {
      model.dhen = crds::DhenStack{.layers = 4, .features = 16, .modules = {crds::DhenModule::kLinear}};
    }
    if (model.dhen->modules.empty()) {
      model.dhen->modules = {crds::DhenModule::kAttention};
    }
    model.dhen->layers = std::max<std::int64_t>(1, model.dhen->layers);
    model.dhen->features = std::max<std::int64_t>(1, model.dhen->features);
    if (model.bottom_mlp.empty()) {
      model.bottom_mlp = {128};
    }
    std::int64_t& width = model.bottom_mlp.back();
    width = std::max(width / model.dhen->heads, std::int64_t{1}) * model.dhen->heads;
  } else {
    model.dhen.reset();
  }
  const bool crosses =
      model.interaction == crds::Interaction::kDCN || model.interaction == crds::Interaction::kDCNv1;
  model.cross_layers = crosses ? std::max<std::int64_t>(1, model.cross_layers) : 0;
  if (model.interaction != crds::Interaction::kDCN && model.interaction != crds::Interaction::kDHEN) {
    model.cross_rank = 0;
  }
  repair_tables(model);
}

void repair(crds::TransformerModel& model) {
  if (!model.config.empty()) {
    const std::string config = std::exchange(model.config, {});
    const std::int64_t length = std::max<std::int64_t>(1, model.sequence_length);
    model = {.config = config, .sequence_length = length};
    return;
  }
  if (model.architecture != crds::TransformerArchitecture::kEncoderDecoder) {
    model.encoder_sequence_length = 0;
  }
  for (std::int64_t* size :
       {&model.layers, &model.hidden, &model.heads, &model.ffn, &model.vocab, &model.sequence_length}) {
    *size = std::max<std::int64_t>(1, *size);
  }
  model.heads = std::min(model.heads, model.hidden);
  if (model.head_dim == 0) {
    model.hidden = model.hidden / model.heads * model.heads;
  }
  if (model.kv_heads > 0) {
    model.kv_heads = std::min(model.kv_heads, model.heads);
    model.heads = model.heads / model.kv_heads * model.kv_heads;
    model.hidden = std::max(model.heads, model.hidden / model.heads * model.heads);
  }
  model.experts_per_token =
      model.experts == 0 ? 0 : std::clamp<std::int64_t>(model.experts_per_token, 1, model.experts);
}

void repair(crds::ModelSpec& model, Random& random) {
  const int kinds =
      int{model.dlrm.has_value()} + int{model.transformer.has_value()} + int{model.graph.has_value()};
  if (kinds != 1) {
    const std::int64_t kept = between(random, 0, 2);
    const auto keep = [](auto& one, bool yes) {
      if (!yes) {
        one.reset();
      } else if (!one) {
        one.emplace();
      }
    };
    keep(model.dlrm, kept == 0);
    keep(model.transformer, kept == 1);
    keep(model.graph, kept == 2);
  }
  if (model.dlrm) {
    repair(*model.dlrm);
  }
  if (model.transformer) {
    repair(*model.transformer);
  }
  if (!model.graph) {
    model.embeddings.reset();
  } else if (model.embeddings) {
    repair_tables(*model.embeddings);
  }
  if (model.graph) {
    model.graph->config_map_name = "config";
    if (!model.graph->key.ends_with(".json")) {
      model.graph->key = "graph.json";
    }
  }
}

void repair(crds::FineTuning& tuning) {
  if (tuning.method == crds::FineTuningMethod::kFull) {
    tuning = {.frozen_modules = std::move(tuning.frozen_modules), .frozen_layers = tuning.frozen_layers};
    return;
  }
  tuning.frozen_modules.clear();
  tuning.frozen_layers = 0;
  if (tuning.quantization != crds::Quantization::kNF4 && tuning.quantization != crds::Quantization::kFP4) {
    tuning.double_quantization = false;
  }
}

void repair(crds::TrainingSpec& training) {
  if (training.fine_tuning) {
    repair(*training.fine_tuning);
  }
  const auto whole_parts = [&](std::int64_t size) {
    return std::max<std::int64_t>(1, size / training.gradient_accumulation) * training.gradient_accumulation;
  };
  if (training.global_batch_size > 0) {
    training.global_batch_size = std::min<std::int64_t>(whole_parts(training.global_batch_size), 1 << 30);
    training.batch_size_per_trainer = 0;
  } else {
    training.batch_size_per_trainer = whole_parts(training.batch_size_per_trainer);
  }
  if (training.global_batch_size == 0 ||
      training.max_gradient_accumulation < training.gradient_accumulation) {
    training.max_gradient_accumulation = 0;
  }
  training.grad_scaler = training.grad_scaler && training.precision == crds::Precision::kFP16Mixed;
  training.optimizer_in_backward =
      training.optimizer_in_backward && training.gradient_clipping != crds::GradientClipping::kNorm;
  if (training.last_batch_size > training.batch_size_per_trainer ||
      training.last_batch_size % training.gradient_accumulation != 0) {
    training.last_batch_size = 0;
  }
  if (training.activation_checkpointing != crds::ActivationCheckpointing::kPerModule) {
    training.checkpoint_modules.clear();
  } else if (training.checkpoint_modules.empty()) {
    training.checkpoint_modules = {"blocks.*"};
  }
  crds::Parallelism& ways = training.parallelism;
  if (!crds::shards_model(ways.strategy) || training.fine_tuning ||
      (crds::is_split(ways) && training.initialisation != crds::Initialisation::kMeta)) {
    training.initialisation = crds::Initialisation::kAuto;
  }
  if (ways.strategy != crds::ParallelStrategy::kFSDP && ways.strategy != crds::ParallelStrategy::kFSDP2) {
    ways.replicate = 1;
    ways.reduce_dtype = crds::ReduceDtype::kAuto;
  }
  if (training.precision != crds::Precision::kBF16Mixed &&
      training.precision != crds::Precision::kFP16Mixed) {
    ways.reduce_dtype = crds::ReduceDtype::kAuto;
  }
  if (!crds::is_zero(ways.strategy)) {
    ways.reduce_bucket_size = crds::kReduceBucketSize;
  }
  if (ways.offload != crds::Offload::kNone && !crds::can_offload(ways)) {
    ways.offload = crds::Offload::kNone;
  }
  if (!crds::can_offload_in_part(ways)) {
    ways.offload_percent = 100;
    ways.overlap_offload = false;
  }
  if (ways.tensor == 1) {
    ways.sequence = false;
    ways.split_columns.clear();
    ways.split_rows.clear();
  }
  if (ways.pipeline == 1) {
    ways.pipeline_chunks = 1;
    ways.stage_blocks.clear();
  }
}

void repair(crds::TrainingJobSpec& spec, Random& random) {
  spec.suspend = false;
  spec.managed_by.clear();
  repair(spec.model, random);
  repair(spec.training);
  crds::ProvisioningSpec& provisioning = spec.provisioning;
  provisioning.min_trainers = std::min(provisioning.min_trainers, provisioning.max_trainers);
  crds::Trainers& trainers = spec.trainers;
  trainers.replicas_given = true;
  trainers.gpu_model.clear();
  if (trainers.replicas > trainers.per_node) {
    trainers.replicas = trainers.replicas / trainers.per_node * trainers.per_node;
  }
  // Plays no part in the decision.
  spec.failure_policy = {};
}

}  // namespace

crds::TrainingJobSpec random_spec(Random& random) {
  crds::TrainingJobSpec spec;
  Mutator all(random, 0.3);
  describe(all, spec);
  repair(spec, random);
  return spec;
}

void mutate(crds::TrainingJobSpec& spec, Random& random) {
  // About 90 fields: now one, now a handful.
  static constexpr std::array<double, 3> kChances = {0.02, 0.05, 0.15};
  Mutator some(random, one_of(random, kChances));
  describe(some, spec);
  repair(spec, random);
}

crds::TrainingJobSpec crossed(const crds::TrainingJobSpec& one, const crds::TrainingJobSpec& other,
                              Random& random) {
  crds::TrainingJobSpec child = one;
  const auto from_other = [&] { return between(random, 0, 1) == 0; };
  if (from_other()) {
    child.training = other.training;
  }
  if (from_other()) {
    child.training.parallelism = other.training.parallelism;
  }
  if (from_other()) {
    child.provisioning = other.provisioning;
  }
  if (from_other()) {
    child.trainers = other.trainers;
  }
  repair(child, random);
  return child;
}

Json job_of(const crds::TrainingJobSpec& spec) {
  Json job;
  job["apiVersion"] = crds::kApiVersion;
  job["kind"] = "TrainingJob";
  job["metadata"]["name"] = "slowest";
  job["metadata"]["namespace"] = "ads";
  Writer writer(job["spec"]);
  describe(writer, spec);
  job["spec"]["template"]["spec"]["containers"][0]["name"] = "trainer";
  return job;
}

}  // namespace plimsoll::testing
