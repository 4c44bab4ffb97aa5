#!/usr/bin/env python3
"""What each rank of a Mixtral takes whose experts are shared by ranks: local processes over gloo (torch 2, transformers 5).

Prints tests/estimator/estimate/experts_torch2.yaml, to which the estimates of specs are held. The rows of tokens go to their
experts' ranks and back by all_to_all_single, as in torchtitan (distributed/expert_parallel.py: ExpertParallel): they are sorted
by expert before they are sent, and again on arrival, where each other rank's rows come sorted. FSDP2 shards the experts among
the ranks that hold the same ones, everything else among all (models/llama4/infra/parallelize.py: apply_fsdp). Each
expert is given as many rows (torchtitan's debug.moe_force_load_balance). The method is measure_parallel.py's.

    python3 measure_experts.py                   all cases
    python3 measure_experts.py 'experts 2x2'     one, with what lives at rank 0's peak on standard error
"""
import functools
import json

import measure_parallel  # (sets what gloo needs, and where measure is)
import measure
import parallel
import torch
from measure_meshes import optimizer_by_mesh
from torch import distributed, nn
from torch.distributed import _functional_collectives
from torch.distributed.fsdp import fully_shard

BATCH = 4
MIXTRAL = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 1000, "hidden_size": 256,
           "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 8,
           "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 512, "tie_word_embeddings": False}
measure_parallel.REPETITIONS = 2
# Name (efsdp x ep), ranks, ranks that share the experts, tokens: parameters decide, or activations.
CASES = [(f"experts {ranks // expert}x{expert}" + ", long" * (tokens > 16), ranks, expert, tokens)
         for ranks, expert in ((2, 2), (4, 2), (4, 4)) for tokens in (16, 512)]


class SharedExperts(nn.Module):
    """MixtralExperts of this rank, on the rows that all ranks send (transformers, integrations/moe.py: grouped_mm)."""

    def __init__(self, whole, group):
        super().__init__()
        self.group, self.ranks = group, distributed.get_world_size(group)
        self.experts = whole.num_experts // self.ranks
        self.gate_up_proj, self.down_proj = (nn.Parameter(weight.detach()[:self.experts].clone())
                                             for weight in (whole.gate_up_proj, whole.down_proj))
        self.act_fn = whole.act_fn

    def sent(self, rows):
        return _functional_collectives.all_to_all_single_autograd(rows, None, None, self.group)

    def forward(self, hidden_states, top_k_index, top_k_weights):
        from transformers.integrations.moe import _grouped_linear
        k = top_k_index.size(-1)
        _, order = torch.sort(top_k_index.reshape(-1))
        received = self.sent(hidden_states[order // k])
        of_expert = torch.arange(received.size(0)).view(self.ranks, self.experts, -1).transpose(0, 1).reshape(-1)
        rows = received[of_expert]
        ends = torch.arange(1, self.experts + 1, dtype=torch.int32) * (rows.size(0) // self.experts)
        gate, up = _grouped_linear(rows, self.gate_up_proj, ends).chunk(2, dim=-1)
        out = _grouped_linear(self.act_fn(gate) * up, self.down_proj, ends)
        back = self.sent(out[torch.argsort(of_expert)])
        weighted = (back * top_k_weights.reshape(-1)[order].unsqueeze(-1))[torch.argsort(order)]
        return weighted.view(-1, k, weighted.size(-1)).sum(dim=1)


class Mixtral(nn.Module):
    def __init__(self, group):
        super().__init__()
        from transformers import MixtralConfig, MixtralForCausalLM
        whole = MixtralForCausalLM(MixtralConfig(**MIXTRAL, attn_implementation="sdpa"))
        self.tokens, self.blocks, self.rotary = whole.model.embed_tokens, whole.model.layers, whole.model.rotary_emb
        self.norm, self.head = whole.model.norm, whole.lm_head
        for block in self.blocks:
            block.mlp.experts = SharedExperts(block.mlp.experts, group)
            block.mlp.gate.register_forward_hook(balanced)

    def forward(self, x):
        x = self.tokens(x)
        places = self.rotary(x, torch.arange(x.shape[1]).unsqueeze(0))
        for block in self.blocks:
            x = block(x, attention_mask=None, position_embeddings=places)
        return self.head(self.norm(x))


def balanced(_, __, routed):
    logits, weights, chosen = routed
    return logits, weights, torch.arange(chosen.numel()).view_as(chosen) % MIXTRAL["num_local_experts"]


def train(expert, tokens):
    ranks = distributed.get_world_size()
    over = distributed.init_device_mesh("cpu", (ranks,))
    mesh = distributed.init_device_mesh("cpu", (ranks // expert, expert), mesh_dim_names=("efsdp", "ep"))
    module = Mixtral(mesh.get_group("ep"))
    for block in module.blocks:
        fully_shard(block.mlp.experts, mesh=mesh["efsdp"])
    measure_parallel.fully_sharded(module, over)
    optimizer = optimizer_by_mesh(module)
    inputs = torch.zeros(BATCH, tokens, dtype=torch.int64)
    for _ in range(measure.ITERATIONS):
        measure.mark()
        optimizer.zero_grad(set_to_none=True)
        measure.mark()
        loss = parallel.next_token_loss(module(inputs), inputs)
        measure.mark()
        loss.backward()
        measure.mark()
        optimizer.step()
        del loss
    measure.mark()


def row_of(case, results):
    name, ranks, expert, tokens = case
    model = {"config": json.dumps(MIXTRAL), "seqLen": tokens, "attention": "SDPA"}
    training = {"batchSizePerTrainer": BATCH, **measure_parallel.optimizer_of_job(),
                "parallelism": {"strategy": "FSDP2", "expert": expert}}
    return {"case": name, "model": {"transformer": model}, "training": training, "trainers": ranks,
            "bytes": min(result["peakBytes"] for result in results)}  # ranks are equal; gloo frees late on some


def train_of(case):
    _, _, expert, tokens = case
    return functools.partial(train, expert, tokens)


if __name__ == "__main__":
    measure_parallel.print_rows_of_specs(__doc__, "measure_experts.py", CASES, ("mixtral", BATCH), train_of, row_of)
