"""What a recording reports by name, and what it models: torch.compile, hooks, streams, memory of the host. Needs PyTorch 2.4."""

import unittest

from export_test import exporter, replayed_peak, torch
from torch.autograd import graph
from unmodelled_test import Hooked, Model, exported


class Compiled(unittest.TestCase):
    def notes(self, change):
        return [note for note in exported(change)["notes"] if "torch.compile" in note]

    def test_modules_are_named(self):
        def wrapped(model):
            model.encoder = torch.compile(model.encoder)
            return model

        notes = self.notes(wrapped)
        self.assertEqual(len(notes), 1)
        self.assertIn("module encoder is recorded as PyTorch runs it without", notes[0])

    def test_modules_compiled_in_place_are_named(self):
        def in_place(model):
            model.head.compile()
            return model

        self.assertIn("module head is recorded", self.notes(in_place)[0])

    def test_the_model_itself_is_named(self):
        self.assertIn("the model is recorded", self.notes(torch.compile)[0])

    def test_functions_are_named(self):
        def with_function(model):
            model.activation = torch.compile(torch.sin)
            return model

        self.assertIn("the function activation of the model", self.notes(with_function)[0])

    def test_functions_of_the_loss_are_named(self):
        def function(batch):
            scaled = torch.compile(lambda output: output * 2)
            return Model(), (torch.randn(batch, 64),), lambda output: scaled(output).square().mean()

        notes = exporter.export(function, 4, "cpu")["traces"][0]["notes"]
        self.assertIn("the function scaled of the loss", notes[0])

    def test_nothing_compiled_no_note(self):
        def disabled(model):
            model.activation = torch.compiler.disable(torch.sin)
            return model

        for change in (lambda model: model, disabled):
            self.assertEqual(self.notes(change), [])


class Hooks(unittest.TestCase):
    def test_what_is_saved_on_the_host_is_not_on_the_card(self):
        batch = 4096  # activations are more than the weights, which are saved and copied back, too
        kept = replayed_peak(exported(lambda model: model, "cuda", batch), batch)
        trace = exported(lambda model: Hooked(graph.save_on_cpu), "cuda", batch)
        self.assertEqual((trace["device"], trace["method"], trace["notes"]), ("cuda", "fake", []))
        saved = 3 * batch * 256 * 4  # what the linear layers behind a ReLU keep
        self.assertLess(replayed_peak(trace, batch), kept - saved // 2)

    def test_what_a_hook_keeps_on_the_card_is_counted_until_its_node_has_run(self):
        def halved():
            return graph.saved_tensors_hooks(lambda tensor: tensor.half(), lambda tensor: tensor.float())

        by_hand = replayed_peak(exported(lambda model: Hooked(halved), "cuda"), 64)
        engines = replayed_peak(exported(lambda model: Hooked(halved), "cpu"), 64)
        self.assertLessEqual(abs(by_hand - engines), 0.02 * engines)


class OtherMemoryAndStreams(unittest.TestCase):
    def test_activations_that_are_moved_to_the_host(self):
        class Offloading(Model):
            def forward(self, x):
                moved = self.encoder(x).to("cpu")
                return self.head(moved.to("cuda"))

        trace = exported(lambda model: Offloading(), "cuda")
        self.assertEqual(trace["method"], "fake")
        copies = [i for i, row in enumerate(trace["storages"]) if row[0] == 0 and trace["roles"][row[1]] == "activation"]
        self.assertTrue(copies)

    def test_parameters_on_the_host_are_named(self):
        class OnHost(Model):
            def forward(self, x):
                return self.head(self.encoder[0](x.to("cpu")).to("cuda"))

        trace = exported(lambda model: self.on_host(OnHost()), "cuda")
        self.assertRegex(" ".join(trace["notes"]), "in the host's memory, and not counted: encoder.0.weight, encoder.0.bias")

    @staticmethod
    def on_host(model):
        model.encoder[0].to("cpu")
        return model

    def test_streams_are_named_with_their_place(self):
        class OnStream(Model):
            def __init__(self):
                super().__init__()
                self.stream = torch.cuda.Stream()

            def forward(self, x):
                x = self.encoder(x)
                with torch.cuda.stream(self.stream):
                    side = x * 2
                    side.record_stream(self.stream)
                torch.cuda.current_stream().wait_stream(self.stream)
                return self.head(x + side)

        trace = exported(lambda model: OnStream(), "cuda")
        self.assertEqual(trace["method"], "fake")
        notes = [note for note in trace["notes"] if "CUDA streams are not modelled" in note]
        self.assertEqual(len(notes), 2)
        self.assertRegex(notes[0], r"work on a stream of its own in the model \(.*torch2_unmodelled_test\.py:\d+\)")
        self.assertIn("record_stream", notes[1])


if __name__ == "__main__":
    unittest.main()
