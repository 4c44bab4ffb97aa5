"""Autograd's backward pass for devices that do not exist.

When the machine has no GPU, PyTorch's engine refuses to run nodes whose tensors claim to be on one: it has no thread for that
device. `backward` does what the engine does (torch/csrc/autograd/engine.cpp, input_buffer.cpp and
functions/accumulate_grad.h): a node runs once all its gradients have arrived, the last created node first; a gradient is
reduced to the shape that its receiver expects; a node's saved tensors are freed when it has run; a leaf takes its gradient
over, or a copy of it. Hooks on tensors and modules' backward hooks do not run. Needs torch 2.4 or newer, whose nodes have the
metadata of their inputs.
"""

import heapq
import sys

import torch

from .worlds import replaced

_ACCUMULATE = "torch::autograd::AccumulateGrad"


def works_here():
    """Whether this PyTorch's nodes can be called one by one."""
    probe = torch.zeros((), requires_grad=True) * 2
    return hasattr(probe.grad_fn, "_input_metadata") and hasattr(probe.grad_fn, "_sequence_nr")


def _dense(tensor):
    return torch.ops.aten.is_non_overlapping_and_dense.default(tensor)


def _is_leaf(node):
    return node.name() == _ACCUMULATE


def _order(node, count):
    """Leaves first, then the youngest (ReadyQueue of the engine)."""
    return (0, count) if _is_leaf(node) else (1, -node._sequence_nr(), count)


def _waiting_for(root):
    """Node -> how many gradients will come to it."""
    awaited, stack = {root: 0}, [root]
    while stack:
        for function, _ in stack.pop().next_functions:
            if function is not None:
                if function not in awaited:
                    awaited[function] = 0
                    stack.append(function)
                awaited[function] += 1
    return awaited


def _edges_of_results(node, results):
    """(edge, gradient) pairs of a user's autograd.Function, whose backward also returns values for inputs that are not tensors."""
    edges = [edge for edge in node.next_functions if edge[0] is not None]
    wanted = [gradient for gradient, needed in zip(results, node.needs_input_grad) if needed]
    return list(zip(edges, wanted))


def _call_user_function(node, gradients):
    if getattr(node, "materialize_grads", True):
        for index, expected in enumerate(node._input_metadata):
            if gradients[index] is None:
                gradients[index] = torch.zeros(expected.shape, dtype=expected.dtype, device=expected.device)
    results = node.apply(*gradients)
    return _edges_of_results(node, results if isinstance(results, tuple) else (results,))


def _call(node, gradients):
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return _call_user_function(node, gradients)
    results = node(*gradients)
    return list(zip(node.next_functions, results if isinstance(results, tuple) else (results,)))


def _as_expected(gradient, expected):
    """validate_outputs of the engine: the shape and type of what the gradient is for."""
    if gradient.layout is not torch.strided:
        return gradient
    shape = expected.shape
    if gradient.shape != shape and tuple(gradient.shape) != tuple(shape):
        gradient = gradient.sum_to_size(tuple(shape))
    if gradient.dtype != expected.dtype:
        gradient = gradient.to(expected.dtype)
    return gradient


def _expect(results):
    """Each result as its receiver expects it; None where there is no receiver."""
    with torch._C.DisableTorchFunction():  # as the engine, whose work a default device does not see
        for index, ((node, place), gradient) in enumerate(results):
            if gradient is not None:
                results[index] = ((node, place), None if node is None else _as_expected(gradient, node._input_metadata[place]))


def _obeys_layout(gradient, leaf):
    if not _dense(leaf):
        return gradient.is_contiguous()
    return all(a == b or size == 1 for a, b, size in zip(gradient.stride(), leaf.stride(), leaf.shape))


def _accumulate(leaf, gradients):
    """AccumulateGrad::apply. `gradients` is a list of one, the only reference to it where the engine's would be."""
    with torch._C.DisableTorchFunction():
        _accumulate_into(leaf, gradients)


def _accumulate_into(leaf, gradients):
    gradient = gradients.pop()
    if leaf.grad is not None:
        leaf.grad += gradient
        return
    alone = sys.getrefcount(gradient) <= 2  # the local name and getrefcount's argument
    if gradient.layout is not torch.strided or (alone and _obeys_layout(gradient, leaf)):
        leaf.grad = gradient.detach()
    elif _dense(leaf):
        leaf.grad = gradient.new_empty_strided(leaf.shape, leaf.stride()).copy_(gradient)
    else:
        leaf.grad = gradient.clone(memory_format=torch.contiguous_format)


def _receive(buffers, edge, gradient):
    node, place = edge
    buffer = buffers.setdefault(node, {})
    if place in buffer:
        buffer[place] = buffer.pop(place) + gradient
    else:
        buffer[place] = gradient


def backward(root, recorder, gradient=None):
    """`root.backward(gradient)`. Calls `recorder.end_of_node()` when a node's saved tensors may be freed."""
    with torch.no_grad():
        gradient = torch.ones_like(root, memory_format=torch.preserve_format) if gradient is None else gradient
        start = (root.grad_fn, root.output_nr)
        awaited = _waiting_for(start[0])
        buffers = {start[0]: {start[1]: gradient}}
        ready = [(_order(start[0], 0), start[0])]
        count = 1
        while ready:
            _, node = heapq.heappop(ready)
            buffer = buffers.pop(node, {})
            edges = node.next_functions
            if not buffer:
                results = []  # without gradients it has no results, but its successors must no longer wait for it
            elif _is_leaf(node):
                _accumulate(node.variable, list(buffer.popitem()[1:]))
                continue
            else:
                gradients = [buffer.pop(place, None) for place in range(len(node._input_metadata))]
                results = _call(node, gradients)
                del gradients
                _expect(results)
            recorder.end_of_node()
            results.reverse()
            while results:
                edge, result = results.pop()
                if result is not None:
                    _receive(buffers, edge, result)
                del result
            for function, _ in edges:
                if function is None:
                    continue
                awaited[function] -= 1
                if awaited[function] == 0:
                    heapq.heappush(ready, (_order(function, count), function))
                    count += 1


_GRAPH_TASK = 1 << 20  # a number that the engine's own count of backward passes will not reach


def in_place_of_autograds(recorder):
    """What checkpointing needs of the engine within backward: torch.autograd.backward (the re-entrant kind) is ours, and the
    pass has a number (the other kind recomputes once a pass)."""

    def nested(tensors, grad_tensors=None, *args, **kwargs):
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = [grad_tensors] if grad_tensors is None or isinstance(grad_tensors, torch.Tensor) else list(grad_tensors)
        if len(tensors) != 1:
            raise NotImplementedError("backward from several tensors at once, for a device that does not exist")
        backward(tensors[0], recorder, given[0])

    return replaced((torch.autograd, "backward", nested), (torch._C, "_current_graph_task_id", lambda: _GRAPH_TASK))
