"""python3 -m plimsoll.export MODULE:FUNCTION --batch-size B -o GRAPH.json.gz

FUNCTION(batch_size) returns (nn.Module, tuple of example inputs, loss_fn); loss_fn(output) is a scalar tensor. Its training
iteration is recorded operator by operator (docs/graph.md), on tensors without memory where the model allows it.
`export` is the same as a Python function.
"""

import argparse
import contextlib
import gc
import gzip
import importlib
import json
import os
import platform
import sys
import time
import traceback

import torch

from . import ExportError, __version__, iteration, lookups, places, probe, real_run, trace, worlds

DEVICES = ("cpu", "cuda", "both")
_MORE_BATCHES = (1, 2, 3)  # two make a line, the third checks it
_REAL_BATCH = 4  # a real run costs memory, so it is made small
_READ_AS_CUDA = "recorded as the CPU runs it, because this PyTorch cannot run the model for a GPU that does not exist: operators " \
    "that differ on CUDA (dropout, attention, recurrent layers) count as the CPU's"


def _resolve(name):
    module_name, separator, function_name = name.partition(":")
    if not separator or not module_name or not function_name:
        raise ExportError(f"'{name}' does not name a function: write MODULE:FUNCTION, for example models.gpt:small")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ExportError(f"cannot import '{module_name}': {error}. Is its folder the current one, or on PYTHONPATH?") from error
    except Exception as error:
        raise ExportError(f"importing '{module_name}' failed: {type(error).__name__}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ExportError(f"module '{module_name}' has no function '{function_name}'")
    return function


def _first_line(error):
    if isinstance(error, _AsksForValues):
        return str(error)
    text, place = str(error).strip().splitlines(), places.of_error(error)
    return (f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__) + (f" ({place})" if place else "")


_LOOKS_AT_VALUES = "looks at a value that depends on weights or large inputs"


class _AsksForValues(Exception):
    """The model looks at its results, and is small enough to be run for real."""


@contextlib.contextmanager
def _without_collections():
    """Python's collector of cyclic garbage would look at all of PyTorch and at the recordings again and again. What iterations
    leave are objects without memory; models that have memory are collected before another is made."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()  # what is left counts as old, and is not looked at in the next moment
        if enabled:
            gc.enable()


class _Exporter:
    def __init__(self, function, batch_size, precision, progress, lookups_of):
        self._function = function
        self._batch_size = batch_size
        self._precision = precision
        self._progress = progress
        self._lookups_of = lookups_of
        self.tables = []  # that the recordings look up
        self._compared = None  # what differs from a real run on the CPU, once that is known
        self._hooks = []  # what is to be said of the last recording's saved-tensor hooks, if it is read as another device's
        self._factors = _MORE_BATCHES
        self._has_built = False  # a model with memory

    def trace(self, device):
        """By the first way that works: without memory, built for real, all for real; for CUDA then as the CPU runs it."""
        notes = []
        ways = [(runs_on, kind) for runs_on in dict.fromkeys((device, "cpu"))  # without repeating "cpu"
                for kind in (worlds.FAKE, worlds.REAL_BUILD, worlds.REAL) if (runs_on, kind) != ("cuda", worlds.REAL)]
        for runs_on, kind in ways:
            try:
                made = self._trace_of_kind(runs_on, kind, notes, measured=device == "cpu")
                if runs_on != device:
                    made.update(method="derived", notes=made["notes"] + [_READ_AS_CUDA] + self._hooks)
                    self._progress(f"{device}: {_READ_AS_CUDA}")
                return dict(made, device=device)
            except ExportError:
                raise
            except Exception as error:
                if os.environ.get("PLIMSOLL_EXPORT_TRACEBACK"):
                    traceback.print_exc()
                last = error
                way = f"'{kind}' on {runs_on}" if runs_on != device else f"'{kind}'"
                notes.append(f"not recorded as {way}: {_first_line(error)}")
                self._progress(f"{device}: {way} does not work for this model ({_first_line(error)}); trying the next way")
        raise ExportError(f"the model does not run: {_first_line(last)}") from last

    def _trace_of_kind(self, device, kind, notes, measured):
        size = self._batch_size if kind != worlds.REAL else min(self._batch_size, _REAL_BATCH)
        batches = [size * factor for factor in self._factors]
        recordings = []

        def made(recordings, batches, notes):
            temporaries = self._measure(recordings, batches) if measured else {}
            method = "real" if kind == worlds.REAL else "fake"
            made = dict(trace.make_trace(recordings, batches, device, self._precision, method, notes), **temporaries)
            found = self._differences(device, kind, recordings, batches)
            self._hooks = [f"saved-tensor hooks are read as the CPU runs them ({hook}): what they move to the host counts as on the card"
                           for hook in dict.fromkeys(recordings[0].hooks)]
            assumed = [f"{place} {_LOOKS_AT_VALUES}: recorded as if it were {answer}" for place, answer in recordings[0].assumed.items()]
            made["notes"] = list(dict.fromkeys(notes + recordings[0].notes + assumed + found))
            return made

        recordings.append(self._record(device, kind, batches[0]))
        self._refuse_assumptions(device, kind, recordings[0])
        reason = None
        try:
            for batch in batches[1:2]:
                recordings.append(self._record(device, kind, batch))
            agrees = self._real_run_agrees(kind, recordings, batches)
            for batch in batches[2:] if not agrees else ():
                recordings.append(self._record(device, kind, batch))
        except trace.Mismatch as mismatch:
            reason = str(mismatch)
        except Exception as error:
            reason = f"batch {batches[len(recordings)]} does not run: {_first_line(error)}"
        try:
            if reason is None:
                result = made(recordings, batches[:len(recordings)], list(notes))
                result["batchSizes"] += [real_run.BATCH] if agrees else []
                self._factors = _MORE_BATCHES[:2]  # that sizes are affine in the batch has been checked for the next device
                return result
        except trace.Mismatch as mismatch:
            reason = str(mismatch)
        self._progress(f"{device}: this trace holds for batch {self._batch_size} alone: {reason}")
        only = recordings[0] if size == self._batch_size else self._record(device, kind, self._batch_size)
        return made([only], [self._batch_size], notes + [f"holds for batch {self._batch_size} alone: {reason}"])

    def _refuse_assumptions(self, device, kind, recording):
        """Where a real run is small, nothing has to be assumed about values."""
        if recording.assumed:
            batch = min(self._batch_size, _REAL_BATCH)
            small = recording if batch == self._batch_size else self._record(device, kind, batch)
            if real_run.is_small(*real_run.steps([small], [batch], batch)):
                raise _AsksForValues(f"{next(iter(recording.assumed))} {_LOOKS_AT_VALUES}")

    def _real_run_agrees(self, kind, recordings, batches):
        """Whether a small real run executes the operators, and has the shapes, that two recordings predict for another batch. Then
        a third recording would show nothing else."""
        if kind == worlds.REAL or len(batches) < 3 or self._compared is not None or recordings[0].assumed or real_run.BATCH in batches:
            return False
        trace.same_operators(*recordings, batches)
        expected = real_run.steps(recordings, batches, real_run.BATCH)
        if not real_run.is_small(*expected):
            return False
        try:
            agrees = not real_run.differences(expected[0], self._real_steps(real_run.BATCH))
        except Exception as error:
            self._progress(f"a real run at batch {real_run.BATCH} fails ({_first_line(error)})")
            return False
        if agrees:
            self._compared = []
            self._progress(f"a real run at batch {real_run.BATCH} executes the same operators")
        return agrees

    def _collect_models(self, kind):
        """Frees what an earlier model with memory left in cycles, before another is made."""
        if kind != worlds.FAKE:
            if self._has_built:
                gc.collect()
            self._has_built = True

    def _real_steps(self, batch):
        self._collect_models(worlds.REAL)
        began = time.monotonic()
        steps = real_run.observed_steps(*iteration.observe(self._function, batch, self._precision, self._lookups_of))
        self._progress(f"cpu {self._precision} batch {batch} (real): {len(steps)} operators in {time.monotonic() - began:.1f} s")
        return steps

    def _differences(self, device, kind, recordings, batches):
        """What a real run on the CPU does otherwise than recordings of this kind, where such a run is small enough."""
        if self._compared is None and kind != worlds.REAL and not recordings[0].assumed:
            batch = min(self._batch_size, real_run.BATCH)
            try:
                self._compared = self._compare(device, kind, recordings, batches, batch)
            except Exception as error:
                self._compared = []
                self._progress(f"not compared with a real run: at batch {batch} it fails ({_first_line(error)})")
        return self._compared or []

    def _compare(self, device, kind, recordings, batches, batch):
        def steps(kind, with_places=False):
            return real_run.steps([self._record("cpu", kind, batch, with_places)], [batch], batch)

        known = len(recordings) > 1 or batches[0] == batch
        expected = real_run.steps(recordings, batches, batch) if known else steps(kind)
        if not real_run.is_small(*expected):
            self._progress("not compared with a real run, which would take long")
            return []
        if device == "cpu" and not real_run.differences(expected[0], steps(worlds.REAL)[0]):
            self._progress(f"a real run at batch {batch} executes the same operators")
            return []
        found = real_run.differences(steps(kind, True)[0], steps(worlds.REAL, True)[0])
        for line in found:
            self._progress(line)
        return found

    def _measure(self, recordings, batches):
        """The temporaries of kernels; corrects the sizes of their results."""
        if probe.largest_operator(recordings[-1]) > probe.LARGEST_OPERATOR_BYTES:
            self._progress("kernels are too large to be measured one by one: the estimator's rules decide for them")
            return {}
        began = time.monotonic()
        measured = [probe.measure(recording) for recording in recordings]
        rows, unmeasured = trace.merge_temporaries(measured[:2], batches)
        self._progress(f"measured {len(recordings[0].operators) - len(unmeasured)} kernels in {time.monotonic() - began:.1f} s")
        return {"temporaries": rows, "unmeasured": unmeasured}

    def _record(self, device, kind, batch, with_places=False):
        self._collect_models(kind)
        began = time.monotonic()
        recording = iteration.record(self._function, batch, kind, device, self._precision, with_places, self._lookups_of)
        self.tables = self.tables or recording.tables
        self._progress(f"{device} {self._precision} batch {batch} ({kind}): {len(recording.operators)} operators "
                       f"in {time.monotonic() - began:.1f} s")
        return recording


def export(function, batch_size, device="both", precision="FP32", name=None, progress=lambda line: None,
           lookups_of=lookups.COLLECTIONS):
    """The graph of docs/graph.md as a dict. Raises ExportError, whose message tells the user what to do.

    `function` is what MODULE:FUNCTION names; `progress` is called with lines of text during the work.
    `lookups_of`: what is looked up in tables that are spread over trainers (lookups.py).
    """
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ExportError(f"the batch size must be a positive whole number, not {batch_size!r}")
    if device not in DEVICES:
        raise ExportError(f"the device must be one of {', '.join(DEVICES)}, not {device!r}")
    if precision not in iteration.PRECISIONS:
        raise ExportError(f"the precision must be one of {', '.join(iteration.PRECISIONS)}, not {precision!r}")
    exporter = _Exporter(function, batch_size, precision, progress, lookups_of)
    traces, errors = [], []
    with _without_collections():
        for kind in ("cpu", "cuda") if device == "both" else (device,):
            try:
                traces.append(exporter.trace(kind))
            except ExportError as error:
                errors.append(error)
                progress(f"no trace for {kind}: {error}")
    if not traces:
        raise errors[0]
    graph = {
        "format": "plimsoll-graph/1",
        "name": name or getattr(function, "__qualname__", "function"),
        "producer": {"exporter": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
        "batchSize": batch_size,
        "traces": traces,
    }
    if exporter.tables:
        graph["embeddings"] = exporter.tables
    return graph


def write(graph, path):
    """The graph as JSON, compressed where the path ends with .gz; the same graph gives the same bytes."""
    text = json.dumps(graph, separators=(",", ":")).encode()
    if path.endswith(".gz"):
        text = gzip.compress(text, 6, mtime=0)
    try:
        with open(path, "wb") as file:
            file.write(text)
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}") from error


def _positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python3 -m plimsoll.export", description="Records one training iteration of a model for `plimsoll estimate --graph`.",
        epilog="FUNCTION(batch_size) returns (nn.Module, tuple of example inputs, loss_fn); loss_fn(output) is a scalar tensor. "
               "Nothing is trained and, where the model allows it, no memory is taken: a 100 GB model exports on a laptop.")
    parser.add_argument("function", metavar="MODULE:FUNCTION")
    parser.add_argument("--batch-size", type=_positive, required=True, metavar="B", help="samples a trainer sees in an iteration")
    parser.add_argument("-o", "--output", required=True, metavar="GRAPH.json.gz", help="where to; compressed if it ends with .gz")
    parser.add_argument("--device", choices=DEVICES, default="both", help="whose operators (default both: a trace each)")
    parser.add_argument("--precision", choices=iteration.PRECISIONS, default="FP32",
                        help="Mixed ones run under autocast, BF16 and FP16 cast the whole model (default FP32)")
    parser.add_argument("--dense-embedding-bags", action="store_true",
                        help="nn.EmbeddingBags are parameters of every trainer, and no tables to be spread over them")
    parser.add_argument("--embedding-inputs", action="store_true",
                        help="inputs that require a gradient are embeddings, looked up in tables that the job names")
    options = parser.parse_args(arguments)
    given = [] if options.dense_embedding_bags else [lookups.BAGS]
    given += [lookups.INPUTS] if options.embedding_inputs else []
    try:
        graph = export(_resolve(options.function), options.batch_size, options.device, options.precision, options.function,
                       progress=lambda line: print(line, file=sys.stderr, flush=True), lookups_of=frozenset(given))
        write(graph, options.output)
    except ExportError as error:
        print(f"plimsoll.export: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
