"""Whether a plan is one of this model, before anything is trained. Pure."""

import torch

from .plan import PlanError


def moved_bytes(tensor, precision):
    """What a tensor takes on its way to a GPU: in `precision`, if one is given and it has numbers with a fraction."""
    width = torch.finfo(precision).bits // 8 if precision is not None and tensor.is_floating_point() else tensor.element_size()
    return tensor.numel() * width


def check_model(plan, parameters, precision=None):
    """Refuses a model of other layers than the plan's, and a plan of which a task's weights and gradients alone exceed a GPU.
    `parameters`: of each layer, by name."""
    if len(parameters) != plan.layers:
        raise PlanError(f"the plan is of {plan.layers} layers, and the model has {len(parameters)}")
    weights = [sum(moved_bytes(tensor, precision) for tensor in layer.values()) for layer in parameters]
    gradients = [sum(moved_bytes(tensor, precision) for tensor in layer.values() if tensor.requires_grad) for layer in parameters]
    computed = f" computed in {precision}" if precision is not None else ""
    for layer, (planned, here) in enumerate(zip(plan.weight_bytes or (), weights)):
        if planned != here:
            raise PlanError(f"layer {layer}: the plan's has {planned} bytes of parameters, and the model's {here}{computed}: "
                            "make the plan from a profile of this model")
    for task in plan.tasks():
        least = sum(weights[layer] + (0 if task.forward else gradients[layer]) for layer in task.layers())
        if plan.device_bytes is not None and least > plan.device_bytes:
            what = "weights" if task.forward else "weights and gradients"
            raise PlanError(f"layers {task.first} to {task.end - 1} are on a GPU together and have {least} bytes of {what}{computed}: "
                            f"deviceBytes is {plan.device_bytes}")
