"""Remembered results of operators against FakeTensorMode's own."""

import sys
import unittest

from export_test import torch
from plimsoll.metas import Metas
from plimsoll.worlds import _fake_mode

aten = torch.ops.aten


def described(value):
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    return value.shape, value.stride(), value.storage_offset(), value.dtype, value.device, type(value)


class Remembers(unittest.TestCase):
    def setUp(self):
        self.mode, self.metas = _fake_mode(), Metas()

    def tensor(self, *shape, **options):
        with self.mode:
            return torch.empty(*shape, **options)

    def both(self, operator, *make_args, **kwargs):
        """The result of a remembered call, which must be FakeTensorMode's."""
        with self.mode:
            self.metas.run(operator, [make() if callable(make) else make for make in make_args], kwargs)
            args = [make() if callable(make) else make for make in make_args]
            remembered = self.metas.run(operator, args, kwargs)
            fresh = operator(*[make() if callable(make) else make for make in make_args], **kwargs)
        self.assertEqual(described(remembered), described(fresh))
        return args, remembered

    def test_new_tensors(self):
        self.both(aten.mm.default, lambda: self.tensor(3, 4), lambda: self.tensor(4, 5))
        self.both(aten.native_layer_norm.default, lambda: self.tensor(3, 4), [4], lambda: self.tensor(4), lambda: self.tensor(4), 1e-5)
        self.both(aten.mul.Tensor, lambda: self.tensor(3, 4), 2)
        self.both(aten.cat.default, [self.tensor(3, 4), self.tensor(2, 4)], 0)

    def test_equal_numbers_of_other_types_are_other_calls(self):
        whole = lambda: self.tensor(3, dtype=torch.int64)  # noqa: E731
        self.assertEqual(self.both(aten.mul.Tensor, whole, 2)[1].dtype, torch.int64)
        self.assertEqual(self.both(aten.mul.Tensor, whole, 2.0)[1].dtype, torch.float32)

    def test_views_share_the_storage_of_their_argument(self):
        for operator, arguments in ((aten.view.default, [[12]]), (aten.t.default, []), (aten.slice.Tensor, [0, 1, 3]),
                                    (aten.split.Tensor, [2])):
            args, result = self.both(operator, lambda: self.tensor(4, 3), *arguments)
            for view in result if isinstance(result, (list, tuple)) else [result]:
                self.assertEqual(torch._C._storage_id(view), torch._C._storage_id(args[0]))

    def test_offsets_count(self):
        with self.mode:
            whole = torch.empty(10)
            for start in (2, 5):
                part = self.metas.run(aten.slice.Tensor, [whole[start:], 0, 1, 3], {})
                self.assertEqual(part.storage_offset(), start + 1)

    def test_in_place_operators_give_their_argument(self):
        args, result = self.both(aten.add_.Tensor, lambda: self.tensor(3), lambda: self.tensor(3))
        self.assertIs(result, args[0])

    def test_what_changes_the_shape_of_its_argument_is_run(self):
        for _ in range(2):
            with self.mode:
                tensor = torch.empty(3, 4)
                self.metas.run(aten.t_.default, [tensor], {})
            self.assertEqual(tuple(tensor.shape), (4, 3))

    def test_constants_keep_their_values(self):
        for value in (1.0, 2.0):
            with self.mode:
                constant = torch.tensor(value)
                self.assertEqual(float(self.metas.run(aten.mul.Tensor, [constant, 3.0], {})), 3 * value)

    def test_errors_are_not_remembered(self):
        for _ in range(2):
            with self.assertRaises(RuntimeError), self.mode:
                self.metas.run(aten.mm.default, [torch.empty(3, 4), torch.empty(3, 4)], {})


if __name__ == "__main__":
    sys.exit(unittest.main())
