"""Trainings that are over at once."""

#: Settings that make a desk/digits recipe a matter of a second or two.
QUICK = ("train.epochs=1", "data.per_class=24", "data.validation=4", "method.steps=2", "validate.attack=pgd-2")
