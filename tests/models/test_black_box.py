"""Black boxes: what they are handed, what becomes of their answers, and every way of naming one."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC, LinearSVC
from torch import nn

import classwise as cw
from classwise.attacks.attack import value_and_gradient
from classwise.auditing.fingerprints import fingerprint_model
from classwise.core.errors import UserError
from classwise.engine.batch_size import choose_batch
from classwise.models import load_model
from classwise.models.black_box import BlackBox, kind_of

X = torch.rand(5, 2, 3, 4, generator=torch.Generator().manual_seed(0))
PROBS = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0]])


class Answers:
    """Answers with what it is given, in turn, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[NDArray[np.float32]] = []

    def __call__(self, images: NDArray[np.float32]) -> Any:
        self.asked.append(images)
        return self.answers.pop(0)


def first_pixels(images: NDArray[np.float32]) -> NDArray[np.float32]:
    return images.reshape(len(images), -1)[:, :3] * 5


def fitted(estimator: Any, classes: int = 3, shift: float = 0.0) -> Any:
    x = np.random.default_rng(0).random((60, 24))
    return estimator.fit(x, np.argmax(x[:, :classes] + shift * x[:, 5 : 5 + classes], axis=1))


class TestImages:
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, X.numpy()),
            ({"shape": "nhwc"}, X.permute(0, 2, 3, 1).numpy()),
            ({"shape": "flat", "scale": 16}, 16 * X.flatten(1).numpy()),
            ({"normalize": ((0.5, 0.25), (0.5, 2.0))}, ((X[:, 0] - 0.5) / 0.5, (X[:, 1] - 0.25) / 2)),
        ],
    )
    def test_in_the_shape_asked_for(self, settings: dict[str, Any], expected: Any) -> None:
        model = Answers(np.zeros((5, 3)))
        BlackBox(model, **settings)(X.contiguous(memory_format=torch.channels_last))
        (images,) = model.asked
        assert images.dtype == np.float32
        assert images.flags.c_contiguous
        if "normalize" in settings:
            expected = torch.stack(expected, 1).numpy()
        np.testing.assert_allclose(images, expected, rtol=1e-6)

    def test_what_the_model_writes_into_them_stays_there(self) -> None:
        def destroys(images: NDArray[np.float32]) -> NDArray[np.float32]:
            images[:] = 7
            return np.zeros((len(images), 3), np.float32)

        x = X.clone()
        BlackBox(destroys)(x)
        assert torch.equal(x, X)


class TestScores:
    def test_probabilities_become_their_logarithms(self) -> None:
        logits = BlackBox(Answers(PROBS))(X[:2])
        expected = [[np.log(0.5), np.log(0.25), np.log(0.25)], [0, np.log(1e-12), np.log(1e-12)]]
        np.testing.assert_allclose(logits, expected, rtol=1e-6)
        np.testing.assert_allclose(logits.softmax(1), PROBS, atol=1e-6)
        assert logits.dtype == torch.float32

    @pytest.mark.parametrize("form", [np.array, np.ndarray.tolist, lambda a: torch.tensor(a, requires_grad=True)])
    def test_logits_stay_as_they_are(self, form: Any) -> None:
        logits = BlackBox(Answers(form(LOGITS)))(X[:2])
        np.testing.assert_array_equal(logits, LOGITS)
        assert not logits.requires_grad

    def test_the_first_answer_decides(self) -> None:
        model = BlackBox(Answers(LOGITS, PROBS))
        np.testing.assert_array_equal(model(X[:2]), LOGITS)
        np.testing.assert_array_equal(model(X[:2]), PROBS)  # by chance like probabilities, and still logits
        model = BlackBox(Answers(PROBS, LOGITS))
        model(X[:2])
        with pytest.raises(UserError, match=r"probabilities at first .*from -1 to 3.*scores=probs or scores=logits"):
            model(X[:2])

    def test_or_the_caller(self) -> None:
        np.testing.assert_array_equal(BlackBox(Answers(PROBS), scores="logits")(X[:2]), PROBS)
        rough = BlackBox(Answers(PROBS, 1.01 * PROBS), scores="probs")
        rough(X[:2])
        np.testing.assert_allclose(rough(X[:2])[0], np.log(1.01 * PROBS[0]), rtol=1e-6)

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (np.zeros((4, 3)), r"for 5 images \S*Answers returned scores of shape \(4, 3\), expected \(5, classes\)"),
            (np.zeros(5), r"shape \(5,\)"),
            (np.zeros((5, 1)), "one score for each image; return one for each class"),
            ([[1, 2], [3]] * 2 + [[1]], "failed on a batch of 5×2×3×4: ValueError"),
            (None, r"expected \(5, classes\): one row for each image"),
        ],
    )
    def test_what_are_no_scores(self, answer: Any, message: str) -> None:
        with pytest.raises(UserError, match=message):
            BlackBox(Answers(answer))(X)

    def test_another_number_of_classes_later_on(self) -> None:
        model = BlackBox(Answers(LOGITS, LOGITS[:, :2]))
        model(X[:2])
        with pytest.raises(UserError, match=r"\(2, 2\), expected \(2, 3\)"):
            model(X[:2])

    def test_no_images_no_question(self) -> None:
        model = BlackBox(Answers(LOGITS))
        model(X[:2])
        assert model(X[:0]).shape == (0, 3)

    def test_a_failure_is_a_sentence_but_memory_is_the_engines(self) -> None:
        def fails(images: NDArray[np.float32]) -> None:
            raise errors.pop()

        errors = [MemoryError(), KeyError("boom")]
        with pytest.raises(UserError, match=r"fails failed on a batch .*KeyError: 'boom'.*the same command resumes"):
            BlackBox(fails)(X)
        with pytest.raises(MemoryError):
            BlackBox(fails)(X)


def test_the_budget_is_never_passed() -> None:
    model = BlackBox(first_pixels, budget=12)
    model(X)
    model(X)
    with pytest.raises(UserError, match=r"budget of 12 images is spent: 10 were queried, and 5 more are needed"):
        model(X)
    model(X[:2])
    assert model.queried == 12


def test_has_one_mode_no_weights_and_no_gradient() -> None:
    model = BlackBox(first_pixels)
    assert not model.train().training
    assert not [*model.parameters(), *model.buffers()]
    with pytest.raises(UserError, match="no gradient"):
        value_and_gradient(model, X, torch.Tensor.sum)
    with pytest.raises(UserError, match=r"pgd-20 needs the gradient .*noise"):
        cw.audit(model, (X[:, :1], torch.zeros(5, dtype=torch.long)), "pgd-20")


@pytest.mark.parametrize("size", [8, 32])
def test_batches_fit_the_images(size: int) -> None:
    assert 64 <= choose_batch(BlackBox(first_pixels), torch.zeros(8, 3, size, size)) <= 1024


class TestEstimators:
    def test_probabilities(self) -> None:
        estimator = fitted(LogisticRegression())
        expected = estimator.predict_proba(16 * X.flatten(1).numpy())
        np.testing.assert_allclose(BlackBox(estimator, scale=16)(X).softmax(1), expected, atol=1e-6)
        assert isinstance(load_model(estimator), BlackBox)

    def test_a_decision_function_gives_logits(self) -> None:
        estimator = fitted(SVC())
        assert not hasattr(estimator, "predict_proba")
        np.testing.assert_allclose(BlackBox(estimator)(X), estimator.decision_function(X.flatten(1).numpy()), rtol=1e-5)

    def test_and_two_of_them_where_it_decides_between_two(self) -> None:
        estimator = fitted(LinearSVC(), classes=2)
        logits = BlackBox(estimator)(X).numpy()
        np.testing.assert_allclose(logits[:, 1], estimator.decision_function(X.flatten(1).numpy()), rtol=1e-5)
        np.testing.assert_array_equal(logits[:, 0], 0)

    def test_columns_must_be_class_numbers(self) -> None:
        x = np.eye(24)[:4]
        with pytest.raises(UserError, match="classes are ant, bee; expected the class numbers 0…1"):
            BlackBox(LogisticRegression().fit(x, ["ant", "bee"] * 2))

    def test_not_fitted_yet(self) -> None:
        with pytest.raises(UserError, match="NotFittedError"):
            BlackBox(LogisticRegression())(X)

    def test_its_identity_is_what_it_has_learnt(self) -> None:
        one, same, other = (fitted(LogisticRegression(), shift=shift) for shift in (0, 0, 0.5))
        assert BlackBox(one).identity == BlackBox(same).identity
        assert len({fingerprint_model(BlackBox(model)) for model in (one, same, other)}) == 2

    def test_what_cannot_be_written_down_still_has_one(self) -> None:
        one, same = (fitted(make_pipeline(FunctionTransformer(lambda x: x), LogisticRegression())) for _ in range(2))
        assert BlackBox(one).identity == BlackBox(same).identity


class TestObjects:
    def test_a_function_is_known_by_its_name(self) -> None:
        assert BlackBox(first_pixels).identity == f"{__name__}.first_pixels shape=nchw scale=1 scores=auto"
        partial = functools.partial(first_pixels)
        assert BlackBox(partial).identity == BlackBox(first_pixels, budget=3).identity
        assert BlackBox(Answers()).identity.startswith(f"{__name__}.Answers ")

    def test_what_changes_the_answers_changes_the_fingerprint(self) -> None:
        ways: list[dict[str, Any]] = [{}, {"scale": 2}, {"shape": "flat"}, {"scores": "probs"}, {"normalize": "mnist"}]
        assert len({fingerprint_model(BlackBox(first_pixels, **way)) for way in ways}) == len(ways)

    def test_what_is_no_model(self) -> None:
        with pytest.raises(UserError, match="Linear is a class; give an instance"):
            load_model(nn.Linear)
        with pytest.raises(UserError, match="a int is no model"):
            load_model(3)
        with pytest.raises(UserError, match="leave weights out"):
            load_model(first_pixels, weights="best.pt")

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"scale": 0}, "scale must be positive"),
            ({"scale": "wide"}, "black box.scale must be a number"),
            ({"budget": 0}, "budget must be at least 1"),
            ({"shape": "chw"}, "unknown value of black box.shape 'chw'; did you mean 'nchw'"),
        ],
    )
    def test_settings(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            BlackBox(first_pixels, **settings)


FILE = """
import numpy as np
from neighbour import FACTOR
from sklearn.linear_model import LogisticRegression

def score(images):
    return FACTOR * images[:, 0, 0, :3]

def make():
    x = np.random.default_rng(0).random((60, 24))
    return LogisticRegression().fit(x, x[:, :3].argmax(1))

def broken():
    raise KeyError("boom")

classifier = make()
number = 3
"""


class TestSpecs:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        (tmp_path / "own.py").write_text(FILE)
        (tmp_path / "neighbour.py").write_text("FACTOR = 4")
        return tmp_path / "own.py"

    def test_a_function_of_a_file(self, file: Path) -> None:
        model = load_model(f"callable:{file}:score,scale=1/2,budget=9", device="cpu")
        np.testing.assert_allclose(model(X), 2 * X[:, 0, 0, :3], rtol=1e-6)
        assert isinstance(model, BlackBox)
        assert model.settings.budget == 9
        assert model.identity.startswith("own.py:score ")
        assert model.identity == load_model(f"callable:{file}:score,scale=0.5").identity
        file.write_text(FILE + "\n")
        assert model.identity != load_model(f"callable:{file}:score,scale=0.5").identity

    @pytest.mark.parametrize("name", ["classifier", "make"])
    def test_an_estimator_of_a_file(self, file: Path, name: str) -> None:
        model = load_model(f"sklearn:{file}:{name},scale=16")
        expected = fitted(LogisticRegression())
        np.testing.assert_allclose(model(X).softmax(1), expected.predict_proba(16 * X.flatten(1).numpy()), atol=1e-6)

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("callable:{}:scor", "unknown name in own.py 'scor'; did you mean 'score'"),
            ("callable:{}:number", "own.py:number is a int, expected a function"),
            ("callable:{}:score,bugdet=3", "unknown setting of callable:.*'bugdet'; did you mean 'budget'"),
            ("callable:{}:score,timeout=3", "unknown setting"),
            ("callable:absent.py:score", "no Python file 'absent.py'"),
            ("sklearn:{}:number", "own.py:number is a int, expected an estimator"),
            ("sklearn:{}:broken", "own.py:broken failed: KeyError: 'boom'"),
            ("sklearn:model.joblib", "hold code that loading would run"),
        ],
    )
    def test_errors(self, file: Path, spec: str, message: str) -> None:
        with pytest.raises(UserError, match=message):
            load_model(spec.format(file))

    def test_a_file_that_fails(self, tmp_path: Path) -> None:
        (tmp_path / "bad.py").write_text("import no_such_thing")
        with pytest.raises(UserError, match=r"bad.py failed: ModuleNotFoundError"):
            load_model(f"callable:{tmp_path / 'bad.py'}:score")

    def test_networks_are_none(self) -> None:
        assert not any(map(kind_of, ["resnet-18", "net.py:make", "timm:vit", "onnx.pt", "callable.py:f"]))
        assert all(map(kind_of, ["net.onnx", "a/net.onnx,scale=255", "https://host", "HTTP://h/p,chunk=3"]))


class TestOnnx:
    """Logits W·x of images of two pixels, written by hand."""

    W = np.array([[1.0, -2.0, 0.5], [3.0, 0.0, -1.0]], np.float32)

    @pytest.fixture
    def write(self, tmp_path: Path) -> Any:
        helper, kind = onnx.helper, onnx.TensorProto

        def write(batch: int | str = "batch", element: int = kind.FLOAT, with_label: bool = False) -> Path:
            weight = onnx.numpy_helper.from_array(self.W.astype(helper.tensor_dtype_to_np_dtype(element)), "w")
            nodes = [
                helper.make_node("Flatten", ["x"], ["flat"]),
                helper.make_node("MatMul", ["flat", "w"], ["z"]),
                helper.make_node("ArgMax", ["z"], ["label"], axis=1, keepdims=0),
                helper.make_node("Neg", ["z"], ["minus"]),
            ]
            outputs = [helper.make_tensor_value_info(name, element, [batch, 3]) for name in ("z", "minus")]
            if with_label:
                outputs.insert(0, helper.make_tensor_value_info("label", kind.INT64, [batch]))
            image = helper.make_tensor_value_info("x", element, [batch, 1, 1, 2])
            graph = helper.make_graph(nodes, "net", [image], outputs, [weight])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            onnx.save(model, tmp_path / "net.onnx")
            return tmp_path / "net.onnx"

        return write

    @pytest.mark.parametrize(
        "how", [{}, {"batch": 3}, {"batch": 1}, {"element": 11}, {"element": 10}, {"with_label": True}]
    )
    def test_answers(self, write: Any, how: dict[str, Any]) -> None:
        x = X.flatten()[:14].reshape(7, 1, 1, 2)
        model = load_model(write(**how))
        tolerance = 5e-3 if how == {"element": 10} else 1e-6  # float16
        np.testing.assert_allclose(model(x), x.numpy().reshape(7, 2) @ self.W, atol=tolerance)
        assert isinstance(model, BlackBox)

    def test_a_named_output(self, write: Any) -> None:
        x = torch.tensor([[[[0.25, 0.5]]]])
        np.testing.assert_allclose(load_model(f"{write()},output=minus")(x), [[-1.75, 0.5, 0.375]])
        with pytest.raises(UserError, match=r"unknown output of \S*net.onnx 'minsu'; did you mean 'minus'"):
            load_model(f"{write()},output=minsu")

    def test_its_identity_is_the_file_and_its_weights(self, write: Any) -> None:
        path = write()
        before = load_model(path).identity
        assert before.startswith("net.onnx ")
        assert before == load_model(path).identity
        (path.parent / "net.onnx.data").write_bytes(b"weights")
        assert before != load_model(path).identity

    def test_a_file_of_something_else(self, write: Any, tmp_path: Path) -> None:
        (tmp_path / "bad.onnx").write_bytes(b"junk")
        with pytest.raises(UserError, match=r"cannot load the ONNX file \S*bad.onnx"):
            load_model(tmp_path / "bad.onnx")


def test_onnx_without_its_package_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match="no ONNX file"):
        load_model(tmp_path / "absent.onnx")
    (tmp_path / "net.onnx").touch()
    with pytest.raises(UserError, match=r"pip install classwise\[onnx\]"):
        load_model(tmp_path / "net.onnx")
