"""What the tests of vLLM's plugin run in processes of their own; see test_vllm.py.

`make` writes a model of random weights; `run` lets vLLM load it and prints what came of that. This
file is also the extension of vLLM's workers that looks at the weights which they have then.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_DEVICE = 77  # How a program tells CTest that it was skipped.


class Weights:
    """Methods that vLLM's workers get."""

    def from_files(self) -> list[Any]:
        """Return what the loader makes of the files."""
        from vllm.model_executor.model_loader import get_model_loader

        worker: Any = self
        model = worker.model_runner.get_model()
        loader = get_model_loader(worker.vllm_config.load_config)
        return digest(loader.get_all_weights(worker.vllm_config.model_config, model))

    def of_model(self) -> list[Any]:
        """Return what is in the model, as far as kernels have not taken it over (a CPU's do)."""
        worker: Any = self
        return digest(worker.model_runner.get_model().named_parameters())


def digest(tensors: Iterable[tuple[str, Any]]) -> list[Any]:
    """Return how many numbers tensors are, and a checksum of names, types, shapes and values."""
    checksum, count = hashlib.sha256(), 0
    for name, tensor in sorted(tensors, key=lambda named: named[0]):
        checksum.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        checksum.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
        count += tensor.numel()
    return [count, checksum.hexdigest()]


def make(folder: Path) -> None:
    """Write a Llama in shards, and beside it a file of other names that the index does not have.

    Such a file (consolidated.safetensors) is what Mistral's models have: the same weights again.
    """
    import torch
    import transformers
    from safetensors.torch import save_file

    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        # Larger than for a model that is to learn: tokens differ from each other.
        initializer_range=0.2,
    )
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="300KB")
    other = {"layers.0.attention.wq.weight": torch.zeros(128, 128)}
    save_file(other, folder / "zconsolidated.safetensors")


def run(folder: Path, load_format: str) -> None:
    """Print what vLLM's workers have after loading, and the tokens that it generates."""
    from vllm.platforms import current_platform

    if not current_platform.device_type:
        sys.exit(NO_DEVICE)
    import vllm

    engine = vllm.LLM(
        model=str(folder),
        load_format=load_format,
        max_model_len=128,
        enforce_eager=True,
        skip_tokenizer_init=True,
        worker_extension_cls="vllm_program.Weights",
        seed=0,
    )
    greedy = vllm.SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": [4, 5, 6]}, {"prompt_token_ids": [103, 10]}]

    def generated() -> list[list[int]]:
        outputs = engine.generate(prompts, greedy, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    found = {name: engine.collective_rpc(name) for name in ("from_files", "of_model")}
    found["tokens"] = generated()
    engine.collective_rpc("reload_weights")
    engine.reset_prefix_cache()
    found["reloaded"] = generated()
    print("RESULT", json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        run(Path(sys.argv[2]), sys.argv[3])
