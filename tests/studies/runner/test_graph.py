"""The jobs of a study: what waits for what, and names that do not fit."""

from __future__ import annotations

import importlib
import json

import pytest

from classwise.core.errors import UserError
from classwise.studies.runner import graph
from classwise.studies.runner.graph import AuditJob, DeriveJob, Graph, TrainJob, fill, read_job


def test_every_job_stands_after_those_it_names() -> None:
    graph = Graph.of(
        [
            DeriveJob("table", "m:f", {"runs": ["{second-pgd}", "{first-pgd}"], "more": {"model": "{first}/best.pt"}}),
            AuditJob(
                "second-pgd",
                model="{second}/best.pt",
                data="digits",
                attacks=("transfer:surrogate={first}/best.pt",),
            ),
            AuditJob("first-pgd", model="{first}/best.pt", data="digits", attacks=("pgd-2",)),
            TrainJob("second", "desk/digits/frl_rw", ("model.weights={first}/best.pt",)),
            TrainJob("first", "desk/digits/madry"),
        ]
    )
    assert graph.jobs["table"].after == {"first", "first-pgd", "second-pgd"}
    assert graph.jobs["second-pgd"].after == {"first", "second"}
    order = list(graph.jobs)
    assert len(order) == 5
    for job in graph:
        assert all(order.index(other) < order.index(job.name) for other in job.after)


def test_toml_tables_among_the_settings_are_no_references() -> None:
    changes = ("method.beta={class = 0.5}", "method.beta={cat=2}", 'method.weight={"a b" = 1, dog = 2}', "method.x={}")
    job = TrainJob("one", "desk/digits/trades", changes)
    assert job.after == frozenset()
    assert fill(job.settings(), {"class": "no", "cat": "no"}) == job.settings()


def test_references_become_folders_wherever_they_stand() -> None:
    value = {"a": "{x}/best.pt", "b": ["{y}", ("{x}:{y}", 3)], "c": None, "d": "{z}"}
    assert fill(value, {"x": "/1", "y": "/2"}) == {"a": "/1/best.pt", "b": ["/2", ("/1:/2", 3)], "c": None, "d": "{z}"}


@pytest.mark.parametrize(
    "job",
    [
        TrainJob("t", "desk/digits/madry", ("train.epochs=1",)),
        AuditJob(
            "a",
            model="{t}/best.pt",
            data="digits",
            attacks=("pgd-2", "fgsm"),
            eps=0.1,
            options={"per_class": 5, "classes": ["1", "2"]},
        ),
        DeriveJob("d", "m:f", {"model": "{t}/best.pt", "values": [1, 2]}),
    ],
)
def test_a_job_comes_back_from_json(job: TrainJob | AuditJob | DeriveJob) -> None:
    assert read_job(json.loads(json.dumps(job.settings()))) == job


def test_jobs_that_wait_for_each_other_are_named() -> None:
    with pytest.raises(UserError, match=r"wait for each other: .*(a -> b -> a|b -> a -> b)"):
        Graph.of([DeriveJob("a", "m:f", {"x": "{b}"}), DeriveJob("b", "m:f", {"x": "{a}"})])


def test_a_reference_to_no_job_names_the_near_miss() -> None:
    audit = AuditJob("audit", model="{trade}/best.pt", data="digits", attacks=("pgd-2",))
    with pytest.raises(UserError, match="needed by audit 'trade'; did you mean 'trades'"):
        Graph.of([TrainJob("trades", "desk/digits/trades"), audit])


def test_the_same_job_twice_is_one_and_two_of_a_name_are_an_error() -> None:
    assert len(Graph.of([DeriveJob("a", "m:f"), DeriveJob("a", "m:f")])) == 1
    with pytest.raises(UserError, match="two different jobs are called 'a'"):
        Graph.of([DeriveJob("a", "m:f"), DeriveJob("a", "m:g")])


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "a b", "a{b}"])
def test_a_name_that_is_no_folder_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="cannot be called"):
        DeriveJob(name, "m:f")


def test_what_is_finished_holds_nothing_up() -> None:
    graph = Graph.of([DeriveJob("a", "m:f"), DeriveJob("b", "m:f", {"x": "{a}"}), DeriveJob("c", "m:f", {"x": "{b}"})])
    assert graph.waiting().get_ready() == ("a",)
    assert graph.waiting(["a"]).get_ready() == ("b",)
    assert graph.waiting(["b"]).get_ready() == ("a", "c")  # b was finished before: what a does can wait for nobody
    assert not graph.waiting(["a", "b", "c"]).is_active()


def test_functions_that_moved_are_stored_and_found_by_their_first_name() -> None:
    moved = DeriveJob("masks", "classwise.studies.background.pictures:make_masks", {"seed": 0})
    stored = moved.settings()
    assert stored["function"] == "classwise.studies.parts.background_pictures:make_masks"
    assert read_job(stored) == moved
    for module, first in graph._STORED_AS.items():
        assert importlib.import_module(module).__name__ == module
        assert first.startswith("classwise.studies.")
