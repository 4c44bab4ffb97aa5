#!/usr/bin/env python3
"""What training takes of convolutional networks on a CUDA device, by precision and layout, as JSON.

    python3 measure_networks.py -o measured_gpu/networks_NAME.json      needs torch 2, torchvision and a CUDA device
    python3 measure_networks.py --rehearse                              trains each network on the CPU with two samples

Each run is three iterations in a process of its own; several share the card. A row has the allocator's peaks, the bytes at the
moments of the last iteration (measure_gpu.py), and `inside`: the blocks of 0.5 MiB and more of that iteration that go before another
comes, in order, which are what single operators take inside. With --events a row has trace_gpu.py's events.
"""
import argparse
import importlib
import multiprocessing
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "models")]

import torch  # noqa: E402

import cases  # noqa: E402
import measure_convolutions  # noqa: E402
import measure_gpu  # noqa: E402

ITERATIONS = 3
HISTORY = 200_000
LEAST_BYTES = 1 << 19
GRANULE = 512
REHEARSED_SAMPLES = 2
WAYS = [("FP32", "NCHW", False), ("BF16Mixed", "NCHW", False), ("BF16Mixed", "NHWC", False), ("FP32", "NHWC", False)]
NETWORKS = [("published:imagenet_vgg16_224", 48), ("published:imagenet_resnet50_224", 64), ("published:regnet_y_400mf_1000", 200),
            ("published:imagenet_efficientnet_b0_224", 64), ("published:vgg19_1000", 200), ("published:imagenet_inception_v3_299", 48),
            ("published:mobilenet_v2_1000", 317), ("published:mnasnet1_0_10", 200), ("cnn:resnext50", 128), ("vision:unet", 64),
            ("published:regnet_x_400mf_1000", 382), ("cnn:resnet18", 256), ("published:convnext_tiny_1000", 100), ("cnn:densenet121", 128),
            ("cnn:googlenet", 128), ("cnn:squeezenet", 128), ("cnn:shufflenet", 256), ("cnn:vgg11", 128), ("vision:dcgan_generator", 256),
            ("vision:autoencoder", 512), ("published:resnet101_1000", 100), ("cnn:deeplab", 16)]
ALONE = [("published:imagenet_vgg16_224", 128, *WAYS[0]), ("published:imagenet_vgg16_224", 128, *WAYS[1]),
         ("published:imagenet_resnet50_224", 128, *WAYS[0])]
ALONE += [(model, batch, precision, layout, True) for model, batch in NETWORKS[:4]
          for precision, layout, _ in (WAYS[0], WAYS[2])]


def prepare(model, batch_size, precision, layout, device):
    """(optimizer, function that gives a loss)"""
    module_name, _, function = model.partition(":")
    torch.set_default_device(device)
    module, inputs, loss_fn = getattr(importlib.import_module(module_name), function)(batch_size)
    if layout == "NHWC":
        module = module.to(memory_format=torch.channels_last)
        inputs = tuple(each.contiguous(memory_format=torch.channels_last) if each.dim() == 4 else each for each in inputs)
    module.train()
    optimizer = cases.make_optimizer("SGD", [p for p in module.parameters() if p.requires_grad])

    def make_loss():
        with torch.autocast(device, torch.bfloat16, enabled=precision == "BF16Mixed"):
            return loss_fn(module(*inputs))

    return optimizer, make_loss


def blocks_inside(events, start):
    """The blocks from an event on whose free comes next."""
    made = -1
    found = []
    for at, (event, following) in enumerate(zip(events, [*events[1:], 0])):
        made += event >= 0
        if at >= start and event >= 0 and following == -1 - made:
            found.append(event * GRANULE)
    return found


def events_of(trace):
    """trace_gpu.py's, and where each mark was."""
    made, events, marks = {}, [], []
    for event in trace:
        if event["action"] == "alloc" and event["size"] == measure_convolutions.MARK:
            marks.append(len(events))
        elif event["action"] == "alloc" and event["size"] >= LEAST_BYTES:
            made[event["addr"]] = sum(1 for each in events if each >= 0)
            events.append(-(-event["size"] // GRANULE))
        elif event["action"] == "free_completed" and event["addr"] in made:
            events.append(-1 - made.pop(event["addr"]))
    return events, marks


def row_of(job):
    keep_events, model, batch_size, precision, layout, benchmark = job
    row = {"model": model, "batchSize": batch_size, "optimizer": "SGD", "precision": precision, "layout": layout,
           "cudnnBenchmark": benchmark}
    try:
        torch.backends.cudnn.benchmark = benchmark
        torch.cuda.memory._record_memory_history("all", context=None, max_entries=HISTORY)
        optimizer, make_loss = prepare(model, batch_size, precision, layout, "cuda")
        recorder = measure_gpu.Recorder()
        for _ in range(ITERATIONS):
            torch.empty(measure_convolutions.MARK, dtype=torch.uint8)
            moments = measure_gpu.iterate([optimizer], [make_loss], recorder)
        events, marks = events_of(torch.cuda.memory._snapshot()["device_traces"][0])
        return {**row, "allocated": recorder.allocated, "reserved": recorder.reserved,
                "retries": torch.cuda.memory_stats()["num_alloc_retries"], "phases": moments, "inside": blocks_inside(events, marks[-1]),
                **({"events": events} if keep_events else {})}
    except Exception as error:
        return {**row, "error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}


def measure(jobs, writer, workers, deadline):
    context = multiprocessing.get_context("fork")
    with context.Pool(workers, maxtasksperchild=1) as pool:
        rows = pool.imap_unordered(row_of, jobs)
        for _ in jobs:
            try:
                row = rows.next(timeout=max(1, deadline - time.monotonic()))
            except multiprocessing.TimeoutError:
                print("the time is over", flush=True)
                return
            writer.add(row)
            print({key: value for key, value in row.items() if key not in ("inside", "events", "phases")}, flush=True)


def rehearse():
    failed = 0
    for model, _ in NETWORKS:
        for precision, layout, _ in WAYS:
            try:
                optimizer, make_loss = prepare(model, REHEARSED_SAMPLES, precision, layout, "cpu")
                measure_gpu.iterate([optimizer], [make_loss])
            except Exception as error:
                failed += 1
                print(f"{model} {precision} {layout}: {type(error).__name__}: {error}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--workers", type=int, default=5, help="processes that share the card; default 5")
    parser.add_argument("--seconds", type=float, default=200, help="of the runs that share the card, and half as many for those alone")
    parser.add_argument("--events", action="store_true", help="keep each run's events")
    parser.add_argument("--rehearse", action="store_true", help="train on the CPU; measure nothing")
    options = parser.parse_args()
    if options.rehearse:
        return 1 if rehearse() else 0
    if not options.output:
        parser.error("-o FILE is needed")
    head = measure_gpu.in_child(measure_gpu.device)
    if head is None or "error" in head:
        print("no CUDA device here: nothing was measured")
        return 0
    writer = measure_convolutions.Writer(options.output, head)
    shared = [(options.events, *network, *way) for way in WAYS for network in NETWORKS]
    measure(shared, writer, options.workers, time.monotonic() + options.seconds)
    measure([(options.events, *job) for job in ALONE], writer, 1, time.monotonic() + options.seconds / 2)
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
