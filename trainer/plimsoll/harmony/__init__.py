"""Training of models that exceed the GPUs' memory, by a plan of `plimsoll swap` (Harmony, HotOS'21)."""

from .devices import CudaDevice, DeviceOutOfMemory, VirtualDevice
from .executor import Trainer, seeded
from .layers import NoLayers, layers_of
from .plan import Plan, PlanError, Volumes, volumes

__all__ = ["CudaDevice", "DeviceOutOfMemory", "NoLayers", "Plan", "PlanError", "Trainer", "VirtualDevice", "Volumes", "layers_of",
           "seeded", "volumes"]
