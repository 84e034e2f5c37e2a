"""Points crafted on other models: which model is asked, what is kept, and what an audit makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise import attacks
from classwise.attacks.attack import Model, Rows, craft, initial_rows
from classwise.attacks.pgd import Pgd
from classwise.attacks.transfer import Surrogate, Transfer
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import L2, LINF, Threat

Linear = Callable[..., Model]

LEFT, RIGHT = [[0.0, 0.0], [-1.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]  # class 1 grows to the left; to the upper right
STEP = "pgd:steps=1;step=0.05;start=none"


class Counting(nn.Module):
    """A small network that counts the images it is shown."""

    def __init__(self, seed: int = 0, classes: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, classes))
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)
        self.shown = 0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.shown += len(x)
        logits: Tensor = self.layers(x)
        return logits


def rows_of(count: int, seed: int = 0, eps: float = 0.1) -> Rows:
    x = torch.rand(count, 3, 2, 2, generator=torch.Generator().manual_seed(7))
    return initial_rows(x, torch.arange(count) % 4, eps, rng.keys(seed, torch.arange(count)))


def refuse(x: Tensor) -> Tensor:
    raise AssertionError("the target was asked")


def begun(attack: Transfer, rows: Rows) -> Tensor:
    return attack.begin(refuse, rows, LINF)["x_adv"]


def test_the_surrogates_gradient_is_followed_and_the_target_not_asked(linear: Linear) -> None:
    x, y = torch.full((2, 2), 0.5), torch.tensor([0, 0])
    rows = initial_rows(x, y, 0.1, torch.arange(2), torch.tensor([0, 1]))
    attack = Transfer(attack=STEP, surrogates=[linear(LEFT), linear(RIGHT)])
    assert attack.restarts == 2
    assert torch.allclose(begun(attack, rows), torch.tensor([[0.45, 0.5], [0.55, 0.55]]))


def test_it_is_the_attack_on_the_surrogate() -> None:
    net, rows = Counting(), rows_of(6)
    found = begun(Transfer(attack="pgd:steps=3;start=none", surrogates=[net]), rows)
    assert torch.equal(found, craft(Pgd(steps=3, start="none"), net, rows["x"], rows["y"], Threat("linf", 0.1)))
    assert not torch.equal(found, begun(Transfer(attack="pgd:steps=3;start=none", surrogates=[Counting(1)]), rows))


def test_batches_and_their_order_do_not_matter() -> None:
    attack = Transfer(attack="pgd-2", surrogates=[Counting().double(), Counting(1).double()])
    rows = {**rows_of(8), "restart": torch.arange(8) % 2}
    rows["x"], rows["eps"] = rows["x"].double(), torch.linspace(0.05, 0.2, 8, dtype=torch.float64)
    whole = begun(attack, rows)
    for place in (0, 3, 7):
        alone = begun(attack, {name: column[[place]] for name, column in rows.items()})
        assert torch.allclose(alone, whole[[place]], rtol=0, atol=1e-9)
    order = torch.tensor([5, 1, 7, 0, 2, 6, 3, 4])
    assert torch.allclose(begun(attack, {name: column[order] for name, column in rows.items()}), whole[order])


def test_restarts_of_the_crafting_attack_are_tried_one_by_one() -> None:
    attack = Transfer(attack="pgd:steps=1;restarts=3", surrogates=[Counting(), Counting(1)])
    assert attack.restarts == 6
    rows = rows_of(1)
    points = [begun(attack, {**rows, "restart": torch.tensor([number])}) for number in range(6)]
    assert torch.equal(points[0], points[2])  # the random start is the key's, which the engine changes
    assert not torch.equal(points[2], points[3])  # the second surrogate


def test_targets_are_fitted_to_the_classes() -> None:
    attack = Transfer(attack="apgd_t-2", surrogates=[Counting()])
    assert attack.restarts == 9
    assert attack.for_classes(4).restarts == 3
    assert attack.for_classes(10) == attack
    plain = Transfer(surrogates=[Counting()])
    assert plain.for_classes(4) is plain


class TestNaming:
    def test_specs_and_weights_are_paired(self) -> None:
        (attack,) = attacks.parse("transfer:model=resnet:width=8;blocks=1-1+vgg-16,weights=a.pt+").values()
        bracketed = "transfer:model=[(resnet:width=8,blocks=1-1), vgg-16],weights=[a.pt, none]"
        assert [other.named() for other in attacks.parse(bracketed).values()] == [attack.named()]  # type: ignore[attr-defined]
        assert isinstance(attack, Transfer)
        assert attack.named() == [("resnet:width=8,blocks=1-1", "a.pt"), ("vgg-16", None)]
        assert attack.restarts == 2

    def test_an_audit_loads_them_once(self) -> None:
        asked: list[tuple[str, str | None]] = []

        def load(spec: str, weights: str | None) -> Model:
            asked.append((spec, weights))
            return Counting(len(asked))

        attack = Transfer(model="a+b", weights="x.pt+y.pt").with_surrogates(load)
        assert asked == [("a", "x.pt"), ("b", "y.pt")]
        assert [str(each).split()[0] for each in attack.surrogates] == ["a", "b"]
        assert attack.with_surrogates(load) is attack
        assert Transfer(surrogates=[Counting()]).with_surrogates(load).model is None
        assert len(asked) == 2

    def test_the_fingerprint_tells_weights_apart(self) -> None:
        one, same, other = (str(Surrogate.of(Counting(seed))) for seed in (0, 0, 1))
        assert one == same != other
        settings = attacks.settings(Transfer(surrogates=[Counting()]))
        assert [str(each) for each in settings["surrogates"]] == [one]

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Transfer(model="a+b", weights="x.pt"), "1 weights files for 2 surrogates"),
            (lambda: Transfer(attack="pgdd"), "unknown attack 'pgdd'; did you mean 'pgd'"),
            (lambda: Transfer(attack="pgd:steps=1|2"), r"crafts with one attack, .*got attack=pgd:steps=1\|2"),
            (lambda: Transfer(attack="transfer"), "crafts with one attack"),
            (lambda: attacks.parse("transfer:surrogates=resnet-18"), "surrogates are models, got 'resnet-18'"),
            (lambda: Transfer(surrogates=[refuse], store="x"), "store needs surrogates that are torch modules"),
            (lambda: begun(Transfer(), rows_of(1)), "no model to craft on. In an audit name one"),
            (lambda: begun(Transfer(model="resnet-18"), rows_of(1)), "resnet-18 is not loaded"),
        ],
    )
    def test_errors(self, make: Callable[[], object], message: str) -> None:
        with pytest.raises(UserError, match=message):
            make()


class TestStore:
    def attack(self, net: nn.Module, store: Path, attack: str = "pgd-2") -> Transfer:
        return Transfer(attack=attack, store=str(store), surrogates=[net])

    def test_points_are_kept_and_taken_again(self, tmp_path: Path) -> None:
        net, store = Counting(), tmp_path / "deep" / "points.sqlite"
        first = begun(self.attack(net, store), rows_of(5))
        assert net.shown == 10
        turned = rows_of(5)
        turned["x"] = turned["x"].contiguous(memory_format=torch.channels_last)
        assert torch.equal(begun(self.attack(net, store), turned), first)
        assert net.shown == 10
        more = begun(self.attack(net, store), rows_of(8))
        assert torch.equal(more[:5], first)
        assert net.shown == 16
        assert torch.equal(more, begun(Transfer(attack="pgd-2", surrogates=[net]), rows_of(8)))

    @pytest.mark.parametrize("change", ["label", "radius", "seed", "image", "norm", "attack", "weights"])
    def test_nothing_else_is_mistaken_for_them(self, change: str, tmp_path: Path) -> None:
        store = tmp_path / "points"
        begun(self.attack(Counting(), store), rows_of(3))
        net = Counting(1 if change == "weights" else 0)
        rows = rows_of(3, seed=int(change == "seed"), eps=0.2 if change == "radius" else 0.1)
        if change == "label":
            rows["y"] = (rows["y"] + 1) % 4
        if change == "image":
            rows["x"] = rows["x"] * 0.99
        attack = self.attack(net, store, "pgd:steps=2;step=0.01" if change == "attack" else "pgd-2")
        attack.begin(refuse, rows, L2 if change == "norm" else LINF)
        assert net.shown == 6

    def test_a_file_that_is_something_else(self, tmp_path: Path) -> None:
        path = tmp_path / "points"
        path.write_bytes(b"not a database at all" * 100)
        with pytest.raises(UserError, match=r"cannot keep points in .*points: file is not a database"):
            begun(self.attack(Counting(), path), rows_of(1))
        with pytest.raises(UserError, match=r"cannot keep points in .*unable to open"):
            begun(self.attack(Counting(), tmp_path), rows_of(1))


def test_in_an_audit() -> None:
    """The same weights as the target break much, others less, both together most; nothing is asked of the target."""
    target = Counting()
    x = torch.rand(60, 3, 2, 2, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        y = target(x).argmax(1)
    own, other = Counting(), Counting(5)

    def robust(*surrogates: nn.Module) -> float:
        audit = cw.audit(
            target,
            (x, y),
            Transfer(attack="pgd-5", surrogates=surrogates),
            0.2,
            num_classes=4,
            batch_size=16,
            progress=False,
        )
        frame = audit.records.frame.query("attack == 'transfer'")
        assert (frame["queries"] == 0).all()
        return float((frame["prediction"] == frame["label"]).mean())

    alone, foreign, both = robust(own), robust(other), robust(own, other)
    assert alone < foreign < 1
    assert both <= alone
