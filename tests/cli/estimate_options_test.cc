#include "cli/estimate_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/subcommands.h"
#include "tests/cli/temporary_file.h"

namespace plimsoll::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Options as they were given, and what reading them says.
class Given {
 public:
  explicit Given(const std::vector<std::string>& arguments) {
    po::store(po::command_line_parser(arguments).options(estimate_options()).run(), values_);
  }
  OptionReader& reader() { return reader_; }
  std::string error() const { return reader_.error() ? to_string(*reader_.error()) : ""; }

 private:
  po::variables_map values_;
  OptionReader reader_{values_};
};

std::string training_error(std::vector<std::string> more) {
  more.insert(more.end(), {"--batch-size", "12", "--optimizer", "Adam"});
  Given given(more);
  read_training(given.reader());
  return given.error();
}

TEST(ReadTraining, TakesWhatIsGivenAndFp32Else) {
  Given given({"--batch-size", "12", "--optimizer", "SGD", "--fused", "--accumulate", "4",
               "--checkpoint-module", "blocks.*", "--checkpoint-module", "head"});
  const crds::TrainingSpec training = read_training(given.reader());
  EXPECT_EQ(given.error(), "");
  EXPECT_EQ(training.batch_size_per_trainer, 12);
  EXPECT_EQ(training.optimizer, crds::Optimizer::kSGD);
  EXPECT_EQ(training.optimizer_implementation, crds::OptimizerImplementation::kFused);
  EXPECT_EQ(training.precision, crds::Precision::kFP32);
  EXPECT_EQ(training.gradient_accumulation, 4);
  EXPECT_EQ(training.activation_checkpointing, crds::ActivationCheckpointing::kPerModule);
  EXPECT_THAT(training.checkpoint_modules, ElementsAre("blocks.*", "head"));
}

TEST(ReadTraining, NeedsABatchAndAnOptimizer) {
  Given given({"--batch-size", "12"});
  read_training(given.reader());
  EXPECT_THAT(given.error(), HasSubstr("--optimizer NAME"));
}

TEST(ReadTraining, WhatExcludesEachOtherIsAnError) {
  EXPECT_THAT(training_error({"--foreach", "--single-tensor"}), HasSubstr("exclude each other"));
  EXPECT_THAT(training_error({"--checkpoint", "Full", "--checkpoint-module", "a"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(training_error({"--accumulate", "2", "--microbatches", "2"}), HasSubstr("exclude each other"));
  EXPECT_THAT(training_error({"--checkpoint", "PerModule"}), HasSubstr("--checkpoint-module"));
}

TEST(ReadTraining, PartsDivideTheBatch) {
  EXPECT_EQ(training_error({"--microbatches", "3"}), "");
  EXPECT_THAT(training_error({"--accumulate", "5"}), HasSubstr("--accumulate must divide the batch of 12"));
  EXPECT_NE(training_error({"--accumulate", "24"}), "");
}

TEST(ReadGpu, IsFoundByItsNameOrItsProductLabel) {
  const estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  const auto found = [&](const std::vector<std::string>& arguments) {
    Given given(arguments);
    const estimator::GpuModel* model = read_gpu(given.reader(), catalog, kDefaultGpu);
    return model == nullptr ? given.error() : model->name;
  };
  EXPECT_EQ(found({}), "A100-80GB");
  EXPECT_EQ(found({"--gpu", "T4"}), "T4");
  EXPECT_EQ(found({"--gpu", "NVIDIA-A100-SXM4-80GB"}), "A100-80GB");
  EXPECT_THAT(found({"--gpu", "Z9"}), HasSubstr("unknown GPU model \"Z9\"; known are A10, A100-40GB"));
  EXPECT_THAT(found({"--gpu", "Z9"}), HasSubstr(" more"));
  EXPECT_THAT(found({"--gpu", "A100-80BG"}), HasSubstr("did you mean A100-80GB?"));
}

TEST(ReadRequest, WhatIsNotGivenStaysAsItIs) {
  estimator::EstimateRequest request;
  request.trainers = 7;
  request.device = estimator::Device::kCpu;
  Given nothing({});
  read_request(nothing.reader(), request);
  EXPECT_EQ(nothing.error(), "");
  EXPECT_EQ(request.trainers, 7);
  EXPECT_EQ(request.device, estimator::Device::kCpu);
  EXPECT_EQ(request.method, estimator::Method::kPlimsoll);
  Given all({"--trainers", "8", "--device", "cuda", "--method", "amp"});
  read_request(all.reader(), request);
  EXPECT_EQ(request.trainers, 8);
  EXPECT_EQ(request.device, estimator::Device::kCuda);
  EXPECT_EQ(request.method, estimator::Method::kAmp);
  Given wrong({"--alloc-conf", "max_split_size_mb:none"});
  read_request(wrong.reader(), request);
  EXPECT_THAT(wrong.error(), HasSubstr("--alloc-conf"));
}

TEST(OptionsOfModels, GoWithNoJob) {
  Given fine({"-f", "job.yaml", "--gpu", "T4", "--trainers", "8"});
  refuse_options_of_models(fine.reader());
  EXPECT_EQ(fine.error(), "");
  Given graph({"-f", "job.yaml", "--batch-size", "8"});
  refuse_options_of_models(graph.reader());
  EXPECT_THAT(graph.error(),
              HasSubstr("--batch-size goes with --graph and --config; a job has it in its spec"));
  Given config({"-f", "job.yaml", "--expert", "8"});
  refuse_options_of_models(config.reader());
  EXPECT_THAT(config.error(), HasSubstr("--expert goes with --config;"));
}

class JobOfConfig : public ::testing::Test {
 protected:
  crds::TrainingJob read(std::vector<std::string> arguments, const std::string& content = "{}") {
    const testing::TemporaryFile config(content);
    arguments.insert(arguments.end(),
                     {"--config", config.path(), "--batch-size", "8", "--optimizer", "Adam"});
    Given given(arguments);
    std::istringstream in;
    std::ostringstream out;
    Console console{in, out, out};
    crds::TrainingJob job = job_of_config(given.reader(), console);
    error_ = given.error();
    return job;
  }

  std::string error_;
};

TEST_F(JobOfConfig, HasTheFilesTextAndTheOptions) {
  const crds::TrainingJob job =
      read({"--sequence-length", "128", "--tensor", "2", "--sequence-parallel", "--attention", "Eager"},
           R"({"model_type": "llama"})");
  EXPECT_EQ(error_, "");
  ASSERT_TRUE(job.spec.model.transformer);
  EXPECT_EQ(job.spec.model.transformer->config, R"({"model_type": "llama"})");
  EXPECT_EQ(job.spec.model.transformer->sequence_length, 128);
  EXPECT_EQ(job.spec.training.batch_size_per_trainer, 8);
  EXPECT_EQ(job.spec.training.parallelism.tensor, 2);
  EXPECT_TRUE(job.spec.training.parallelism.sequence);
  EXPECT_EQ(job.spec.training.parallelism.pipeline, 1);
}

TEST_F(JobOfConfig, RefusesWhatIsForGraphsOrMissing) {
  read({});
  EXPECT_THAT(error_, HasSubstr("--sequence-length S"));
  read({"--sequence-length", "128", "--split-rows", "out"});
  EXPECT_THAT(error_, HasSubstr("--split-rows is for --graph"));
  read({"--sequence-length", "128", "-f", "job.yaml"});
  EXPECT_THAT(error_, HasSubstr("exclude each other"));
}

// They were read, and changed nothing.
TEST_F(JobOfConfig, AnOptionWithoutEffectIsRefusedByName) {
  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--sequence-length", "128"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    read(arguments);
    return error_;
  };
  EXPECT_THAT(refused({"--sequence-parallel"}), HasSubstr("--sequence-parallel goes with --tensor"));
  EXPECT_THAT(refused({"--pipeline-chunks", "2"}), HasSubstr("--pipeline-chunks goes with --pipeline"));
  EXPECT_THAT(refused({"--microbatches", "1"}), HasSubstr("--microbatches goes with --pipeline"));
  EXPECT_THAT(refused({"--no-reshard-after-forward"}), HasSubstr("goes with --parallelism FSDP or FSDP2"));
  EXPECT_THAT(refused({"--initialisation", "GPU"}),
              HasSubstr("--initialisation goes with --parallelism FSDP"));
  EXPECT_THAT(refused({"--initialisation", "CPU", "--parallelism", "FSDP2", "--tensor", "2"}),
              HasSubstr("initialisation CPU and GPU need tensor, pipeline and expert of 1"));
  EXPECT_THAT(refused({"--reduce-dtype", "Half"}), HasSubstr("goes with --parallelism FSDP or FSDP2"));
  EXPECT_THAT(refused({"--reduce-dtype", "Half", "--parallelism", "FSDP2", "--precision", "BF16"}),
              HasSubstr("reduceDtype needs precision BF16Mixed or FP16Mixed"));
  EXPECT_THAT(refused({"--gradient-as-bucket-view", "--parallelism", "FSDP2"}),
              HasSubstr("goes with --parallelism DDP"));
}

// The API's limit of the same text is 64 KiB.
TEST_F(JobOfConfig, AFileLargerThanAnyConfigIsRefused) {
  const std::string config = "{\"model_type\": \"gpt2\"}";
  read({"--sequence-length", "128"}, config + std::string(65'536 - config.size(), ' '));
  EXPECT_EQ(error_, "");
  read({"--sequence-length", "128"}, config + std::string(65'537 - config.size(), ' '));
  EXPECT_THAT(error_, HasSubstr("larger than any config.json"));
}

}  // namespace
}  // namespace plimsoll::cli
