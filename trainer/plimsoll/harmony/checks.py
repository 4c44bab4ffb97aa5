"""Whether a plan is one of this model, before anything is trained. Pure."""

import torch

from .plan import PlanError


def moved_bytes(tensor, precision):
    """What a tensor takes on its way to a GPU: in `precision`, if one is given and it has numbers with a fraction."""
    width = torch.finfo(precision).bits // 8 if precision is not None and tensor.is_floating_point() else tensor.element_size()
    return tensor.numel() * width


def users_of(parameters):
    """Of each parameter the layers that have it. `parameters`: of each layer."""
    users = {}
    for layer, held in enumerate(parameters):
        for parameter in held:
            users.setdefault(parameter, []).append(layer)
    return users


def check_model(plan, parameters, precision=None):
    """Refuses a model of other layers than the plan's, a plan of which a task's weights and gradients alone exceed a GPU, with those of
    the layers that stay on it, and one that keeps a layer there whose parameters are other layers', too. `parameters`: of each layer,
    by name."""
    if len(parameters) != plan.layers:
        raise PlanError(f"the plan is of {plan.layers} layers, and the model has {len(parameters)}")
    weights = [sum(moved_bytes(tensor, precision) for tensor in layer.values()) for layer in parameters]
    gradients = [sum(moved_bytes(tensor, precision) for tensor in layer.values() if tensor.requires_grad) for layer in parameters]
    computed = f" computed in {precision}" if precision is not None else ""
    for layer, (planned, here) in enumerate(zip(plan.weight_bytes or (), weights)):
        if planned != here:
            raise PlanError(f"layer {layer}: the plan's has {planned} bytes of parameters, and the model's {here}{computed}: "
                            "make the plan from a profile of this model")
    users = users_of(layer.values() for layer in parameters)
    for layer in plan.resident:
        for name, parameter in parameters[layer].items():
            others = [user for user in users[parameter] if user != layer]
            if others:
                raise PlanError(f"layer {layer} shares {name} with layer {others[0]}, and so cannot be resident")
    homes = plan.homes()
    for task in plan.tasks() if plan.device_bytes is not None else ():
        stay = [layer for layer, device in homes.items() if device == task.device]
        least = sum(weights[layer] for layer in {*task.layers(), *stay})
        least += sum(gradients[layer] for layer in {*(() if task.forward else task.layers()), *stay})
        if least > plan.device_bytes:
            what = "weights" if task.forward and not stay else "weights and gradients"
            others = ", ".join(str(layer) for layer in stay if layer not in task.layers())
            beside = f", and the resident layers {others}," if others else ""
            raise PlanError(f"layers {task.first} to {task.end - 1}{beside} are on a GPU together and have {least} bytes of {what}"
                            f"{computed}: deviceBytes is {plan.device_bytes}")
