"""plimsoll.harmony.CudaDevice on streams that are recorded instead of a GPU's: what goes where, and what waits for what.

Every operator runs at once, so that losses are those of the virtual devices. Not seen here: real asynchrony and real peer-to-peer.
"""

import contextlib
import io
import os
import threading
import types
import unittest
import unittest.mock

from needs_torch import torch
from plimsoll import harmony
from plimsoll.harmony import pinned_memory, rates
from plimsoll.metas import storage_of
from small_gpt import adam, gpt, loss_fn, losses_of, plan_of

CAPACITY = 1 << 30
SETTINGS = "PYTORCH_CUDA_ALLOC_CONF"


def address(tensor):
    """Of the storage that it is a part of."""
    return storage_of(tensor).data_ptr()


class Stream:
    """`seen`: how far of each stream what runs here comes after. A stream's own number counts what was put on it."""

    def __init__(self, index):
        self.seen = {self: 0}

    def work(self):
        self.seen[self] += 1

    def record_event(self):
        return types.SimpleNamespace(seen=dict(self.seen), synchronize=lambda: None)

    def wait_event(self, event):
        for stream, count in event.seen.items():
            self.seen[stream] = max(self.seen.get(stream, 0), count)

    def wait_stream(self, other):
        self.wait_event(other.record_event())


class Cards:
    """In place of torch.cuda. Remembers for each copy to a device the stream, and whether computing waits for it before it goes on."""

    def __init__(self, count):
        self.count, self.current, self.kept, self.pinned, self.fractions = count, [], [], set(), {}
        self.left = {}  # (storage, offset) of the host -> the stream that wrote it last, and how far that was

    @contextlib.contextmanager
    def stream(self, stream):
        self.current.append(stream)
        yield
        self.current.pop()

    @contextlib.contextmanager
    def installed(self):
        patch = unittest.mock.patch
        properties = types.SimpleNamespace(total_memory=CAPACITY)
        with contextlib.ExitStack() as stack:
            for owner, name, new in (
                    (torch.cuda, "device_count", lambda: self.count),
                    (torch.cuda, "Stream", Stream), (torch.cuda, "stream", self.stream),
                    (torch.cuda, "device", lambda index: contextlib.nullcontext()),
                    (torch.cuda, "get_device_properties", lambda index: properties),
                    (torch.cuda, "set_per_process_memory_fraction", lambda share, index: self.fractions.update({index: share})),
                    (torch.cuda, "cudart", lambda: self), (torch.cuda, "synchronize", lambda device: None),
                    (pinned_memory, "_SMALL", 1),
                    (torch.Tensor, "record_stream", lambda tensor, stream: None),
                    (torch.Tensor, "pin_memory", lambda tensor: self.pin(tensor)),
                    (torch.Tensor, "is_pinned", lambda tensor: address(tensor) in self.pinned)):
                stack.enter_context(patch.object(owner, name, new))
            yield

    def pin(self, tensor):
        copy = tensor.clone()
        self.kept.append(copy)  # so that no other tensor gets its address
        self.pinned.add(address(copy))
        return copy

    def cudaHostRegister(self, start, size, flags):
        self.pinned.add(start)
        return 0

    def cudaHostUnregister(self, start):
        self.pinned.remove(start)


class Recorded(harmony.CudaDevice):
    """Its tensors are the CPU's, and its copies are noted."""

    def __init__(self, index, cards, budget_bytes=None):
        super().__init__(index, budget_bytes)
        self.torch_device, self._cards = torch.device("cpu"), cards
        self.brought, self.missed = [], []

    def bring(self, tensor, kind):
        out, count = self._cards.left.get((address(tensor), tensor.storage_offset()), (None, 0))
        if kind in ("stash_in", "hand_over_in") and (out is None or self._data.seen.get(out, 0) < count):
            self.missed.append(f"{kind} before it is on the host")
        there = super().bring(tensor.clone(), kind)
        stream = self._weights if kind == "weights_in" else self._data
        stream.work()
        self.brought.append((kind, stream, address(tensor) in self._cards.pinned))
        return there

    def hand_to(self, other, tensor, kind):
        self._compute.work()
        there = super().hand_to(other, tensor.clone(), kind)
        if other._data.seen.get(self._compute, 0) < self._compute.seen[self._compute]:
            self.missed.append(kind)
        other._data.work()
        return there

    @contextlib.contextmanager
    def computing(self):
        with super().computing():
            arrived = self._compute.seen
            if arrived.get(self._data, 0) < self._data.seen[self._data]:
                self.missed.append("computes before its samples are there")
            yield
            self._compute.work()

    def take_back(self, tensor, into, kind):
        super().take_back(tensor, into, kind)
        self._out.work()
        self._cards.left[address(into), into.storage_offset()] = self._out, self._out.seen[self._out]
        if self._out.seen.get(self._compute, 0) < self._compute.seen[self._compute]:
            self.missed.append(f"{kind} leaves before it is computed")
        if kind != "resident_out" and into.dim() and address(into) not in self._cards.pinned:
            self.missed.append(f"{kind} goes to memory that is not pinned")


class CudaDevices(unittest.TestCase):
    def test_each_kind_of_tensor_has_its_stream_and_nothing_runs_before_what_it_needs(self):
        for mode, prefetch, p2p in (("vPP", False, True), ("vPP", True, True), ("vPP", True, False), ("vDP", False, True)):
            with self.subTest(f"{mode} {prefetch} {p2p}"):
                plan = plan_of(mode, 2, 2, 1, prefetch=prefetch, p2p=p2p)
                torch.manual_seed(2)
                with harmony.Trainer(gpt(), loss_fn, adam, plan) as trainer:
                    expected = losses_of(trainer, 2)
                cards = Cards(2)
                with cards.installed():
                    devices = [Recorded(index, cards) for index in range(2)]
                    torch.manual_seed(2)
                    with harmony.Trainer(gpt(), loss_fn, adam, plan, devices=devices) as trainer:
                        self.assertEqual(losses_of(trainer, 2), expected)
                for device in devices:
                    self.assertEqual(device.missed, [])
                    for kind, stream, pinned in device.brought:
                        self.assertIs(stream, device._weights if kind == "weights_in" else device._data, kind)
                        self.assertTrue(pinned or kind not in ("weights_in", "inputs_in"), f"{kind} is in pinned memory")

    def test_what_stays_is_used_once_it_is_there_and_updated_where_it_is_computed_with(self):
        cards, streams = Cards(2), {}

        class Adam(torch.optim.AdamW):
            def step(self):
                if threading.current_thread() is threading.main_thread():  # else it is a layer's on the host
                    streams.setdefault(self, []).append(cards.current[-1] if cards.current else None)
                super().step()

        packs = {"forward": [0, 2, 4, 6], "backward": [0, 2, 4, 6, 8]}
        for options in ({}, {"max_norm": 0.1}, {"precision": torch.bfloat16}):
            for prefetch in (False, True):
                with self.subTest(f"{options} {prefetch}"):
                    plan = plan_of("vPP", 2, prefetch=prefetch, packs=packs, mirrored=True, resident=[1, 2, 5, 9])
                    model = gpt()
                    torch.manual_seed(2)
                    with harmony.Trainer(model, loss_fn, adam, plan, **options) as trainer:
                        expected = losses_of(trainer, 2)
                    with cards.installed():
                        devices, mine = [Recorded(index, cards) for index in range(2)], gpt()
                        streams.clear()
                        torch.manual_seed(2)
                        with harmony.Trainer(mine, loss_fn, Adam, plan, devices=devices, **options) as trainer:
                            for optimizer in filter(None, trainer.optimizers):
                                optimizer.param_groups[0]["lr"] = 1e-3
                            self.assertEqual(losses_of(trainer, 2), expected)
                    for tensor, theirs in zip(mine.state_dict().values(), model.state_dict().values()):
                        self.assertTrue(torch.equal(tensor, theirs))
                    for layer, home in trainer.plan.homes().items():
                        self.assertEqual(streams[trainer.optimizers[layer]], [devices[home]._compute] * 2)
                    for device in devices:
                        self.assertEqual(device.missed, [])
                        self.assertGreater(device.moved["resident_in"], 0)
                        for kind, stream, pinned in device.brought:
                            self.assertIs(stream, device._weights if kind == "weights_in" else device._data, kind)
                            self.assertTrue(pinned or kind not in ("weights_in", "inputs_in"))
                            self.assertFalse(pinned and kind == "resident_in", "what comes once needs no pinned memory")

    def test_gradients_of_another_type_hold_up_no_task(self):
        """The executor waited for each one and converted it itself, so that the GPU had nothing to do."""
        cards, waits = Cards(2), []

        class Watched(Recorded):
            def wait_for(self, departure):
                waits.append(threading.current_thread() is threading.main_thread())
                super().wait_for(departure)

        with cards.installed():
            devices = [Watched(index, cards) for index in range(2)]
            with harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2), precision=torch.bfloat16, devices=devices) as trainer:
                losses_of(trainer, 2)
        self.assertEqual(waits, [False] * 2 * len(trainer.optimizers), "only the updates wait, each once")

    def test_weights_arrive_on_their_own_stream(self):
        cards = Cards(1)
        with cards.installed():
            device = harmony.CudaDevice(0)
            device.torch_device = torch.device("cpu")
            used = []
            with unittest.mock.patch.object(cards, "stream", lambda stream: used.append(stream) or contextlib.nullcontext()), \
                    unittest.mock.patch.object(torch.cuda, "stream", lambda stream: used.append(stream) or contextlib.nullcontext()):
                device.bring(torch.ones(2), "weights_in")
                device.bring(torch.ones(2), "stash_in")
            self.assertEqual(used, [device._weights, device._data])

    def test_a_budget_beyond_the_card_is_refused(self):
        cards = Cards(2)
        with cards.installed():
            with self.assertRaisesRegex(harmony.PlanError, f"deviceBytes is {CAPACITY + 1}, and GPU 0 has {CAPACITY} bytes"):
                harmony.CudaDevice(0, CAPACITY + 1)
            harmony.CudaDevice(1, CAPACITY // 4)
            self.assertEqual(cards.fractions, {1: 0.25})
            with unittest.mock.patch.object(torch.cuda, "is_available", lambda: True), \
                    self.assertRaisesRegex(harmony.PlanError, "the plan is for 4 GPUs, and 2 are visible"):
                harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 4))


    def test_the_allocators_segments_expand_unless_the_user_has_settings(self):
        expanding = "expandable_segments:True" if torch.__version__ >= "2.1" else None
        for chosen, expected in ((None, expanding), ("max_split_size_mb:512", "max_split_size_mb:512")):
            with Cards(2).installed(), unittest.mock.patch.dict(os.environ), \
                    unittest.mock.patch.object(torch.cuda, "is_available", lambda: True):
                os.environ.pop(SETTINGS, None)
                os.environ.update({SETTINGS: chosen} if chosen else {})
                harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2)).stop()
                self.assertEqual(os.environ.get(SETTINGS), expected)


class PinnedMemory(unittest.TestCase):
    """PyTorch's own takes the next power of two: a host had up to a fifth more of a training than its plan said."""

    def setUp(self):
        self.cards = Cards(1)
        stack = contextlib.ExitStack()
        stack.enter_context(self.cards.installed())
        self.addCleanup(stack.close)
        self.memory = pinned_memory.PinnedMemory()

    def test_is_of_whole_pages_and_no_more(self):
        sizes = []
        with unittest.mock.patch.object(self.cards, "cudaHostRegister", lambda start, size, flags: sizes.append(size) or 0), \
                unittest.mock.patch.object(self.cards, "cudaHostUnregister", lambda start: None):
            tensor = self.memory.empty((1600, 4800), torch.bfloat16)
            self.assertEqual((tensor.shape, tensor.dtype), ((1600, 4800), torch.bfloat16))
            self.memory.empty((3,), torch.float32)
        self.assertEqual(sizes, [1600 * 4800 * 2, 4096])

    def test_what_is_given_up_is_used_again_for_the_same_size(self):
        first = self.memory.empty((64, 64), torch.float32)
        view = first[3]
        start = address(first)
        del first
        second = self.memory.empty((64, 64), torch.float32)
        self.assertNotEqual(address(second), start, "a view still uses it")
        del view
        third = self.memory.empty((128, 64), torch.bfloat16)
        self.assertEqual(address(third), start)
        self.assertEqual(len(self.cards.pinned), 2)

    def test_a_fork_does_not_share_it(self):
        """Else the pages that the process writes next may no longer be those that the GPU reads."""
        tensor = self.memory.empty((64, 64), torch.float32)
        with open("/proc/self/smaps", encoding="ascii") as file:
            flags, mine = None, False
            for line in file:
                if "-" in line.split()[0]:
                    begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                    mine = begin <= address(tensor) < end
                elif mine and line.startswith("VmFlags:"):
                    flags = line.split()[1:]
        self.assertIn("dc", flags, "do not copy")

    def test_after_close_nothing_is_kept(self):
        used, unused = self.memory.empty((64, 64), torch.float32), self.memory.empty((64, 64), torch.float32)
        del unused
        self.memory.close()
        self.assertEqual(self.cards.pinned, {address(used)})
        self.assertEqual(used.fill_(2).sum().item(), 8192)
        del used
        self.assertEqual(self.cards.pinned, set())

    def test_where_cuda_refuses_it_is_pytorchs_own_and_said_once(self):
        said, pinned = io.StringIO(), []
        with unittest.mock.patch.object(self.cards, "cudaHostRegister", lambda start, size, flags: 2), \
                unittest.mock.patch.object(torch, "empty", lambda shape, dtype=None, pin_memory=False, empty=torch.empty:
                                           pinned.append(pin_memory) or empty(shape, dtype=dtype)), \
                contextlib.redirect_stderr(said):
            for _ in range(2):
                self.assertEqual(self.memory.empty((64, 64), torch.float32).shape, (64, 64))
        self.assertEqual(pinned.count(True), 2)
        self.assertEqual(said.getvalue(), "plimsoll.harmony: cudaHostRegister gave 2: pinned memory is PyTorch's, which takes up to twice "
                         "as much of the host\n")


class NodesRates(unittest.TestCase):
    def test_of_copies_the_most_that_a_large_one_has_reached(self):
        link = rates.LinkRates()
        self.assertEqual(link.reading(), {})
        for size, seconds in ((4 << 20, 2.0), (8 << 20, 1.0), (2 << 20, 0.5), (1000, 1e-9), (8 << 20, 0.0)):
            link.note("hostToDeviceBytesPerSecond", size, seconds)
        self.assertEqual(link.reading(), {"hostToDeviceBytesPerSecond": 8 << 20})

    def test_of_updates_all_together(self):
        updates = rates.UpdateRate()
        updates.note(1000, 1.0)
        self.assertEqual(updates.reading(), {}, "too few bytes to say")
        updates.note((4 << 20) - 1000, 3.0)
        self.assertEqual(updates.reading(), {"hostUpdateBytesPerSecond": 1 << 20})

    def test_an_update_touches_what_the_planner_counts(self):
        """Of a parameter in fp32: 28 bytes with Adam, 40 where 16 bits move, 12 with plain SGD (estimator/speed/host_update.h)."""
        for optimizer_of, copies, expected in ((torch.optim.AdamW, 0, 28), (torch.optim.AdamW, 2000, 40),
                                               (lambda p: torch.optim.SGD(p, lr=0.1), 0, 12)):
            parameter = torch.zeros(1000, requires_grad=True)
            optimizer = optimizer_of([parameter])
            parameter.grad = torch.ones(1000)
            optimizer.step()
            self.assertEqual(rates.touched_bytes([parameter], optimizer, copies), 1000 * expected)

    def test_copies_of_a_gpu_are_timed_by_its_events(self):
        class Event:
            def __init__(self, enable_timing):
                self.at = None

            def record(self):
                times.append(len(times))
                self.at = times[-1]

            def elapsed_time(self, other):
                return 1000 * (other.at - self.at)

        times, cards = [], Cards(1)
        with cards.installed(), unittest.mock.patch.object(torch.cuda, "Event", Event):
            device = harmony.CudaDevice(0)
            device.torch_device = torch.device("cpu")
            large = torch.zeros(2 << 20)
            device.bring(large, "weights_in")
            device.take_back(large, torch.zeros(2 << 20), "gradients_out")
            device.bring(torch.zeros(10), "weights_in")
            self.assertEqual(device.rates.reading(), {}, "they may not have ended")
            device.wait_for_all()
            self.assertEqual(device.rates.reading(), {"hostToDeviceBytesPerSecond": 8 << 20, "deviceToHostBytesPerSecond": 8 << 20})
            self.assertEqual(len(times), 4, "small ones are not timed")


class VirtualDevices(unittest.TestCase):
    def test_what_is_freed_is_no_longer_counted(self):
        device = harmony.VirtualDevice(0, 100)
        first = device.bring(torch.ones(20), "weights_in")
        self.assertEqual((device.live_bytes, device.peak_bytes), (80, 80))
        with self.assertRaisesRegex(harmony.DeviceOutOfMemory, "Tried to allocate 24 bytes"):
            device.bring(torch.ones(6), "weights_in")
        del first
        again = device.bring(torch.ones(6), "weights_in")
        self.assertEqual((device.live_bytes, device.peak_bytes, again.sum().item()), (24, 80, 6))
        device.reset_peak()
        self.assertEqual(device.peak_bytes, 24)
        self.assertEqual(device.moved["weights_in"], 80 + 24 + 24)

    def test_the_environments_budget_is_that_of_each_device(self):
        with unittest.mock.patch.dict("os.environ", PLIMSOLL_DEVICE_BUDGET_BYTES="1000000"):
            for of_the_plan, budget in ((None, 1000000), (2000000, 1000000), (500000, 500000)):
                with harmony.Trainer(gpt(), loss_fn, adam, plan_of("vPP", 2, deviceBytes=of_the_plan)) as trainer:
                    self.assertEqual([device.budget_bytes for device in trainer.devices], [budget] * 2)


if __name__ == "__main__":
    unittest.main()
