"""What jobs cost, counted by hand."""

from __future__ import annotations

import pytest

from classwise.studies.runner import cost
from classwise.studies.runner.graph import AuditJob, DeriveJob, Graph, TrainJob


def test_a_forward_pass_is_counted_by_hand() -> None:
    conv = lambda side, into, out: 2 * side * side * 9 * into * out  # noqa: E731
    layers = conv(26, 1, 32) + conv(24, 32, 32) + conv(10, 32, 64) + conv(8, 64, 64)
    dense = 2 * (1024 * 200 + 200 * 200 + 200 * 10)
    assert cost.forward("smallcnn", (1, 28, 28), 10) == pytest.approx(layers + dense)


def test_trainings_and_audits_are_priced_by_their_passes() -> None:
    graph = Graph.of(
        [
            TrainJob("madry", "desk/mnist/madry"),
            *(
                AuditJob(
                    protocol,
                    model="{madry}/best.pt",
                    data="mnist",
                    attacks=("pgd-20",),
                    eps=0.3,
                    options={"per_class": 10, "protocol": protocol},
                )
                for protocol in ("any", "final")
            ),
        ]
    )
    one = cost.forward("smallcnn", (1, 28, 28), 10)
    found = cost.of_jobs(graph)
    # 8 epochs of 5000 images with 10 inner steps, and of 1000 held-out images under PGD-20
    assert found["madry"] == pytest.approx(8 * one * (5000 * 26 + 1000 * 40))
    assert found["final"] == pytest.approx(100 * one * 41)
    assert found["any"] == pytest.approx(100 * one * 21)  # half of them are broken early


def test_an_audit_of_a_repaired_model_costs_as_much_as_one_of_the_trained_one() -> None:
    repaired = DeriveJob("repaired", "m:f", {"model": "{madry}/best.pt"})
    audits = [
        AuditJob(f"{name}-audit", model=f"{{{name}}}/best.pt", data="mnist", attacks=("pgd-20",), eps=0.3)
        for name in ("madry", "repaired")
    ]
    found = cost.of_jobs(Graph.of([TrainJob("madry", "desk/mnist/madry"), repaired, *audits]))
    assert found["repaired-audit"] == found["madry-audit"] is not None
    assert found["repaired"] is None  # how many rounds it takes is not known


def test_a_given_model_or_network_of_ones_own_is_not_counted() -> None:
    own = TrainJob("own", "desk/mnist/madry", ("model.spec=net.py:make",))
    audits = [
        AuditJob(name, model=model, data="mnist", attacks=("pgd-20",), eps=0.3)
        for name, model in (("trained", "{own}/best.pt"), ("given", "best.pt"))
    ]
    assert set(cost.seconds(Graph.of([own, *audits])).values()) == {None}
