"""Attacks run fast: the active set, the attack copy, workers and batch sizes. It writes records and prints nothing."""
