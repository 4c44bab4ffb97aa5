"""plimsoll.harmony on the models of Hugging Face's transformers."""

import sys
import unittest

from needs_torch import torch

try:
    import transformers as hf
except ImportError:
    print("SKIPPED: this Python has no transformers")
    sys.exit(77)

from plimsoll import harmony  # noqa: E402
from small_gpt import SAMPLES, WORDS, adam, batch, loss_fn, losses_of, plain_losses  # noqa: E402


class HuggingFace(unittest.TestCase):
    def test_hugging_faces_models_are_cut_between_their_blocks(self):
        sizes = {"num_attention_heads": 2, "num_hidden_layers": 3, "hidden_size": 32, "intermediate_size": 64, "vocab_size": WORDS}
        makers = {
            "GPT-2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=32, n_head=2, n_layer=3, vocab_size=WORDS, n_positions=32)),
            "Llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**sizes)),
            "BERT": lambda: hf.BertForMaskedLM(hf.BertConfig(**sizes))}
        hf.logging.set_verbosity_error()
        for name, make in makers.items():
            with self.subTest(name):
                torch.manual_seed(0)
                model = make()
                torch.manual_seed(0)
                plain = make()
                layers = harmony.layers_of(plain)[1]
                self.assertEqual(len(layers), 5)
                value = batch(0)[0]
                with torch.no_grad():
                    expected = plain.eval()(value).logits
                    for layer in layers:
                        value = layer(value)
                self.assertTrue(torch.equal(value, expected), "the layers one after the other are the model")
                plan = {"mode": "vPP", "gpus": 2, "batchSize": SAMPLES, "layers": 5, "microbatch": {"forward": 4, "backward": 2},
                        "packs": {"forward": [0, 2], "backward": [0, 2, 3]}}
                torch.manual_seed(2)
                with harmony.Trainer(model, loss_fn, adam, plan) as trainer:
                    losses = losses_of(trainer, 3)
                torch.manual_seed(2)
                for mine, theirs in zip(losses, plain_losses(plain, 3, 2, layers=layers)):
                    self.assertAlmostEqual(mine, theirs, delta=2e-5 * theirs)
                self.assertEqual(model.state_dict().keys(), plain.state_dict().keys())
                self.check_masks(model, plain, layers, plan)

    def test_eager_attention_does_not_look_ahead(self):
        """Its blocks are causal only by the mask that the model makes; without one they ran as an encoder's do."""
        sizes = {"num_attention_heads": 2, "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "vocab_size": WORDS}
        makers = {"GPT-2": (hf.GPT2LMHeadModel, hf.GPT2Config(n_embd=32, n_head=2, n_layer=2, vocab_size=WORDS, n_positions=32)),
                  "Llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**sizes))}
        for name, (kind, config) in makers.items():
            with self.subTest(name), torch.no_grad():
                config._attn_implementation = "eager"
                model = kind(config).eval()
                self.assertEqual(model.config._attn_implementation, "eager")
                value = batch(0)[0]
                expected = model(value).logits
                for layer in harmony.layers_of(model)[1]:
                    value = layer(value)
                self.assertTrue(torch.allclose(value, expected, rtol=1e-4, atol=1e-5))

    def check_masks(self, model, plain, layers, plan):
        """Samples of different lengths: what is padded has no effect on the other tokens."""
        ids, mask = batch(0)[0], torch.ones(SAMPLES, batch(0)[0].shape[1], dtype=torch.long)
        mask[0, 5:] = mask[2, 3:] = 0

        def data(step):
            inputs, targets = batch(step)
            return (inputs, mask), targets

        with torch.no_grad():
            value = (ids, mask)
            expected = plain.eval()(ids, attention_mask=mask).logits
            for layer in layers:
                value = layer(*value) if isinstance(value, tuple) else layer(value)
        used = mask.bool()
        self.assertTrue(torch.allclose(value[used], expected[used], rtol=1e-4, atol=1e-5))
        model.load_state_dict(plain.state_dict())
        torch.manual_seed(3)
        with harmony.Trainer(model, loss_fn, adam, plan) as trainer:
            losses = losses_of(trainer, 2, data=data)
        torch.manual_seed(3)
        for mine, theirs in zip(losses, plain_losses(plain, 2, 2, data=data, layers=layers)):
            self.assertAlmostEqual(mine, theirs, delta=2e-5 * theirs)
        with harmony.Trainer(model, loss_fn, adam, plan) as trainer:
            with self.assertRaisesRegex(TypeError, "ids of tokens, or .ids, attention mask."):
                trainer.step({"input_ids": ids, "attention_mask": mask}, ids)


if __name__ == "__main__":
    unittest.main()
