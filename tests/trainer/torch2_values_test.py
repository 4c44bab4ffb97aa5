"""Code that looks at values, where PyTorch 1.13's FakeTensorMode lacks tolist and selections by masks."""

import unittest

from export_test import real_peak, replayed_peak
from values_test import (BATCH, Branch, EarlyExit, Experts, KnownLengths, Listed, Masked, Number, Positions, Size, exported, function,
                         line_of)


class LooksAtValues(unittest.TestCase):
    def test_a_large_model_needs_no_real_run(self):
        places = ((Branch, "branch"), (Number, "number"), (Size, "size"), (Listed, "listed"), (Masked, "masked"), (Positions, "positions"),
                  (Experts, "experts"), (EarlyExit, "early"))
        for module, line in places:
            for device in ("cpu", "cuda"):
                with self.subTest(module.__name__, device=device):
                    trace = exported(module, device, small=False)
                    self.assertEqual(trace["method"], "fake")
                    self.assertIn(f"values_test.py:{line_of(line)} looks at a value that depends on weights", " ".join(trace["notes"]))

    def test_assumed_peaks_are_near_real_ones(self):
        for module, tolerance in ((Branch, 0.005), (Number, 0.005), (EarlyExit, 0.005), (Experts, 0.15)):
            with self.subTest(module.__name__):
                trace = exported(module, small=False)
                real = real_peak(function(module), BATCH)
                self.assertLessEqual(abs(replayed_peak(trace, BATCH) - real), tolerance * real)

    def test_sizes_that_follow_from_inputs_are_known(self):
        trace = exported(KnownLengths)
        self.assertEqual(trace["method"], "fake")
        self.assertNotRegex(" ".join(trace["notes"]), "looks at a value")
        real = real_peak(function(KnownLengths), BATCH)
        self.assertLessEqual(abs(replayed_peak(trace, BATCH) - real), 0.005 * real)


if __name__ == "__main__":
    unittest.main()
