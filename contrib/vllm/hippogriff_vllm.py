"""A plugin of vLLM: `load_format="hippogriff"` loads safetensors files by hippogriff.

Which files a model has, from a folder or from the hub, and whether they filled it, is decided by
vLLM's own loader; this one says how tensors get out of files.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight
from vllm.platforms import current_platform

from hippogriff.safetensors import safe_open

if TYPE_CHECKING:
    from collections.abc import Iterator

LOAD_FORMAT = "hippogriff"


class HippogriffLoader(DefaultModelLoader):  # type: ignore[misc]
    """Loads the safetensors files of a model one after the other, each at once."""

    counter_before_loading_weights: float = 0.0  # vLLM's, for its log.

    def __init__(self, load_config: Any) -> None:
        # vLLM's loader looks for the files of formats that it knows.
        super().__init__(dataclasses.replace(load_config, load_format="safetensors"))

    def _get_weights_iterator(self, source: Any) -> Iterator[tuple[str, Any]]:
        """Yield the tensors of a source by name; `load_weights` and reloading both come here."""
        # torchao's tensors are put together of several in the file.
        if self.load_config.safetensors_load_strategy == "torchao":
            yield from super()._get_weights_iterator(source)
            return
        _, files, *_ = self._prepare_weights(
            model_name_or_path=source.model_or_path,
            subfolder=source.subfolder,
            revision=source.revision,
            fall_back_to_pt=source.fall_back_to_pt,
            allow_patterns_overrides=source.allow_patterns_overrides,
        )
        if self.counter_before_loading_weights == 0.0:
            self.counter_before_loading_weights = time.perf_counter()
        device = self.load_config.device or current_platform.device_type
        for path in sorted(files):
            with safe_open(path, framework="pt", device=device) as file:
                # With expert parallelism those of other processes are not read.
                skip = self.local_expert_ids
                names = [name for name in file.offset_keys() if not should_skip_weight(name, skip)]
                for name, tensor in file.get_tensors(names).items():
                    yield source.prefix + name, tensor


def register() -> None:
    """Give vLLM the loader; its processes call this when they start, some more than once."""
    register_model_loader(LOAD_FORMAT)(HippogriffLoader)
