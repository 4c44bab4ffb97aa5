"""Takes embedding tables out of a model, so that its recording is the dense part's alone.

torchrec spreads tables over all trainers, and `plimsoll` places them itself (docs/sharding.md). What a trainer's dense part gets
from them is the result of an exchange: pooled rows of its own batch, or the rows of its sequences. So the forward of each
collection is replaced by one operator, `plimsoll::lookup`, which makes that result; its gradient ends there, for the tables are
updated inside backward. The collections are torchrec's EmbeddingBagCollection and EmbeddingCollection, and nn.EmbeddingBag.
Tables are described as docs/graph.md says. For a dense part alone, inputs that require a gradient may be results of lookups:
of tables that the user names.
"""

import math
import sys

import torch

_LIBRARY = torch.library.Library("plimsoll", "DEF")
_LIBRARY.define("lookup(Tensor anchor, Tensor[] indices, int rows, int columns, int width, bool pooled, ScalarType dtype) -> Tensor")
_LIBRARY.define("lookup_backward(Tensor(a!) gradient, bool pooled) -> ()")
BAGS, INPUTS = "bags", "inputs"  # what is looked up, beside torchrec's collections
COLLECTIONS = frozenset([BAGS])
_DTYPES = {torch.float32: "FP32", torch.float16: "FP16", torch.bfloat16: "BF16", torch.int8: "Int8", torch.uint8: "Int8"}


def _lookup(anchor, indices, rows, columns, width, pooled, dtype):
    if anchor.device.type == "meta":
        return torch.empty(rows, width, dtype=dtype, device="meta")
    return torch.randn(rows, width, device=anchor.device).to(dtype)


_LIBRARY.impl("lookup", _lookup, "CompositeExplicitAutograd")
_LIBRARY.impl("lookup_backward", lambda gradient, pooled: None, "CompositeExplicitAutograd")


class _Lookup(torch.autograd.Function):
    """The operator as a node of autograd: `anchor` requires a gradient, and never gets one."""

    @staticmethod
    def forward(ctx, anchor, indices, *sizes):
        ctx.pooled = sizes[-2]
        return torch.ops.plimsoll.lookup.default(anchor, indices, *sizes)

    @staticmethod
    def backward(ctx, gradient):
        # torchrec sends contiguous gradients: All2All_Pooled_Wait, ReduceScatterBase_Wait (distributed/comm_ops.py).
        torch.ops.plimsoll.lookup_backward.default(gradient.contiguous(), ctx.pooled)
        return (None,) * 7


def _torchrec(name):
    module = sys.modules.get("torchrec.modules.embedding_modules")
    return getattr(module, name, ()) if module else ()


class Tables:
    """The tables that were taken out of a model, and what one iteration looked up in them."""

    def __init__(self, anchor, inputs):
        self.anchor = anchor  # on the device of the model
        self._inputs = inputs
        self.dtype = torch.float32  # of the results: torchrec's default, whatever the tables have
        self.counting = True  # until backward, where checkpointing may run a lookup again
        self.notes = []
        self._tables = {}  # name -> its description

    def add(self, name, module, rows, dim, dtype, pooling):
        if name in self._tables:  # two collections may give one name to different tables
            name = f"{module}.{name}"
        self._tables[name] = {"name": name, "module": module, "rows": rows, "dim": dim, "dtype": _DTYPES.get(dtype, "FP32"),
                              "pooling": pooling, "features": [], "lookups": 0, "samples": 0}
        return name

    def count(self, name, features, samples, lookups):
        """One call looked up `lookups` rows for these features of so many samples."""
        if self.counting:
            table = self._tables[name]
            table["features"] += features
            table["samples"] += samples * len(features)
            table["lookups"] += lookups

    def result(self, indices, rows, columns, width, pooled, dtype=None):
        return _Lookup.apply(self.anchor, [tensor for tensor in indices if tensor is not None], rows, columns, width, pooled,
                             dtype or self.dtype)

    def are_made_of(self, tensor):
        """Whether an input of the model is a result of lookups."""
        return self._inputs and tensor.requires_grad and tensor.is_floating_point()

    def looked_up(self, tensor):
        """Such an input as its lookup makes it; others as they are."""
        if not self.are_made_of(tensor):
            return tensor
        width = tensor.shape[-1] if tensor.dim() else 1
        made = self.result((), tensor.numel() // max(1, width), width, width, tensor.dim() == 2, tensor.dtype)
        return made if tensor.dim() == 2 else made.view(tensor.shape)

    def described(self):
        """Of docs/graph.md. Tables that nothing looked up are left out, and a note names them."""
        described = []
        for table in self._tables.values():
            if not table["features"]:
                self.notes.append(f"table {table['name']} was not looked up: it is not counted")
                continue
            entry = {key: table[key] for key in ("name", "module", "rows", "dim", "dtype", "pooling", "features")}
            entry["poolingFactor"] = round(table["lookups"] / max(1, table["samples"]), 6)
            if table["pooling"] == "none":
                entry["sequenceLength"] = max(1, math.ceil(entry["poolingFactor"]))
            described.append(entry)
        return described


def _lengths_per_key(features):
    """Rows that each feature looks up; an equal share of all where that is not known."""
    try:
        return dict(zip(features.keys(), features.length_per_key()))
    except Exception:
        return dict.fromkeys(features.keys(), features.values().numel() / max(1, len(features.keys())))


def _features_of(module, given):
    convert = sys.modules["torchrec.modules.embedding_modules"].maybe_td_to_kjt
    return convert(given, None)


def _take_bag_collection(tables, path, module):
    names = [tables.add(config.name, path, config.num_embeddings, config.embedding_dim,
                        module.embedding_bags[config.name].weight.dtype, str(config.pooling.value).lower())
             for config in module.embedding_bag_configs()]
    configs = list(zip(names, module.embedding_bag_configs()))
    module._modules.clear()

    def forward(features):
        features = _features_of(module, features)
        batch, lengths = features.stride(), _lengths_per_key(features)
        for name, config in configs:
            tables.count(name, config.feature_names, batch, sum(lengths[feature] for feature in config.feature_names))
        width = sum(module._lengths_per_embedding)
        values = tables.result((features.values(), features.lengths(), features.weights_or_none()), batch, width, width, True)
        keyed = sys.modules["torchrec.sparse.jagged_tensor"].KeyedTensor
        return keyed(keys=module._embedding_names, length_per_key=module._lengths_per_embedding, values=values)

    module.forward = forward


def _take_collection(tables, path, module):
    configs = []
    for config, embeddings in zip(module.embedding_configs(), module.embedding_names_by_table()):
        name = tables.add(config.name, path, config.num_embeddings, config.embedding_dim,
                          module.embeddings[config.name].weight.dtype, "none")
        configs.append((name, config, embeddings))
    module._modules.clear()

    def forward(features):
        features = _features_of(module, features)
        batch, rows, results = features.stride(), [], []
        for name, config, embeddings in configs:
            for feature, embedding in zip(config.feature_names, embeddings):
                jagged = features[feature]
                rows.append(jagged.values().numel())
                results.append((embedding, jagged))
                tables.count(name, [feature], batch, rows[-1])
        width = module.embedding_dim()
        values = tables.result((features.values(), features.lengths()), sum(rows), width * len(rows), width, False)
        jagged_tensor = sys.modules["torchrec.sparse.jagged_tensor"].JaggedTensor
        return {embedding: jagged_tensor(values=part, lengths=jagged.lengths(),
                                         weights=jagged.values() if module.need_indices() else None)
                for (embedding, jagged), part in zip(results, values.split(rows))}

    module.forward = forward


def _take_bag(tables, name, path, module):
    def forward(input, offsets=None, per_sample_weights=None):
        bags = input.size(0) if input.dim() == 2 else offsets.numel() - int(module.include_last_offset)
        tables.count(name, [path], bags, input.numel())
        if per_sample_weights is not None and per_sample_weights.requires_grad:
            tables.notes.append(f"{path}: the gradient of its per_sample_weights is not recorded")
        width = module.embedding_dim
        return tables.result((input, offsets, per_sample_weights), bags, width, width, True)

    module.forward = forward


def _owners(model):
    """Ids of parameters -> the modules that hold them."""
    owners = {}
    for module in model.modules():
        for tensor in module._parameters.values():
            if tensor is not None:
                owners.setdefault(id(tensor), []).append(module)
    return owners


def take_out(model, device, lookups_of):
    """Replaces the embedding collections of a model, and its nn.EmbeddingBags where `lookups_of` has them. The Tables it had."""
    tables = Tables(torch.empty(0, device=device, requires_grad=True), INPUTS in lookups_of)
    for path, module in list(model.named_modules()):
        if isinstance(module, _torchrec("EmbeddingBagCollection")):
            _take_bag_collection(tables, path, module)
        elif isinstance(module, _torchrec("EmbeddingCollection")):
            _take_collection(tables, path, module)
    if BAGS in lookups_of:
        _take_bags(tables, model)
    return tables


def _take_bags(tables, model):
    owners, names = _owners(model), {}  # id of a weight -> the name of its table
    found = [(path, module) for path, module in model.named_modules() if isinstance(module, torch.nn.EmbeddingBag)]
    for path, module in found:
        weight = module.weight
        if not all(isinstance(owner, torch.nn.EmbeddingBag) for owner in owners[id(weight)]):
            tables.notes.append(f"{path} stays a parameter of the dense part: other modules use its weight")
            continue
        if id(weight) not in names:
            names[id(weight)] = tables.add(path or "embeddings", path, *weight.shape, weight.dtype, module.mode)
        _take_bag(tables, names[id(weight)], path, module)
    for _, module in found:
        if id(module._parameters["weight"]) in names:
            module.register_parameter("weight", None)
