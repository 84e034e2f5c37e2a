"""Filling and checking the zoo, and finding a model of the same recipe in it; `models.zoo` reads it."""
