#include "workloads/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml.h"

namespace plimsoll::workloads {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr JobSize kNow{.pods = 4, .gpus_per_pod = 8};
constexpr JobSize kNext{.pods = 2, .gpus_per_pod = 4};

Json container(const std::string& yaml) {
  return parse_yaml_documents(yaml)->front();
}

struct Line {
  const char* container;
  const char* pointer;
  const char* next;
};

// The forms of public examples: pytorch/examples (torchrun), huggingface/accelerate and microsoft/DeepSpeedExamples (launchers),
// Lightning's and NeMo's overrides, verl's, kubeflow/mpi-operator (mpirun).
const Line kLines[] = {
    {"command: [torchrun, --nproc_per_node=8, --nnodes=4, train.py]", "/command/1", "--nproc_per_node=4"},
    {"command: [torchrun, --nproc_per_node=8, --nnodes=4, train.py]", "/command/2", "--nnodes=2"},
    {"args: [--nproc-per-node, '8', train.py]", "/args/1", "4"},
    {"command: [bash, -c, 'torchrun --nnodes 4 --nproc-per-node 8 --rdzv-id 8 train.py --epochs 8']",
     "/command/2", "torchrun --nnodes 2 --nproc-per-node 4 --rdzv-id 8 train.py --epochs 8"},
    {"command: [sh, -c, \"accelerate launch --num_processes 32 --num_machines 4 \\\\\\n  train.py\"]",
     "/command/2", "accelerate launch --num_processes 8 --num_machines 2 \\\n  train.py"},
    {"command: [deepspeed, --num_gpus=8, --num_nodes=4, train.py]", "/command/1", "--num_gpus=4"},
    {"args: [trainer.devices=8, trainer.num_nodes=4]", "/args/1", "trainer.num_nodes=2"},
    {"args: [trainer.n_gpus_per_node=8, trainer.nnodes=4]", "/args/0", "trainer.n_gpus_per_node=4"},
    {"command: [mpirun, -np, '32', -bind-to, none, python, train.py]", "/command/2", "8"},
    {"command: [bash, -c, 'WORLD_SIZE=32 python train.py']", "/command/2", "WORLD_SIZE=8 python train.py"},
    {"env: [{name: A, value: '32'}, {name: WORLD_SIZE, value: '32'}]", "/env/1/value", "8"},
    {"env: [{name: PET_NPROC_PER_NODE, value: '8'}]", "/env/0/value", "4"},
};

TEST(SizeMentions, OfPublicCommandLinesAreRewritten) {
  for (const Line& line : kLines) {
    SCOPED_TRACE(line.container);
    const Json json = container(line.container);
    const SizeMentions mentions = find_mentions(json, kNow);
    EXPECT_THAT(mentions.uncertain, IsEmpty());
    const auto texts = rewritten(json, mentions, kNext);
    const auto found = std::find_if(texts.begin(), texts.end(),
                                    [&](const auto& each) { return each.first == line.pointer; });
    ASSERT_NE(found, texts.end());
    EXPECT_EQ(found->second, line.next);
    EXPECT_THAT(rewritten(json, mentions, kNow), IsEmpty());
  }
}

TEST(SizeMentions, WhatTheLauncherFindsByItselfStays) {
  for (const char* text : {
           "command: [torchrun, --nproc-per-node=auto, --nnodes=$(PET_NNODES), train.py]",
           "command: [torchrun, --nproc-per-node, gpu, train.py]",
           "command: [bash, -c, 'torchrun --nnodes=$NNODES --nproc_per_node=${GPUS:-8} train.py']",
           "env: [{name: WORLD_SIZE, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
           "command: [python, train.py, -n, '3']",
           "command: [python, train.py, --num-workers, '3']",
       }) {
    const SizeMentions mentions = find_mentions(container(text), kNow);
    EXPECT_THAT(mentions.uncertain, IsEmpty()) << text;
    EXPECT_THAT(mentions.list, IsEmpty()) << text;
  }
}

TEST(SizeMentions, AnotherValueThanTheJobsIsNotCertain) {
  EXPECT_THAT(find_mentions(container("command: [torchrun, --nnodes=1:4, train.py]"), kNow).uncertain,
              HasSubstr("--nnodes is 1:4, where the job has 4 pods"));
  EXPECT_THAT(find_mentions(container("args: [--nproc_per_node, '2']"), kNow).uncertain,
              HasSubstr("--nproc_per_node is 2, where the job has 8 GPUs a pod"));
  EXPECT_THAT(find_mentions(container("env: [{name: WORLD_SIZE, value: '64'}]"), kNow).uncertain,
              HasSubstr("WORLD_SIZE is 64"));
  // The environment's text would have to change with the size, and what it means elsewhere is not known.
  EXPECT_THAT(
      find_mentions(container("{args: [--nnodes=$COUNT], env: [{name: COUNT, value: '4'}]}"), kNow).uncertain,
      HasSubstr("--nnodes is $COUNT"));
}

TEST(SizeMentions, SeveralInOneTextKeepWhatIsBetweenThem) {
  const Json json = container("args: ['--nnodes=4 --nnodes=4 4 --nproc-per-node=8;']");
  EXPECT_THAT(rewritten(json, find_mentions(json, kNow), {.pods = 16, .gpus_per_pod = 8}),
              ElementsAre(Pair("/args/0", "--nnodes=16 --nnodes=16 4 --nproc-per-node=8;")));
}

TEST(SizeMentions, AnyShapeIsReadWithoutHarm) {
  for (const char* text :
       {"[]", "7", "{command: text, args: {a: 1}, env: [1, {}, {name: 2}]}", "{args: [--nnodes]}",
        "{args: ['$(', '\"', '--nnodes=', '=']}", "{args: [1, null, []]}"}) {
    const Json json = container(text);
    const SizeMentions mentions = find_mentions(json, kNow);
    EXPECT_THAT(rewritten(json, mentions, kNext), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace plimsoll::workloads
